"""Read spec files: a superset of W&B's sweep YAML; all mistakes of a file are listed at once, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import searchers as space
from searchers.errors import SearchError, nearest
from sweep import checks
from sweep.cli.arguments import RunArguments, parse_seconds, split_target
from sweep.cli.ranges import domain_of
from sweep.cli.yaml_text import KeyPath, load_yaml
from sweep.core.config import FailureConfig
from sweep.core.resources import parse_resources
from sweep.errors import ConfigError

METHODS: Mapping[str, str] = {**{name: name for name in space.SEARCHERS}, "bayes": "gp", "sobol": "qmc"}
"""`method:` of a spec file -> name of the searcher."""

_NOT_BUILT = {
    "command": "command lines of plain programs are not supported; let `program` name a function: train.py:train",
    "report": "reading metrics from a program's output is not supported; call sweep.report in a function",
}
_DEFAULT_MAX_T = 100
Check = Callable[[Any], object]


def _whole(least: int) -> Check:
    return lambda value: checks.whole("", value, least=least)


def _above(bound: float) -> Check:
    return lambda value: checks.number("", value, above=bound, is_finite=False)


def _one_of(*known: str) -> Check:
    return lambda value: checks.one_of("", value, known)


def _failure(name: str) -> Check:
    return lambda value: FailureConfig(**{name: value})


def _is(kind: type, expected: str) -> Check:
    return lambda value: None if isinstance(value, kind) else checks.refuse("", value, expected)


_number = partial(checks.number, "", is_finite=False)
_text, _keys, _list = _is(str, "a text"), _is(dict, "keys with values"), _is(list, "a list")


def _span(value: Any) -> object:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        checks.refuse("", value, "a span of time such as 90s, 30m or 2h")
    return parse_seconds(str(value))


def _some(value: Any) -> None:
    _list(value)
    if not value:
        raise ConfigError("found a list; expected at least one value.")


def _configs(value: Any) -> None:
    _list(value)
    for one in value:
        _keys(one)


def _method(value: Any) -> None:
    _text(value)
    if value.lower() not in METHODS:
        raise ConfigError(f"unknown method {value!r}. {nearest(value.lower(), METHODS)}")


_SPEC: dict[str, Any] = {
    "program": _text,
    "method": _method,
    **dict.fromkeys(("name", "description", "project", "entity"), _text),
    "metric": {"name": _text, "goal": _one_of("minimize", "maximize"), "target": _number},
    "parameters": _keys,
    "early_terminate": {
        "type": _one_of("asha", "hyperband"),
        "min_iter": _above(0),
        "max_iter": _above(0),
        "s": _whole(1),
        "eta": _above(1),
        "strict": _is(bool, "true or false"),
    },
    "run_cap": _whole(1),
    "resources_per_trial": parse_resources,
    "concurrency": _whole(1),
    "seed": _whole(0),
    "budget": dict.fromkeys(("time", "trial_time", "report_time"), _span),
    "failures": {
        "retries": _failure("max_failures"),
        **{name: _failure(name) for name in ("retry_on", "out_of_memory", "nan", "max_node_losses")},
    },
    "start_with": _configs,
}
"""A key of a spec file -> its check, or the keys below it."""
_PARAMETER: Mapping[str, Check] = {
    "distribution": _text,
    "value": lambda value: None,
    "values": _some,
    **dict.fromkeys(("min", "max", "q", "mu", "sigma"), _number),
    "parameters": _keys,
}
"""What one entry of `parameters` may have -> its check."""
_NEEDED: Mapping[KeyPath, tuple[str, ...]] = {(): ("program",), ("metric",): ("name",), ("early_terminate",): ("type",)}


def read_spec(path: Path) -> RunArguments:
    """Return what a spec file asks for.

    Raises:
        ConfigError: the file cannot be read, is not valid YAML, or has mistakes: all of them, by line.
    """
    data, lines, mistakes = load_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1:1: expected keys such as program, method and parameters, found {_kind(data)}.")
    for key, why in _NOT_BUILT.items():
        if key in data:
            mistakes.append(((key,), why))
            del data[key]
    mistakes += [*_mistakes(data, _SPEC, ()), *_mistakes_together(data, path)]
    if mistakes:
        raise ConfigError(_report(path, mistakes, lines))
    return _arguments(data, path)


def _arguments(spec: Mapping[str, Any], path: Path) -> RunArguments:
    file, name = split_target(spec["program"]) or ("", "")
    metric, early, start_with = spec.get("metric") or {}, spec.get("early_terminate"), spec.get("start_with")
    failures = {name: value for name, value in (spec.get("failures") or {}).items() if value is not None}
    spans = {name: parse_seconds(str(text)) for name, text in (spec.get("budget") or {}).items() if text is not None}
    given = {
        "metric": metric.get("name"),
        "mode": (metric.get("goal") or "minimize")[:3] if metric else None,
        "num_samples": spec.get("run_cap"),
        "max_concurrent_trials": spec.get("concurrency"),
        "resources_per_trial": spec.get("resources_per_trial"),
        "search_alg": METHODS[(spec.get("method") or "random").lower()],
        "scheduler": None if early is None else "asha",
        "seed": spec.get("seed"),
        "name": spec.get("name"),
        "time_budget_s": spans.get("time"),
        "trial_timeout_s": spans.get("trial_time"),
        "report_timeout_s": spans.get("report_time"),
        "max_failures": failures.pop("retries", None),
        "failure_config": FailureConfig(**failures) if failures else None,
    }
    return RunArguments(
        f"{(path.absolute().parent / file).resolve()}:{name}",
        parameters=spec.get("parameters") or {},
        given={name: value for name, value in given.items() if value is not None},
        searcher_options={"points_to_evaluate": start_with} if start_with else {},
        scheduler_options={} if early is None else _asha(early),
        goal_value=metric.get("target"),
    )


def _asha(early: Mapping[str, Any]) -> dict[str, Any]:
    """W&B's hyperband stops at min_iter * eta**k, or at max_iter / eta**k for k up to s: rungs of ASHA."""
    eta, least, most, steps = early.get("eta") or 3, early.get("min_iter"), early.get("max_iter"), early.get("s")
    if least is not None:
        grace = least
    else:
        grace = 1 if most is None or steps is None else max(1, most / eta**steps)
    return {
        "grace_period": grace,
        "max_t": most or max(_DEFAULT_MAX_T, grace),
        "reduction_factor": eta,
        # W&B's bounds say when to look at a run, not when to end a good one
        "stop_last_trials": most is not None,
    }


