"""Read spec files: a superset of W&B's sweep YAML; all mistakes of a file are listed at once, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

import searchers as space
from searchers.errors import SearchError, nearest
from sweep.cli.arguments import RunArguments, parse_seconds, split_target
from sweep.cli.spec_parameters import Model, Number, Parameter, domain_of
from sweep.cli.yaml_text import KeyPath, load_yaml
from sweep.core.failures import CLASSES
from sweep.core.resources import parse_resources
from sweep.errors import ConfigError

METHODS: Mapping[str, str] = {**{name: name for name in space.SEARCHERS}, "bayes": "gp", "sobol": "qmc"}
"""`method:` of a spec file -> name of the searcher."""

_NOT_BUILT = {
    "command": "command lines of plain programs are not supported; let `program` name a function: train.py:train",
    "report": "reading metrics from a program's output is not supported; call sweep.report in a function",
}
_DEFAULT_MAX_T = 100


class _Metric(Model):
    name: str
    goal: Literal["minimize", "maximize"] = "minimize"
    target: Number | None = None


class _EarlyTerminate(Model):
    type: Literal["asha", "hyperband"]
    min_iter: Number | None = Field(None, gt=0)
    max_iter: Number | None = Field(None, gt=0)
    s: int | None = Field(None, ge=1)
    eta: Number | None = Field(None, gt=1)
    strict: bool = False


class _Budget(Model):
    time: str | Number | None = None
    trial_time: str | Number | None = None
    report_time: str | Number | None = None


class _Failures(Model):
    retries: Annotated[int, Field(ge=-1)] = 0
    retry_on: list[Literal[tuple(CLASSES)]] | None = None  # type: ignore[valid-type]
    out_of_memory: Literal["retry", "retry_alone", "fail"] | None = None
    nan: Literal["record", "error"] | None = None
    max_node_losses: Annotated[int, Field(ge=-1)] | None = None


class _Spec(Model):
    program: str
    method: str = "random"
    name: str | None = None
    description: str | None = None
    project: str | None = None
    entity: str | None = None
    metric: _Metric | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    early_terminate: _EarlyTerminate | None = None
    run_cap: int | None = Field(None, ge=1)
    resources_per_trial: dict[str, Any] | None = None
    concurrency: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0)
    budget: _Budget = Field(default_factory=_Budget)
    failures: _Failures = Field(default_factory=_Failures)
    start_with: list[dict[str, Any]] | None = None


def read_spec(path: Path) -> RunArguments:
    """Return what a spec file asks for.

    Raises:
        ConfigError: the file cannot be read, is not valid YAML, or has mistakes: all of them, by line.
    """
    data, lines, mistakes = load_yaml(path)
    spec: _Spec | None = None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1:1: expected keys such as program, method and parameters, found {_kind(data)}.")
    for key, why in _NOT_BUILT.items():
        if key in data:
            mistakes.append(((key,), why))
            del data[key]
    try:
        spec = _Spec.model_validate(data)
    except ValidationError as error:
        mistakes += _mistakes(error, _Spec, ())
    parameters = data.get("parameters")
    method = data.get("method", "random")
    is_grid = isinstance(method, str) and method.lower() == "grid"
    if isinstance(parameters, dict):
        mistakes += _check_parameters(parameters, ("parameters",), is_grid)
    mistakes += _check_values(data, path)
    if mistakes or spec is None:
        raise ConfigError(_report(path, mistakes, lines))
    return _arguments(spec, path)


def _arguments(spec: _Spec, path: Path) -> RunArguments:
    file, name = split_target(spec.program) or ("", "")
    arguments = RunArguments(
        target=f"{(path.absolute().parent / file).resolve()}:{name}",
        parameters=spec.parameters,
        trials=spec.run_cap,
        concurrency=spec.concurrency,
        resources=spec.resources_per_trial,
        searcher=METHODS[spec.method.lower()],
        seed=spec.seed,
        name=spec.name,
        retries=spec.failures.retries,
        time_s=_seconds(spec.budget.time),
        trial_time_s=_seconds(spec.budget.trial_time),
        report_time_s=_seconds(spec.budget.report_time),
        failures=spec.failures.model_dump(exclude={"retries"}, exclude_none=True),
    )
    if spec.metric is not None:
        arguments.metric, arguments.goal, arguments.goal_value = spec.metric.name, spec.metric.goal, spec.metric.target
    if spec.early_terminate is not None:
        arguments.scheduler, arguments.scheduler_options = "asha", _asha(spec.early_terminate)
    if spec.start_with:
        arguments.searcher_options = {"points_to_evaluate": spec.start_with}
    return arguments


def _asha(early: _EarlyTerminate) -> dict[str, Any]:
    """W&B's hyperband stops at min_iter * eta**k, or at max_iter / eta**k for k up to s: rungs of ASHA."""
    eta = early.eta or 3
    if early.min_iter is not None:
        grace = early.min_iter
    elif early.max_iter is not None and early.s is not None:
        grace = max(1, early.max_iter / eta**early.s)
    else:
        grace = 1
    return {
        "grace_period": grace,
        "max_t": early.max_iter or max(_DEFAULT_MAX_T, grace),
        "reduction_factor": eta,
        # W&B's bounds say when to look at a run, not when to end a good one
        "stop_last_trials": early.max_iter is not None,
    }


