"""Loggers of a service: nobody waits for it, nothing is told out of order, what goes wrong is said."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callbacks.played import FACTS, TRIAL, evolved, ready

from sweep.callbacks import tracking
from sweep.callbacks.dispatch import Dispatcher
from sweep.callbacks.tracking import TrackingCallback, numbers_of
from sweep.core.messages import Hook, Notify
from sweep.core.results import TrialResult
from sweep.core.trial import Trial

OTHER = evolved(id="abcde_00001")


class Told(TrackingCallback):
    """Writes down what a service would be told; waits at `gate` before each call."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.gate = threading.Event()
        self.gate.set()

    def _tell(self, *what: Any) -> None:
        self.gate.wait()
        self.told.append(what)

    def _begin(self, trial: Trial, run: Any | None) -> Any:
        self._tell("begin", trial.number)
        return trial.id

    def _record(self, trial: Trial, run: Any, iteration: int, result: TrialResult) -> None:
        self._tell("record", trial.number, iteration)
        if result.get("bad"):
            raise ConnectionError("no route")

    def _keep(self, trial: Trial, run: Any) -> None:
        self._tell("keep", trial.number)

    def _finish(self, trial: Trial, run: Any, outcome: str) -> None:
        self._tell("finish", trial.number, outcome)


@pytest.fixture
def told(tmp_path: Path) -> Any:
    callback = ready(Told(), tmp_path)
    yield callback
    callback.gate.set()


def result(step: int, **metrics: Any) -> TrialResult:
    return TrialResult({"training_iteration": step, **metrics})


def test_the_calls_of_a_trial_are_made_in_order_and_open_runs_are_closed_at_the_end(told: Told) -> None:
    for trial in (TRIAL, OTHER):
        told.on_trial_start(trial)
        told.on_trial_result(trial, result(1))
    told.on_trial_save(TRIAL)
    told.on_trial_pause(TRIAL)
    told.on_trial_start(TRIAL)
    told.on_trial_error(TRIAL)
    told.on_experiment_end([TRIAL, OTHER])
    assert [call for call in told.told if call[1] == 0] == [
        ("begin", 0),
        ("record", 0, 1),
        ("keep", 0),
        ("finish", 0, "paused"),
        ("begin", 0),
        ("finish", 0, "failed"),
    ]
    assert [call for call in told.told if call[1] == 1] == [
        ("begin", 1),
        ("record", 1, 1),
        ("finish", 1, "interrupted"),
    ]


def test_nobody_waits_for_a_service_that_hangs_except_at_the_end_for_a_while(told: Told) -> None:
    told.gate.clear()
    told.finish_timeout_s = 0.01
    told.on_trial_start(TRIAL)
    told.on_trial_result(TRIAL, result(1))
    with pytest.raises(TimeoutError, match=r"3 calls did not reach the service within 0\.01 s.*in sweep\.db"):
        told.on_experiment_end([TRIAL])
    assert told.told == []
    assert all(lane.daemon for lane in told._lanes.values())


def test_a_trial_whose_service_hangs_does_not_hold_up_another(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    free, done = threading.Event(), threading.Event()
    tell = told._tell

    def hang(*what: Any) -> None:
        if what[1] == 0:
            free.wait()
        tell(*what)
        if what == ("record", 1, 1):
            done.set()

    monkeypatch.setattr(told, "_tell", hang)
    for trial in (TRIAL, OTHER):
        told.on_trial_start(trial)
        told.on_trial_result(trial, result(1))
    assert done.wait(30)
    assert told.told == [("begin", 1), ("record", 1, 1)]
    free.set()
    told.on_experiment_end([])


def test_what_waits_is_bounded_and_the_end_of_a_run_is_never_dropped(told, monkeypatch):
    monkeypatch.setattr(tracking, "_MAX_WAITING", 3)
    told.gate.clear()
    told.on_trial_start(TRIAL)
    for step in range(1, 6):
        told.on_trial_result(TRIAL, result(step))
    told.on_trial_complete(TRIAL)
    told.gate.set()
    with pytest.raises(TimeoutError, match=r"^3 calls"):
        told.on_experiment_end([TRIAL])
    assert told.told == [("begin", 0), ("record", 0, 1), ("record", 0, 2), ("finish", 0, "finished")]


def test_an_error_of_the_service_is_raised_by_a_later_hook_and_the_run_is_closed_all_the_same(told: Told) -> None:
    told.on_trial_start(TRIAL)
    told.on_trial_result(TRIAL, result(1, bad=True))
    with pytest.raises(ConnectionError, match="no route"):
        told.on_experiment_end([TRIAL])
    assert told.told[-1] == ("finish", 0, "interrupted")


def test_the_dispatcher_shows_what_the_service_said() -> None:
    notices: list[str] = []
    callback = Told()
    dispatcher = Dispatcher([callback], notices.append)
    ready(dispatcher, "nowhere")
    dispatcher.start()
    dispatcher.notify([Notify(Hook.START, FACTS), Notify(Hook.RESULT, FACTS, result(1, bad=True))])
    dispatcher.close([FACTS])
    (notice,) = notices
    assert "Told" in notice
    assert "ConnectionError: no route" in notice


def test_numbers_are_flat_and_other_values_left_out() -> None:
    metrics = {
        "loss": 1,
        "is_ok": True,
        "n": np.float32(0.5),
        "text": "x",
        "none": None,
        "list": [1],
        "eval": {"a": 2.0},
    }
    assert dict(numbers_of(metrics)) == {"loss": 1.0, "is_ok": 1.0, "n": 0.5, "eval/a": 2.0}
    assert dict(numbers_of(metrics, ["eval", "los", "n"])) == {"loss": 1.0, "is_ok": 1.0}
    assert math.isnan(dict(numbers_of({"loss": math.nan}))["loss"])