def _mistakes(given: Mapping[Any, Any], table: Mapping[str, Any], where: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong with each key by itself."""
    for key, value in given.items():
        here, check = (*where, key), table.get(key)
        if check is None:
            yield here, f"unknown key {key!r}. {nearest(str(key), table)}"
        elif value is None and key not in _NEEDED.get(where, ()):
            continue
        elif isinstance(check, Mapping) and isinstance(value, dict):
            yield from _mistakes(value, check, here)
        else:
            try:
                (_keys if isinstance(check, Mapping) else check)(value)
            except ValueError as error:
                yield here, str(error)
    yield from ((where, f"{key!r} is missing.") for key in _NEEDED.get(where, ()) if key not in given)


def _mistakes_of_parameters(
    parameters: Mapping[Any, Any], where: KeyPath, is_grid: bool
) -> Iterator[tuple[KeyPath, str]]:
    for name, given in parameters.items():
        here = (*where, name)
        if not isinstance(name, str):
            yield here, f"a parameter is named {name!r}; expected a text."
        elif not isinstance(given, dict):
            yield here, f"expected value, values, or min and max, found {_kind(given)}."
        elif found := list(_mistakes(given, _PARAMETER, here)):
            yield from found
        elif given.get("parameters") is not None:
            if others := given.keys() - {"parameters"}:
                yield here, f"nested parameters take no {' and '.join(sorted(others))}."
            yield from _mistakes_of_parameters(given["parameters"], (*here, "parameters"), is_grid)
        else:
            try:
                domain_of(given, is_grid)
            except (ConfigError, SearchError, OverflowError) as error:
                yield here, str(error)


def _mistakes_together(data: Mapping[str, Any], path: Path) -> Iterator[tuple[KeyPath, str]]:
    """Yield what the check of one key does not see."""
    program, parameters = data.get("program"), data.get("parameters")
    if isinstance(program, str):
        target = split_target(program)
        if target is None:
            what = f"{program!r} is a plain program, which is not supported yet; expected FILE.py:FUNCTION."
            yield ("program",), what
        elif not (path.absolute().parent / target[0]).is_file():
            yield ("program",), f"there is no file {target[0]} beside {path.name}."
    if isinstance(parameters, dict):
        is_grid = str(data.get("method")).lower() == "grid"
        yield from _mistakes_of_parameters(parameters, ("parameters",), is_grid)
    if "early_terminate" in data and "metric" not in data:
        yield ("early_terminate",), "it compares trials by a metric; also give metric: {name: ..., goal: ...}."


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def _report(path: Path, mistakes: list[tuple[KeyPath, str]], lines: Mapping[KeyPath, int]) -> str:
    def line_of(where: KeyPath) -> int:
        while where not in lines:
            where = where[:-1]
        return lines[where]

    def name_of(where: KeyPath) -> str:
        shown = ".".join(str(part) for part in where if part != "")
        return f"{shown}: " if shown else ""

    found = sorted({(line_of(where), f"{name_of(where)}{message}") for where, message in mistakes})
    if len(found) == 1:
        return f"{path}:{found[0][0]}: {found[0][1]}"
    head = f"{path} has {len(found)} mistakes:"
    return "\n".join([head, *(f"  line {line}: {message}" for line, message in found)])
