"""Odd experiments by name, each a record written by hand: what every figure has to cope with."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_experiment import MadeExperiment

HOSTILE = '<script>alert("1")</script> & $x^2$ %{y} \n\t\x1b "quoted" \'once\' ' + "long" * 200


def run(made: MadeExperiment, config: dict[str, Any], values: list[Any], *, key: str = "loss", **end: Any) -> str:
    """Play a trial that reports some values, one a second, and ends; `end` as `MadeExperiment.end` takes it."""
    at = float(made.num_trials)
    trial_id = made.trial(config, at=at)
    made.event("Tick", at=at, commands=[["Start", trial_id, 1, [["local", []]]]])
    made.start(trial_id, at=at + 0.25)
    for step, value in enumerate(values, start=1):
        made.report(trial_id, {key: value}, at=at + step)
    ended = {"at": at + len(values) + 0.5} | end
    made.end(trial_id, **ended)
    made.event("Released", trial_id, at=ended["at"] + 0.25)
    return trial_id


def plain(made: MadeExperiment) -> None:
    for number in range(8):
        run(made, {"lr": 10.0**-number, "width": 16 * number, "same": 3}, [1.0 / (number + 1), 0.5 / (number + 1)])


def stopped(made: MadeExperiment) -> None:
    for number in range(9):
        steps = (1, 3, 9)[number % 3]
        reason = "" if steps == 9 else f"stopped early: loss=1 at {steps}, cutoff 0.5"
        kind = "FINISHED" if steps == 9 else "STOPPED"
        run(made, {"lr": number}, [number + 1 / step for step in range(1, steps + 1)], kind=kind, reason=reason)


def no_trials(made: MadeExperiment) -> None:
    pass


def no_reports(made: MadeExperiment) -> None:
    made.trial({"lr": 0.1}, reason="waits for cpu=4; 2 of 2 held")
    made.start(made.trial({"lr": 0.2}))


def all_failed(made: MadeExperiment) -> None:
    for number in range(5):
        run(made, {"lr": number}, [], kind="FAILED", reason=f"ValueError: {HOSTILE}", error=HOSTILE)


def one_trial(made: MadeExperiment) -> None:
    run(made, {"lr": 0.1}, [1.0])


def one_config(made: MadeExperiment) -> None:
    for _ in range(5):
        run(made, {"lr": 0.1}, [1.0])


def diverged(made: MadeExperiment) -> None:
    for number in range(5):
        run(made, {"lr": number}, [1.0, math.nan])


def no_config(made: MadeExperiment) -> None:
    for number in range(5):
        run(made, {}, [float(number)])


def no_numbers(made: MadeExperiment) -> None:
    for value in (math.nan, math.inf, -math.inf, "text", None, [1], {"a": {}}):
        run(made, {"lr": 0.1}, [value])


def some_numbers(made: MadeExperiment) -> None:
    for value in (math.nan, 1.0, math.inf, True, -math.inf, 1e308, -1e308, 5e-324, "1", 2**70, 0):
        run(made, {"lr": value, "n": made.num_trials}, [value, value])


def odd_configs(made: MadeExperiment) -> None:
    values = [None, True, 1, 1.0, "1", math.nan, math.inf, [1, 2], (1, 2), {"deep": {"er": 1}}, {}, 10**400]
    for number, value in enumerate([*values, HOSTILE, len, -0.0]):
        run(made, {"odd": value, "lr": 0.1 * number}, [float(number)])


def conditional(made: MadeExperiment) -> None:
    for number in range(12):
        branch = {"kind": "adam", "beta": number / 12} if number % 2 else {"kind": "sgd", "momentum": 10.0**-number}
        run(made, {"opt": branch, "lr": 10.0 ** -(number % 5)}, [float(number)])


def hostile(made: MadeExperiment) -> None:
    for number in range(5):
        config = {HOSTILE: number, "text": f"\ud800\0{HOSTILE}{number}", "lr": number}
        run(made, config, [float(number)], reason=f"stopped early: {HOSTILE} at 1, cutoff 2", kind="STOPPED")


def hostile_metric(made: MadeExperiment) -> None:
    for number in range(5):
        run(made, {"lr": number}, [float(number)], key=str(made.meta["metric"]))


def nested(made: MadeExperiment) -> None:
    for number in range(6):
        run(made, {"a": {"b": number}}, [{"acc": number / 6}, {"acc": number / 5}], key="eval")


def two_objectives(made: MadeExperiment) -> None:
    for number in range(6):
        trial_id = made.trial({"lr": number})
        made.start(trial_id)
        made.report(trial_id, {"error": 1 / (number + 1), "size": float(number)})
        made.end(trial_id)


def many_categories(made: MadeExperiment) -> None:
    for number in range(40):
        run(made, {"name": f"n{number}", "lr": number}, [float(number)])


def going_on(made: MadeExperiment) -> None:
    run(made, {"lr": 1.0}, [3.0, 2.0])
    for number, status in enumerate(("PENDING", "RUNNING", "PAUSED", "STARTING", "STOPPING")):
        trial_id = made.trial({"lr": 1.0 + number}, at=1.0, reason="waits")
        made.event("Tick", at=2.0, commands=[["Start", trial_id, 1, [["local", [["gpu-1", 0.5]]]]]])
        made.start(trial_id, at=2.5)
        made.report(trial_id, {"loss": 1.0 + number}, at=3.0)
        made.set(trial_id, status=status)


Build = Callable[[MadeExperiment], None]
PLAIN: tuple[Build, ...] = (
    *(plain, stopped, no_trials, no_reports, all_failed, one_trial, one_config, no_config, diverged, no_numbers),
    *(some_numbers, odd_configs, many_categories, going_on),
)
WORLDS: dict[str, tuple[Build, dict[str, Any]]] = {
    **{build.__name__: (build, {}) for build in PLAIN},
    "no_metric": (plain, {"metric": None, "mode": None}),
    "unknown_metric": (plain, {"metric": "los"}),
    "conditional": (conditional, {"mode": "max"}),
    "hostile": (hostile, {"space": {"lr": HOSTILE[:50], "text": 3}}),
    "hostile_metric": (hostile_metric, {"metric": 'lo"ss <b>$\\'}),
    "nested": (nested, {"metric": "eval/acc", "mode": "max"}),
    "two_objectives": (two_objectives, {"metric": "error", "metrics": ["error", "size"], "modes": ["min", "max"]}),
    "population": (plain, {"scheduler": "pbt"}),
}


def make(root: Path, name: str) -> Path:
    """Write a world's record below `root`; returns the directory."""
    build, meta = WORLDS[name]
    made = MadeExperiment(root, name, **meta)
    build(made)
    return made.close()
