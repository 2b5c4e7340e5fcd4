"""The arguments of a sweep that a command line or a spec file gives, for `sweep.run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchers import create_searcher
from sweep.cli.ranges import parse_parameter, put
from sweep.cli.wandb_space import space_of
from sweep.core.values import as_float
from sweep.errors import ConfigError
from sweep.schedulers import create_scheduler

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass
class RunArguments:
    """What was asked for: parameters of `sweep.run`, and what some of them are made from."""

    target: str  # file.py:function, the file as an absolute path
    parameters: dict[str, Any] = field(default_factory=dict)  # of a spec file, in its form
    ranges: Sequence[str] = ()  # of the command line; they win
    given: dict[str, Any] = field(default_factory=dict)  # parameters of `run`
    searcher_options: dict[str, Any] = field(default_factory=dict)
    scheduler_options: dict[str, Any] = field(default_factory=dict)
    goal_value: float | None = None  # a trial that reaches it ends
    program: Mapping[str, Any] | None = None  # arguments of `Program`, in place of a target
    run_cap: int = 0  # of a spec file: trials at most; unlike num_samples, of a grid, too
    cluster: Mapping[str, Any] = field(default_factory=dict)  # of a spec file: arguments of `sweep.init`
    notes: Sequence[str] = ()  # what is to be said of a spec file

    def run_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for `sweep.run`."""
        given, is_grid = self.given, self.given.get("search_alg") == "grid"
        if given.get("metric") is not None and given.get("mode") is None:
            raise ConfigError(f"--metric {given['metric']} needs --goal minimize or --goal maximize.")
        config, mistakes = space_of(self.parameters, is_grid=is_grid)
        for where, what in mistakes:
            raise ConfigError(f"{'.'.join(where)}: {what}")
        for text in self.ranges:
            name, value = parse_parameter(text, is_grid=is_grid)
            has_parent = self.program is None or isinstance(config.get(name.partition(".")[0]), dict)
            if name in self.parameters or not has_parent:  # names of a program's options may have dots
                config[name] = value
            else:
                put(config, name, value)
        made: dict[str, Any] = {}
        options, default = dict(self.searcher_options), self.run_cap or (-1 if "time_budget_s" in given else 10)
        if is_grid:
            default = 1
            if self.run_cap > 0 and "num_samples" not in given:
                options["max_trials"] = self.run_cap
        if options:
            made["search_alg"] = create_searcher(given.get("search_alg", "random"), **options)
        if self.scheduler_options:
            made["scheduler"] = scheduler_of(given.get("scheduler"), self.scheduler_options)
        if self.goal_value is not None:
            made["stop"] = _reaching(given["metric"], given["mode"], self.goal_value)
        path = self.target if self.program is None else self.program["command"][0]
        return {"num_samples": default, **given, **made, "config": config, "import_path": path}


def scheduler_of(name: str | None, options: Mapping[str, Any]) -> Any:
    """Return a scheduler with these options; None where none is named."""
    if options and name in (None, "fifo"):
        raise ConfigError(f"{', '.join(options)}: say of which scheduler, such as --scheduler asha.")
    return None if name is None else create_scheduler(name, **options)


def _reaching(metric: str, mode: str, bound: float) -> Callable[[str, Mapping[str, Any]], bool]:
    """Return what ends a trial whose metric is at the bound or better."""

    def has_reached(trial_id: str, result: Mapping[str, Any]) -> bool:
        value = as_float(result.get(metric))
        return value is not None and (value <= bound if mode == "min" else value >= bound)

    return has_reached


def parse_seconds(text: str) -> float:
    """Return seconds from `90`, `90s`, `30m`, `2h`, `1h30m`, `1d` or `1:30:00`."""
    given = text.strip().lower()
    seconds = 0.0
    if re.fullmatch(r"\d+(:\d{1,2}){1,2}", given):
        for part in given.split(":"):
            seconds = seconds * 60 + int(part)
    elif re.fullmatch(r"\d+(\.\d*)?|(\d+(\.\d*)?[smhd])+", given):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)([smhd]?)", given))
    if seconds <= 0:
        raise ConfigError(f"{text!r} is no span of time; expected seconds or a text such as 90s, 30m, 2h or 1h30m.")
    return seconds


def seconds_of(text: str | None) -> float | str | None:
    """Return the seconds of a span such as `2h`; of `+2h` as a text that begins with a plus."""
    if text is None:
        return None
    seconds = parse_seconds(text.strip().removeprefix("+"))
    return f"+{seconds:g}" if text.strip().startswith("+") else seconds


def parse_count(text: str, before: int) -> int:
    """Return a new total from `200` or, added to `before`, `+50`."""
    match = re.fullmatch(r"(\+?)(\d+)", text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is no number of trials; expected a total such as 200, or +50 more.")
    return before + int(match[2]) if match[1] else int(match[2])
