"""Read spec files: a superset of W&B's sweep YAML; all mistakes of a file are listed at once, each with its line."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import searchers as space
from searchers.errors import closest, nearest
from sweep import checks
from sweep.cli.arguments import RunArguments, parse_seconds
from sweep.cli.running.cluster import cluster_of
from sweep.cli.wandb_space import ALIKE, Mistake, space_of
from sweep.cli.yaml_text import load_yaml
from sweep.core.config import FailureConfig
from sweep.core.literals import parse_literal
from sweep.core.resources import parse_resources
from sweep.errors import ConfigError, SweepError
from sweep.launch.spec import RunSpec
from sweep.launch.target import split_target
from sweep.schedulers import create_scheduler

_OTHER_METHODS = {"bayes": "gp", "sobol": "qmc", "custom": "tpe"}  # W&B's custom method is a script of the user's
METHODS: Mapping[str, str] = {**{name: name for name in space.SEARCHERS}, **_OTHER_METHODS}
"""`method:` of a spec file -> name of the searcher."""

_DEFAULT_MAX_T = 100
_OF_FAILURES = ("retry_on", "out_of_memory", "nan", "max_node_losses")
_OF_PROGRAMS = "command config_file isolate fresh workers resume setup ready teardown pattern".split()
_OURS = (("budget",), ("failures",), ("report",))  # whose keys are no one else's
_WORDS = "a list of words: there is no shell"
_TAKES_ARGUMENTS = re.compile(r"\$\{args\w*\}|(?<!\$)\{\w[\w.-]*\}")


def _command(value: Any) -> dict[str, Any]:
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        checks.refuse("", value, "a list of words")
    return {"command": [str(word) for word in words if word is not None]}


def _typed(kinds: Any, expected: str, name: str, value: Any) -> dict[str, Any]:
    return {name: value} if isinstance(value, kinds) else checks.refuse("", value, expected)


def _report(value: Any) -> dict[str, Any]:
    try:
        return {"pattern": re.compile(value).pattern}
    except re.error as error:
        raise ConfigError(f"{value!r} is no regular expression: {error}.") from error


def _file(directory: Path, name: str, what: str = "file", *, is_needed: bool = True) -> str:
    """Return the path of a file that stands beside the spec, or else below the working directory."""
    places = [directory, *([Path.cwd()] if directory.resolve() != Path.cwd() else [])]
    for place in places:
        if os.path.isfile(path := place / os.path.expanduser(name)):
            path = path.resolve()
            return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    if not is_needed:
        return name
    near = closest(name, [path.name for place in places for path in place.glob(f"*{Path(name).suffix}")])
    where = f"beside the spec{' or in the working directory' if len(places) > 1 else ''}"
    raise ConfigError(f"there is no {what} {name} {where}.{f' Did you mean {near!r}?' if near else ''}")


def _swept(found: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Take out what is swept, and return it as arguments of `RunArguments`: a function, or a program.

    A command takes arguments where it has one of W&B's macros or a name in braces; without both it is closed, and the
    program reads its values elsewhere. Without a command the program is given all.
    """
    options = {name: found.pop(name) for name in _OF_PROGRAMS if name in found}
    program, command = found.pop("program", None), options.get("command", ["${program}"])
    target = split_target(program or "")
    if target is not None:
        if options:
            raise ConfigError(f"{program} is a function, and {', '.join(options)} of a program; expected one of both.")
        return {"target": f"{Path(_file(directory, target[0])).absolute()}:{target[1]}"}
    if "${program}" in command:
        if program is None:
            raise ConfigError("'program' is missing; give program: FILE.py, or FILE.py:FUNCTION.")
        is_file = "command" not in options or program.endswith(".py")  # else maybe a module, or a program on PATH
        program = _file(directory, program, "program", is_needed=is_file)
    if "command" in options and not any(map(_TAKES_ARGUMENTS.search, command)):
        options["closed"] = True
    meant = {"${env}": [], "${interpreter}": [sys.executable], "${program}": [program]}
    words = [part for word in command for part in meant.get(word, [word])]
    return {"target": "", "program": {**options, "command": words}}


