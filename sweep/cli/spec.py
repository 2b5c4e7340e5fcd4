"""Read spec files: a superset of W&B's sweep YAML; all mistakes of a file are listed at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import searchers as space
from searchers.errors import nearest
from sweep import checks
from sweep.cli.arguments import RunArguments, parse_seconds, split_target
from sweep.cli.ranges import Mistake, space_of
from sweep.cli.yaml_text import load_yaml
from sweep.core.config import FailureConfig
from sweep.core.resources import parse_resources
from sweep.errors import ConfigError, SweepError
from sweep.launch.spec import RunSpec
from sweep.schedulers import create_scheduler

METHODS: Mapping[str, str] = {**{name: name for name in space.SEARCHERS}, "bayes": "gp", "sobol": "qmc"}
"""`method:` of a spec file -> name of the searcher."""

_DEFAULT_MAX_T = 100
_IGNORED = ("description", "project", "entity")
_OF_FAILURES = ("retry_on", "out_of_memory", "nan", "max_node_losses")


def _refuse(why: str, value: Any) -> Any:
    raise ConfigError(why)


def _program(directory: Path, value: Any) -> dict[str, Any]:
    target = split_target(value) if isinstance(value, str) else None
    if target is None:
        raise ConfigError(f"{value!r} is a plain program, which is not supported yet; expected FILE.py:FUNCTION.")
    if not (directory / target[0]).is_file():
        raise ConfigError(f"there is no file {target[0]} beside the spec.")
    return {"target": f"{(directory / target[0]).resolve()}:{target[1]}"}


def _method(value: Any) -> dict[str, Any]:
    if str(value).lower() not in METHODS:
        raise ConfigError(f"unknown method {value!r}. {nearest(str(value).lower(), METHODS)}")
    return {"search_alg": METHODS[str(value).lower()]}


def _early_terminate(given: Mapping[str, Any]) -> dict[str, Any]:
    """W&B's hyperband stops at min_iter * eta**k, or at max_iter / eta**k for k up to s: rungs of ASHA."""
    known = ("type", "min_iter", "max_iter", "s", "eta", "strict")
    for key in given:
        checks.one_of("a key", key, known)
    checks.one_of("type", given.get("type"), ("asha", "hyperband"))
    eta, least, most, steps = given.get("eta") or 3, given.get("min_iter"), given.get("max_iter"), given.get("s")
    grace = least if least is not None else 1 if most is None or steps is None else max(1, most / eta**steps)
    options = {
        "grace_period": grace,
        "max_t": most or max(_DEFAULT_MAX_T, grace),
        "reduction_factor": eta,
        # W&B's bounds say when to look at a run, not when to end a good one
        "stop_last_trials": most is not None,
    }
    create_scheduler("asha", **options)
    return {"scheduler": "asha", "scheduler_options": options}


def _option(name: str, value: Any) -> dict[str, Any]:
    """Return a parameter of `run`, or of its `failure_config`, which checks it."""
    if name == "resources_per_trial":
        parse_resources(value)
    elif name in _OF_FAILURES:
        FailureConfig(**{name: value})
    else:
        RunSpec(mode="min", **{name: value})
    return {name: value}


def _span(name: str, value: Any) -> dict[str, Any]:
    return {name: parse_seconds(str(value))}


def _keys(directory: Path) -> dict[str, Any]:
    """Return what a key of a spec file means: the arguments that it stands for, or the keys below it."""
    return {
        "program": partial(_program, directory),
        "method": _method,
        "name": partial(_option, "name"),
        **dict.fromkeys(_IGNORED, lambda value: {}),
        "metric": {
            "name": partial(_option, "metric"),
            "goal": lambda value: {"mode": checks.one_of("", value, ("minimize", "maximize"))[:3]},
            "target": lambda value: {"goal_value": checks.number("", value, is_finite=False)},
        },
        "parameters": lambda value: {"parameters": value},
        "early_terminate": _early_terminate,
        "run_cap": partial(_option, "num_samples"),
        "resources_per_trial": partial(_option, "resources_per_trial"),
        "concurrency": partial(_option, "max_concurrent_trials"),
        "seed": partial(_option, "seed"),
        "budget": {
            "time": partial(_span, "time_budget_s"),
            "trial_time": partial(_span, "trial_timeout_s"),
            "report_time": partial(_span, "report_timeout_s"),
        },
        "failures": {
            "retries": partial(_option, "max_failures"),
            **{name: partial(_option, name) for name in _OF_FAILURES},
        },
        "start_with": lambda value: {"searcher_options": {"points_to_evaluate": value}} if value else {},
        "command": partial(_refuse, "plain programs are not supported; let `program` name a function: train.py:train"),
        "report": partial(_refuse, "a program's output is not read; call sweep.report in a function"),
    }


def read_spec(path: Path) -> RunArguments:
    """Return what a spec file asks for."""
    data, lines = load_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1:1: expected keys such as program, method and parameters, found {data!r:.50}.")
    found: dict[str, Any] = {}
    mistakes = [*_read(data, _keys(path.absolute().parent), (), found)]
    parameters, metric = found.get("parameters") or {}, data.get("metric")
    if isinstance(parameters, dict):
        mistakes += space_of(parameters, ("parameters",), is_grid=found.get("search_alg") == "grid")[1]
    else:
        mistakes.append((("parameters",), "expected keys with values."))
    if "program" not in data:
        mistakes.append(((), "'program' is missing."))
    if isinstance(metric, dict) and "name" not in metric:
        mistakes.append((("metric",), "'name' is missing."))
    if "early_terminate" in data and metric is None:
        why = "it compares trials by a metric; also give metric: {name: ..., goal: ...}."
        mistakes.append((("early_terminate",), why))
    if mistakes:
        raise ConfigError(_report(path, mistakes, lines))
    failures = {name: found.pop(name) for name in _OF_FAILURES if name in found}
    if failures:
        found["failure_config"] = FailureConfig(**failures)
    given = {"search_alg": "random", **({"mode": "min"} if metric else {}), **found}
    own = {item.name: given.pop(item.name) for item in fields(RunArguments) if item.name in given}
    return RunArguments(**own, given=given)


def _read(given: Mapping[Any, Any], keys: Mapping[str, Any], where: tuple[Any, ...], found: Any) -> Iterator[Mistake]:
    """Put what keys mean into `found`; yield what is wrong with each by itself."""
    for key, value in given.items():
        here, meaning = (*where, key), keys.get(key)
        try:
            if meaning is None:
                raise ConfigError(f"unknown key {key!r}. {nearest(str(key), keys)}")
            if value is None:
                continue
            if callable(meaning):
                found |= meaning(value)
            elif isinstance(value, dict):
                yield from _read(value, meaning, here, found)
            else:
                raise ConfigError(f"found {value!r:.50}; expected keys with values.")
        except (SweepError, TypeError, ArithmeticError) as error:
            yield here, str(error)


def _report(path: Path, mistakes: list[Mistake], lines: Mapping[tuple[str, ...], int]) -> str:
    found = []
    for where, message in mistakes:
        names = tuple(map(str, where))
        known = next(names[:depth] for depth in range(len(names), -1, -1) if names[:depth] in lines)
        found.append((lines[known], f"{'.'.join(names)}: {message}" if names else message))
    if len(found) == 1:
        return f"{path}:{found[0][0]}: {found[0][1]}"
    return "\n".join(
        [f"{path} has {len(found)} mistakes:", *(f"  line {line}: {message}" for line, message in sorted(found))]
    )