def _seconds(value: str | float | None) -> float | None:
    return None if value is None else parse_seconds(str(value))


def _check_parameters(parameters: Mapping[Any, Any], where: KeyPath, is_grid: bool) -> list[tuple[KeyPath, str]]:
    mistakes: list[tuple[KeyPath, str]] = []
    for name, given in parameters.items():
        here = (*where, name)
        if not isinstance(name, str):
            mistakes.append((here, f"a parameter is named {name!r}; expected a text."))
            continue
        if not isinstance(given, dict):
            mistakes.append((here, f"expected value, values, or min and max, found {_kind(given)}."))
            continue
        try:
            parameter = Parameter.model_validate(given)
        except ValidationError as error:
            mistakes += _mistakes(error, Parameter, here)
            continue
        if parameter.parameters is not None:
            others = parameter.model_fields_set - {"parameters"}
            if others:
                mistakes.append((here, f"nested parameters take no {' and '.join(sorted(others))}."))
            mistakes += _check_parameters(parameter.parameters, (*here, "parameters"), is_grid)
            continue
        try:
            domain_of(parameter, is_grid)
        except (ConfigError, SearchError, OverflowError) as error:
            mistakes.append((here, str(error)))
    return mistakes


def _check_values(data: Mapping[str, Any], path: Path) -> list[tuple[KeyPath, str]]:
    """Check what types alone do not say."""
    mistakes: list[tuple[KeyPath, str]] = []
    program, method = data.get("program"), data.get("method", "random")
    if isinstance(program, str):
        target = split_target(program)
        if target is None:
            what = f"{program!r} is a plain program, which is not supported yet; expected FILE.py:FUNCTION."
            mistakes.append((("program",), what))
        elif not (path.absolute().parent / target[0]).is_file():
            mistakes.append((("program",), f"there is no file {target[0]} beside {path.name}."))
    if isinstance(method, str) and method.lower() not in METHODS:
        mistakes.append((("method",), f"unknown method {method!r}. {nearest(method.lower(), METHODS)}"))
    budget = data.get("budget")
    checks: list[tuple[KeyPath, Any, Callable[[Any], object]]] = [
        (("budget", key), str(value), parse_seconds)
        for key, value in (budget.items() if isinstance(budget, dict) else ())
        if key in _Budget.model_fields and isinstance(value, (str, int, float)) and not isinstance(value, bool)
    ]
    if isinstance(request := data.get("resources_per_trial"), dict):
        checks.append((("resources_per_trial",), request, parse_resources))
    for where, value, check in checks:
        try:
            check(value)
        except ValueError as error:
            mistakes.append((where, str(error)))
    if "early_terminate" in data and "metric" not in data:
        what = "it compares trials by a metric; also give metric: {name: ..., goal: ...}."
        mistakes.append((("early_terminate",), what))
    return mistakes


# --- lines and messages ---


def _mistakes(error: ValidationError, model: type[BaseModel], where: KeyPath) -> list[tuple[KeyPath, str]]:
    found: dict[KeyPath, str] = {}
    for item in error.errors():
        location = tuple(item["loc"])
        owner, depth = _owner(model, location)
        here = (*where, *location[:depth])
        match item["type"]:
            case "extra_forbidden":
                message = f"unknown key {location[-1]!r}. {nearest(str(location[-1]), owner.model_fields)}"
            case "missing":
                message = f"{location[-1]!r} is missing."
                here = here[:-1]
            case "literal_error":
                message = f"found {item['input']!r}; expected {item['ctx']['expected']}."
            case _:
                message = f"found {_kind(item['input'])}; {_expected(item)}."
        found.setdefault(here if item["type"] != "missing" else (*here, f"?{location[-1]}"), message)
    return list(found.items())


def _owner(model: type[BaseModel], location: KeyPath) -> tuple[type[BaseModel], int]:
    """Return the model in which the last key of a location lies, and how much of it is keys (not union branches)."""
    inner: Mapping[Any, type[BaseModel]] = {
        "metric": _Metric,
        "early_terminate": _EarlyTerminate,
        "budget": _Budget,
        "failures": _Failures,
    }
    if model is _Spec and len(location) > 1 and location[0] in inner:
        return inner[location[0]], 2
    return model, len(location) if model is _Spec and location[0] == "start_with" else 1


_EXPECTED = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "dict": "keys with values",
    "model": "keys with values",
    "list": "a list",
    "bool": "true or false",
    "too": "at least one value",
}


def _expected(item: Any) -> str:
    known = _EXPECTED.get(str(item["type"]).partition("_")[0])
    message = str(item["msg"])
    found = message[:1].lower() + message[1:].replace("Input should be", "expected").rstrip(".")
    return found if known is None else f"expected {known}"


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
        shown = ".".join(str(part) for part in where if part != "" and not str(part).startswith("?"))
        return f"{shown}: " if shown else ""

    found = sorted({(line_of(where), f"{name_of(where)}{message}") for where, message in mistakes})
    if len(found) == 1:
        return f"{path}:{found[0][0]}: {found[0][1]}"
    head = f"{path} has {len(found)} mistakes:"
    return "\n".join([head, *(f"  line {line}: {message}" for line, message in found)])