def _method(value: Any) -> dict[str, Any]:
    if str(value).lower() not in METHODS:
        raise ConfigError(f"unknown method {value!r}. {nearest(str(value).lower(), METHODS)}")
    return {"search_alg": METHODS[str(value).lower()]}


def _number(value: Any) -> Any:
    return parse_literal(value) if isinstance(value, str) else value


def _early_terminate(given: Any) -> dict[str, Any]:
    """W&B's hyperband stops at min_iter * eta**k, or at max_iter / eta**k for k up to s: rungs of ASHA."""
    if not isinstance(given, dict):
        checks.refuse("", given, "keys with values: {type: hyperband, min_iter: 3}")
    for key in given:
        checks.one_of("a key", key, ("type", "min_iter", "max_iter", "s", "eta", "strict"))
    checks.one_of("type", given.get("type"), ("asha", "hyperband"))
    eta, least, most, steps = (_number(given.get(name)) for name in ("eta", "min_iter", "max_iter", "s"))
    eta = eta or 3
    grace = least if least is not None else 1 if most is None or steps is None else max(1, most / math.pow(eta, steps))
    options = {
        "grace_period": grace,
        "max_t": most or max(_DEFAULT_MAX_T, grace),
        "reduction_factor": eta,
        # W&B's bounds say when to look at a run, not when to end a good one
        "stop_last_trials": most is not None,
    }
    create_scheduler("asha", **options)
    return {"scheduler": "asha", "scheduler_options": options}


def _goal(value: Any) -> str:
    known = {"minimize": "min", "maximize": "max", "min": "min", "max": "max"}
    return known.get(str(value).lower()) or checks.one_of("", value, ("minimize", "maximize"))


def _name(value: Any) -> dict[str, Any]:
    """W&B's name of a sweep is a title: what no directory can be called is left out."""
    return _option("name", re.sub(r"[^\w .,:;=+@()-]+", "_", str(value)).strip().lstrip(" .,:;=+@-") or "sweep")


def _option(name: str, value: Any) -> dict[str, Any]:
    """Return a parameter of `run`, or of its `failure_config`, which checks it."""
    if name == "resources_per_trial":
        parse_resources(value)
    elif name in _OF_FAILURES:
        FailureConfig(**{name: value})
    else:
        RunSpec(mode="min", **{name: value})
    return {name: value}


def _start_with(value: Any) -> dict[str, Any]:
    space.BasicVariantGenerator(points_to_evaluate=value)  # its checks
    return {"searcher_options": {"points_to_evaluate": value}} if value else {}


def _span(name: str, value: Any) -> dict[str, Any]:
    return {name: parse_seconds(str(value))}


def _keys(directory: Path) -> dict[str, Any]:
    """Return what a key of a spec file means: the arguments that it stands for, or the keys below it."""
    return {
        "program": lambda value: {"program": str(value)},
        "command": _command,
        "method": _method,
        "name": _name,
        **dict.fromkeys(("description", "project", "entity"), lambda value: {}),
        "metric": {
            "name": partial(_option, "metric"),
            "goal": lambda value: {"mode": _goal(value)},
            "target": lambda value: {"goal_value": checks.number("", _number(value), is_finite=False)},
        },
        "parameters": lambda value: {"parameters": value},
        "early_terminate": _early_terminate,
        "run_cap": lambda value: {"run_cap": _option("num_samples", _number(value))["num_samples"]},
        "resources_per_trial": partial(_option, "resources_per_trial"),
        "concurrency": partial(_option, "max_concurrent_trials"),
        "seed": partial(_option, "seed"),
        "cluster": cluster_of,
        "budget": {
            "time": partial(_span, "time_budget_s"),
            "trial_time": partial(_span, "trial_timeout_s"),
            "report_time": partial(_span, "report_timeout_s"),
        },
        "failures": {
            "retries": partial(_option, "max_failures"),
            **{name: partial(_option, name) for name in _OF_FAILURES},
        },
        "start_with": _start_with,
        "workers": lambda value: {"workers": checks.whole("", value, least=1)},
        **{name: partial(_typed, bool, "true or false", name) for name in ("isolate", "fresh")},
        "config_file": lambda value: {"config_file": _file(directory, str(value))},
        **{name: partial(_typed, list, _WORDS, name) for name in ("resume", "setup", "teardown")},
        "ready": partial(_typed, (str, list), f"a URL, or {_WORDS}", "ready"),
        "report": {"pattern": _report, "stdout": _report},
    }


