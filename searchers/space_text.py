"""Read a space back from the text as which it prints; nothing of it is run."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from searchers.errors import SpaceError
from searchers.space import Categorical, Domain, Float, Grid, Integer, LogUniform, Normal, Quantized, Sampler, Uniform

_MOST_NESTED = 30
_NUMBER = r"[-+\w.]+"
_RANGE = re.compile(rf"(Float|Integer)\(({_NUMBER}), ({_NUMBER})\)(?:\.(.+))?")
_QUANTIZED = re.compile(rf"Quantized\(sampler=(.+), q=({_NUMBER})\)")
_NORMAL = re.compile(rf"Normal\(mean=({_NUMBER}), sd=({_NUMBER})\)")
_CHOICE = re.compile(r"Categorical(\[.*\])(?:\.(Uniform|Grid)\(\))?", re.DOTALL)
_CLOSING = {"[": "]", "(": ")", "{": "}", "<": ">"}
_ERRORS = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)  # of Python's own parser


def read_space_text(text: str, stand_in: Callable[[str], Any]) -> Any:
    """Return the domain, the dict or list of domains, or the constant that prints as `text`.

    Args:
        text: what `repr` gave: `Float(0, 1).Uniform()`, `{'x': Categorical[1, 'a'].Uniform()}`.
        stand_in: makes something of the text of a value that is no literal, such as a function or an array.
    """
    return _read(text, stand_in, 0)


def _read(text: str, stand_in: Callable[[str], Any], depth: int) -> Any:
    text = text.strip()
    if depth > _MOST_NESTED:
        return stand_in(text)
    try:
        if match := _RANGE.fullmatch(text):
            return _number_domain(*match.groups())
        if match := _CHOICE.fullmatch(text):
            options = [_read(part, stand_in, depth + 1) for part in _parts(match[1][1:-1], ",")]
            choice = Categorical(options)
            return choice if match[2] is None else choice.grid() if match[2] == "Grid" else choice.uniform()
    except (SpaceError, ValueError):  # bounds that no domain has
        return stand_in(text)
    if text in ("nan", "inf", "-inf"):
        return float(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text of somebody's __repr__ may look like doubtful code
            return ast.literal_eval(text)
    except _ERRORS:
        return _container(text, stand_in, depth)


def _container(text: str, stand_in: Callable[[str], Any], depth: int) -> Any:
    inner = text[1:-1]
    if text[:1] + text[-1:] == "{}":
        pairs = [list(_parts(part, ":")) for part in _parts(inner, ",")]
        try:
            return {ast.literal_eval(key.strip()): _read(value, stand_in, depth + 1) for key, value in pairs}
        except _ERRORS:  # a set, or a key that is an object
            return stand_in(text)
    if text[:1] + text[-1:] in ("[]", "()"):
        items = [_read(part, stand_in, depth + 1) for part in _parts(inner, ",")]
        return items if text[0] == "[" else tuple(items)
    return stand_in(text)


def _number_domain(kind: str, lower: str, upper: str, sampler: str | None) -> Domain:
    if kind == "Integer":
        return _with(Integer(int(lower), int(upper)), sampler)
    low, high = _number(lower), _number(upper)
    return _with(Float(None if low == -math.inf else low, None if high == math.inf else high), sampler)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _with(domain: Float | Integer, sampler: str | None) -> Domain:
    if sampler is not None:
        domain.set_sampler(_sampler(sampler))
    return domain


def _sampler(text: str) -> Sampler:
    plain: dict[str, Sampler] = {"Uniform()": Uniform(), "LogUniform()": LogUniform(), "Grid()": Grid()}
    if text in plain:
        return plain[text]
    if match := _QUANTIZED.fullmatch(text):
        return Quantized(_sampler(match[1]), _number(match[2]))
    if match := _NORMAL.fullmatch(text):
        return Normal(_number(match[1]), _number(match[2]))
    raise SpaceError(f"{text!r} is no sampler.")


def _parts(text: str, separator: str) -> Iterator[str]:
    """Yield what stands between separators that are in no quotes and no brackets; of `:` only the first counts."""
    open_brackets: list[str] = []
    start = at = 0
    while at < len(text):
        sign = text[at]
        if sign in "'\"":
            at = _end_of_quotes(text, at)
        elif sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
        elif open_brackets and sign == open_brackets[-1]:
            open_brackets.pop()
        elif sign == separator and not open_brackets:
            yield text[start:at]
            start = at + 1
            if separator == ":":
                break
        at += 1
    if text[start:].strip():
        yield text[start:]


def _end_of_quotes(text: str, at: int) -> int:
    """Return where the quotes end that begin at a place; that place itself where they never do."""
    match = re.compile(rf"{text[at]}(?:[^\\{text[at]}]|\\.)*{text[at]}", re.DOTALL).match(text, at)
    return at if match is None else match.end() - 1
