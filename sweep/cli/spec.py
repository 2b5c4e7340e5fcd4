"""Read spec files: a superset of W&B's sweep YAML; all mistakes of a file are told at once, each with its line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from searchers import SEARCHERS
from searchers.errors import SearchError, nearest
from sweep.cli.order import Order, parse_seconds, split_target
from sweep.cli.yaml_text import KeyPath, load_yaml
from sweep.core.failures import CLASSES
from sweep.core.resources import parse_resources
from sweep.errors import ConfigError

__all__ = ["DISTRIBUTIONS", "METHODS", "read_spec", "space_of"]

METHODS: Mapping[str, str] = {**{name: name for name in SEARCHERS}, "bayes": "gp", "sobol": "qmc"}
"""`method:` of a spec file -> name of the searcher."""

_Number = Annotated[float, Field(strict=True)] | StrictInt
_FIELDS: Mapping[str, frozenset[str]] = {
    "constant": frozenset({"value"}),
    "categorical": frozenset({"values"}),
    "int_uniform": frozenset({"min", "max"}),
    "uniform": frozenset({"min", "max"}),
    "q_uniform": frozenset({"min", "max", "q"}),
    "log_uniform": frozenset({"min", "max"}),
    "log_uniform_values": frozenset({"min", "max"}),
    "q_log_uniform_values": frozenset({"min", "max", "q"}),
    "normal": frozenset({"mu", "sigma"}),
    "q_normal": frozenset({"mu", "sigma", "q"}),
}
DISTRIBUTIONS = tuple(_FIELDS)
_NOT_BUILT = {
    "command": "command lines of plain programs are not supported; let `program` name a function: train.py:train",
    "report": "reading metrics from a program's output is not supported; call sweep.report in a function",
}
_DEFAULT_MAX_T = 100


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Metric(_Model):
    name: str
    goal: Literal["minimize", "maximize"] = "minimize"
    target: _Number | None = None


class _EarlyTerminate(_Model):
    type: Literal["asha", "hyperband"]
    min_iter: _Number | None = Field(None, gt=0)
    max_iter: _Number | None = Field(None, gt=0)
    s: int | None = Field(None, ge=1)
    eta: _Number | None = Field(None, gt=1)
    strict: bool = False


class _Budget(_Model):
    time: str | _Number | None = None
    trial_time: str | _Number | None = None
    report_time: str | _Number | None = None


class _Failures(_Model):
    retries: Annotated[int, Field(ge=-1)] = 0
    retry_on: list[Literal[tuple(CLASSES)]] | None = None  # type: ignore[valid-type]
    out_of_memory: Literal["retry", "retry_alone", "fail"] | None = None
    nan: Literal["record", "error"] | None = None


class _Spec(_Model):
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


class _Parameter(_Model):
    distribution: str | None = None
    value: Any = None
    values: list[Any] | None = Field(None, min_length=1)
    min: _Number | None = None
    max: _Number | None = None
    q: _Number | None = None
    mu: _Number | None = None
    sigma: _Number | None = None
    parameters: dict[str, Any] | None = None


def read_spec(path: Path) -> Order:
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
    return _order(spec, path)


def space_of(parameters: Mapping[str, Any], *, is_grid: bool = False) -> dict[str, Any]:
    """Return the search space that the `parameters` of a spec file describe.

    Args:
        is_grid: cross all listed values and whole-number ranges instead of drawing from them.

    Raises:
        ConfigError, SpaceError: a parameter makes no sense.
    """
    space: dict[str, Any] = {}
    for name, given in parameters.items():
        parameter = _Parameter.model_validate(given if isinstance(given, dict) else {"value": given})
        if parameter.parameters is not None:
            space[str(name)] = space_of(parameter.parameters, is_grid=is_grid)
        else:
            space[str(name)] = _domain(parameter, is_grid)
    return space


def _order(spec: _Spec, path: Path) -> Order:
    file, name = split_target(spec.program) or ("", "")
    order = Order(
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
        order.metric, order.goal, order.goal_value = spec.metric.name, spec.metric.goal, spec.metric.target
    if spec.early_terminate is not None:
        order.scheduler, order.scheduler_options = "asha", _asha(spec.early_terminate)
    if spec.start_with:
        order.searcher_options = {"points_to_evaluate": spec.start_with}
    return order


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


def _domain(parameter: _Parameter, is_grid: bool) -> Any:
    import searchers as space

    kind = _distribution(parameter)
    p, low, high = parameter, parameter.min, parameter.max
    match kind:
        case "constant":
            return p.value
        case "categorical":
            return space.grid_search(p.values or []) if is_grid else space.choice(p.values or [])
    if kind in ("int_uniform", "uniform", "q_uniform", "log_uniform", "log_uniform_values", "q_log_uniform_values"):
        assert low is not None
        assert high is not None
        if low > high:
            raise ConfigError(f"min {low:g} is above max {high:g}.")
        match kind:
            case "int_uniform":
                if not (isinstance(low, int) and isinstance(high, int)):
                    raise ConfigError("int_uniform needs whole numbers as min and max.")
                return space.grid_search(range(low, high + 1)) if is_grid else space.randint(low, high + 1)
            case "log_uniform":
                return space.loguniform(math.exp(low), math.exp(high))
            case "log_uniform_values":
                return space.loguniform(low, high)
            case "q_log_uniform_values":
                return space.qloguniform(low, high, 1 if p.q is None else p.q)
            case "q_uniform":
                return space.quniform(low, high, 1 if p.q is None else p.q)
        if is_grid:
            raise ConfigError("method grid needs values, or whole numbers as min and max; this range has no steps.")
        return space.uniform(low, high)
    mean, deviation = 0 if p.mu is None else p.mu, 1 if p.sigma is None else p.sigma
    return (
        space.qrandn(mean, deviation, 1 if p.q is None else p.q) if kind == "q_normal" else space.randn(mean, deviation)
    )


def _distribution(parameter: _Parameter) -> str:
    """Return the distribution that is named or meant.

    Raises:
        ConfigError: an unknown one, or one whose numbers are missing or too many.
    """
    given = parameter.model_fields_set - {"distribution"}
    kind = parameter.distribution
    if kind is None:
        if "value" in given:
            kind = "constant"
        elif "values" in given:
            kind = "categorical"
        elif {"mu", "sigma"} & given:
            kind = "normal"
        elif given >= {"min", "max"}:
            whole = isinstance(parameter.min, int) and isinstance(parameter.max, int)
            kind = "int_uniform" if whole else "uniform"
        else:
            raise ConfigError("expected value, values, or min and max.")
    if kind not in _FIELDS:
        raise ConfigError(f"unknown distribution {kind!r}. {nearest(kind, DISTRIBUTIONS)}")
    needed = _FIELDS[kind] - {"q", "mu", "sigma"}
    if not needed <= given:
        raise ConfigError(f"{kind} needs {' and '.join(sorted(needed - given))}.")
    if given - _FIELDS[kind]:
        raise ConfigError(f"{kind} takes no {' and '.join(sorted(given - _FIELDS[kind]))}.")
    return kind


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
            parameter = _Parameter.model_validate(given)
        except ValidationError as error:
            mistakes += _mistakes(error, _Parameter, here)
            continue
        if parameter.parameters is not None:
            others = parameter.model_fields_set - {"parameters"}
            if others:
                mistakes.append((here, f"nested parameters take no {' and '.join(sorted(others))}."))
            mistakes += _check_parameters(parameter.parameters, (*here, "parameters"), is_grid)
            continue
        try:
            _domain(parameter, is_grid)
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
            mistakes.append(
                (
                    ("program",),
                    f"{program!r} is a plain program, which is not supported yet; expected FILE.py:FUNCTION.",
                )
            )
        elif not (path.absolute().parent / target[0]).is_file():
            mistakes.append((("program",), f"there is no file {target[0]} beside {path.name}."))
    if isinstance(method, str) and method.lower() not in METHODS:
        mistakes.append((("method",), f"unknown method {method!r}. {nearest(method.lower(), METHODS)}"))
    request = data.get("resources_per_trial")
    if isinstance(request, dict):
        try:
            parse_resources(request)
        except ConfigError as error:
            mistakes.append((("resources_per_trial",), str(error)))
        except ValueError as error:
            mistakes.append((("resources_per_trial",), str(error)))
    budget = data.get("budget")
    for key in ("time", "trial_time", "report_time"):
        value = budget.get(key) if isinstance(budget, dict) else None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                parse_seconds(str(value))
            except ConfigError as error:
                mistakes.append((("budget", key), str(error)))
    if "early_terminate" in data and "metric" not in data:
        mistakes.append(
            (("early_terminate",), "it compares trials by a metric; also give metric: {name: ..., goal: ...}.")
        )
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
    inner: dict[str, type[BaseModel]] = {
        "metric": _Metric,
        "early_terminate": _EarlyTerminate,
        "budget": _Budget,
        "failures": _Failures,
    }
    if model is _Spec and len(location) > 1 and location[0] in inner:
        return inner[str(location[0])], 2
    return model, len(location) if model is _Spec and location[0] == "start_with" else 1


def _expected(item: Any) -> str:
    message = str(item["msg"])
    kind = str(item["type"]).partition("_")[0]
    known = {
        "string": "expected a text",
        "int": "expected a whole number",
        "float": "expected a number",
        "dict": "expected keys with values",
        "model": "expected keys with values",
        "list": "expected a list",
        "bool": "expected true or false",
        "too": "expected at least one value",
    }
    return known.get(kind, message[:1].lower() + message[1:].replace("Input should be", "expected").rstrip("."))


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

    told = sorted({(line_of(where), f"{name_of(where)}{message}") for where, message in mistakes})
    if len(told) == 1:
        return f"{path}:{told[0][0]}: {told[0][1]}"
    head = f"{path} has {len(told)} mistakes:"
    return "\n".join([head, *(f"  line {line}: {message}" for line, message in told)])