def read_spec(path: Path) -> RunArguments:
    """Return what a spec file asks for."""
    data, lines = load_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1:1: expected keys such as program, method and parameters, found {data!r:.50}.")
    found: dict[str, Any] = {}
    ignored: list[tuple[Any, ...]] = []
    if str(data.get("method")).lower() == "custom":
        ignored.append(("method: custom",))
    mistakes = [*_read(data, _keys(path.absolute().parent), (), found, ignored)]
    parameters, metric = found.get("parameters", {}), data.get("metric")
    if isinstance(parameters, dict):
        is_grid = found.get("search_alg") == "grid"
        mistakes += space_of(parameters, ("parameters",), is_grid=is_grid, ignored=ignored)[1]
    else:
        mistakes.append((("parameters",), "expected keys with values."))
    try:
        swept = _swept(found, path.absolute().parent)
    except ConfigError as error:
        mistakes.append((("program",) if "program" in data else (), str(error)))
    if isinstance(metric, dict) and "name" not in metric:
        mistakes.append((("metric",), "'name' is missing."))
    if "early_terminate" in data and metric is None:
        why = "it compares trials by a metric; also give metric: {name: ..., goal: ...}."
        mistakes.append((("early_terminate",), why))
    if mistakes:
        raise ConfigError(_listed(path, mistakes, lines))
    failures = {name: found.pop(name) for name in _OF_FAILURES if name in found}
    if failures:
        found["failure_config"] = FailureConfig(**failures)
    given = {"search_alg": "random", **({"mode": "min"} if metric else {}), **found}
    own = {item.name: given.pop(item.name) for item in fields(RunArguments) if item.name in given}
    unused = ", ".join(".".join(map(str, one)) for one in ignored)
    return RunArguments(
        **swept, **own, given=given, notes=[f"{path}: without effect here: {unused}."] if unused else []
    )


def _read(
    given: Mapping[Any, Any],
    keys: Mapping[str, Any],
    where: tuple[Any, ...],
    found: dict[str, Any],
    ignored: list[tuple[Any, ...]],
) -> Iterator[Mistake]:
    """Put what keys mean into `found`, and those that mean nothing into `ignored`; yield what is wrong with each.

    A key that nobody knows is W&B's own or of a later version of it, unless it looks like one that is known.
    """
    for key, value in given.items():
        here, meaning = (*where, key), keys.get(key)
        try:
            if meaning is None and (where[:1] in _OURS or closest(str(key), keys, ALIKE)):
                raise ConfigError(f"unknown key {key!r}. {nearest(str(key), keys)}")
            if meaning is None:
                ignored.append(here)
            elif value is None:
                continue
            elif callable(meaning):
                found |= meaning(value)
            elif isinstance(value, dict):
                yield from _read(value, meaning, here, found, ignored)
            else:
                raise ConfigError(f"found {value!r:.50}; expected keys with values.")
        except (SweepError, TypeError, ValueError, ArithmeticError) as error:
            yield here, str(error)


def _listed(path: Path, mistakes: list[Mistake], lines: Mapping[tuple[str, ...], int]) -> str:
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
