"""The arguments of a sweep that a command line or a spec file gives, for `sweep.run`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchers import create_searcher
from searchers.errors import nearest
from sweep.cli.ranges import parse_parameter, put
from sweep.cli.wandb_space import space_of
from sweep.core.values import as_float
from sweep.errors import ConfigError, TrainableError
from sweep.record.importing import DriverCalled, ended_at, load_file, why_missing
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


def split_target(text: str) -> tuple[str, str] | None:
    """Return (file, name) of `file.py:name`, or None if `text` is no such thing."""
    file, colon, name = text.rpartition(":")
    return (file, name) if colon and file.endswith(".py") and name else None


def import_trainable(target: str, notice: Callable[[str], None] | None = None) -> Any:
    """Import `file.py:name` and return what `name` is there; the file's directory comes first on `sys.path`.

    The file is imported as the module of its name, as `python file.py` would see its neighbours. Code under
    `if __name__ == "__main__":` does not run, and where it starts a sweep of its own, it ends: `notice` is told."""
    parts = split_target(target)
    if parts is None:
        raise ConfigError(f"{target!r} is no trainable; expected FILE.py:FUNCTION, such as train.py:train.")
    path, name = Path(parts[0]).expanduser().absolute(), parts[1]
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}. {nearest(path.name, [one.name for one in path.parent.glob('*.py')])}"
        )
    refuse_shadows(path.parent)
    module = _import(path)
    call = ended_at(module.__name__)
    if call is not None and notice is not None:
        notice(f"{call}. Here that is not run, nor what stands below it.")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [key for key, item in vars(value).items() if callable(item) and not key.startswith("_")]
            why = f"{call}, where an import by sweep ends. Define {name!r} above." if call else nearest(part, known)
            raise ConfigError(f"{path.name} has no {name!r}. {why}")
        value = getattr(value, part)
    if not callable(value) and not hasattr(value, "__sweep_trainable__"):
        found = type(value).__name__
        raise ConfigError(f"{name!r} in {path.name} is a {found}; expected a function, a class or a trainer.")
    return value


def refuse_shadows(directory: Path) -> None:
    """Say when a file beside the script hides this package: the script and all trials would import that one."""
    import sweep

    own = Path(sweep.__file__).parent
    for package in ("sweep", "searchers"):
        for shadow in (directory / f"{package}.py", directory / package / "__init__.py"):
            if shadow.is_file() and shadow.parent.resolve() not in (own.resolve(), own.parent.resolve() / "searchers"):
                raise ConfigError(
                    f"{shadow} hides the package {package!r}: "
                    f"`import {package}` in your script would find that file. Rename it."
                )


def _import(path: Path) -> Any:
    directory, name, loaded = str(path.parent), path.stem, sys.modules.get(path.stem)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "") == path:
        return loaded
    if loaded is not None or name in sys.builtin_module_names or not name.isidentifier():
        # It is no name of a module, or that of another: loaded beside it, and shipped to trials by value.
        name = f"sweep_script_{re.sub(r'[^A-Za-z0-9]', '_', name)}"
    argv, sys.argv = sys.argv, [str(path)]  # a script that parses its arguments finds none of ours
    try:
        return load_file(name, path)
    except (Exception, SystemExit, DriverCalled) as error:  # whatever the user's file raises while it is imported
        why = why_missing(error)
        said = f"{type(error).__name__}: {error}" if not isinstance(error, DriverCalled) else str(error)
        raise TrainableError(f"importing {path} failed: {said}{'. ' if why else ''}{why}") from error
    finally:
        sys.argv = argv


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
