"""`sweep new`: write a spec file from the options of a script, with ranges to edit."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from sweep.cli.tables import emit, json_option
from sweep.core.literals import json_text
from sweep.errors import ConfigError
from sweep.programs.interface import Interface, Option, interface_of

_ASIDE = re.compile(  # in names of what is seldom searched
    r"seed|rank|port$|interval|freq|every|worker|proc|thread|gpu|device|node|log|print|save|eval|test|val|verbose|debug"
    r"|resume|patience|timeout|steps?$|epochs?$|iters?$|samples|version|_id$|size_limit|world"
)


@click.command(short_help="Write a spec file for a script.")
@click.argument("script", metavar="SCRIPT.py", type=click.Path(path_type=Path))
@click.argument("fixed", nargs=-1, metavar="[-- ARGUMENT...]")
@click.option("-o", "--output", type=click.Path(path_type=Path), default="sweep.yaml", help="[default: sweep.yaml]")
@json_option("Print what the script takes as one JSON object, with a range to try for each; write nothing.")
def new(script: Path, fixed: Sequence[str], output: Path, as_json: bool) -> None:
    """Write a spec file from what a script takes: ranges around the defaults of what looks worth searching, the rest
    as comments. The script is run up to where it parses its arguments; fixed ones stand after `--`.

    \b
    Examples:
      sweep new train.py
      sweep new cli.py -o fit.yaml -- fit
      sweep new train.py --json
    """
    if (output.exists() and not as_json) or not script.is_file():
        is_there = f"{output} exists already. Give another file with -o, or delete it."
        raise ConfigError(is_there if script.is_file() else f"there is no file {script}.")
    interface = interface_of([sys.executable, str(script), *fixed])
    if not interface.options:
        why = interface.why or "it names no library that parses arguments"
        raise ConfigError(f"what {script} takes is not known: {why}. Name its parameters: sweep run {script} lr=1")
    if as_json:
        emit(json_text(_facts(interface, str(script))) + "\n")
        return
    lines = _lines(interface, os.path.relpath(script, output.parent), fixed)
    output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    click.echo(f"{output} is written. Edit its metric and ranges, then: sweep run {output}")


def _lines(interface: Interface, program: str, fixed: Sequence[str]) -> Iterator[str]:
    yield f"program: {program}"
    if fixed:
        yield f"command: {json.dumps(['${env}', '${interpreter}', '${program}', *fixed, '${args}'])}"
    yield from ("method: random", "metric: {name: loss, goal: minimize}  # what the script reports", "run_cap: 20")
    yield "parameters:"
    for option, given, is_aside in _ranges(interface):
        told = f"default: {_text(option.default)}. {option.help[:80]}".rstrip()
        shown = ", ".join(f"{key}: {_text(value)}" for key, value in given.items())
        yield f"  {'# ' if is_aside else ''}{option.name}: {{{shown}}}  # {told}"


def _ranges(interface: Interface) -> Iterator[tuple[Option, dict[str, Any], bool]]:
    """Yield what a script takes, what a sweep file says of it, and whether that is seldom searched."""
    for option in interface.options:
        if option.kind != "group":
            given = _range(option)
            is_aside = option.kind != "value" or "value" in given or _ASIDE.search(option.name.lower()) is not None
            yield option, given, is_aside


def _facts(interface: Interface, script: str) -> dict[str, Any]:
    """Return what a script takes, and of what looks worth searching a range as `sweep run` takes it."""
    parameters = []
    for option, given, is_aside in _ranges(interface):
        form = "loguniform" if "distribution" in given else "uniform"
        words = map(_text, given.get("values") or (given.get("min"), given.get("max")))
        text = ",".join(word.strip('"') for word in words)
        tried = None if is_aside else text if "values" in given else f"{form}({text})"
        about = {"type": option.type, "default": option.default, "choices": option.choices, "help": option.help}
        parameters.append({"name": option.name, "kind": option.kind, **about, "range": tried})
    return {"program": script, "kind": interface.kind, "takes_others": interface.is_open, "parameters": parameters}


def _range(option: Option) -> dict[str, Any]:
    """Return what a sweep file says of a parameter."""
    default, choices = option.default, option.choices
    if choices and len(choices) <= 6:
        return {"values": choices}
    if isinstance(default, bool) or option.kind in ("flag", "off", "pair"):
        return {"values": [True, False]}
    if isinstance(default, int) and default >= 8 and default & (default - 1) == 0:  # a power of two
        return {"values": [default // 2, default, default * 2]}
    if choices or not isinstance(default, float) or not 0 < default < float("inf"):
        return {"value": default}
    if 0.5 <= default < 1:  # such as a momentum: what counts is how far it is from 1
        return {"min": 2 * default - 1, "max": 1 - (1 - default) / 10}
    return {"distribution": "log_uniform_values", "min": default / 10, "max": default * 10}


def _text(value: Any) -> str:
    """Return a value as JSON; of a float six digits, as `1.0e-05`, which YAML 1.1 takes for a number, too."""
    return (
        re.sub(r"^(-?\d+)e", r"\1.0e", repr(float(f"{value:.6g}"))) if isinstance(value, float) else json.dumps(value)
    )
