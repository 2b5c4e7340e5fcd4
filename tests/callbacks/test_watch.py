"""What every sweep says: trials that wait for room, keys that nobody reports, alike failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.callbacks.watch import FailureNotices, SchedulerNotices, SpaceNotice
from sweep.core.resources import BundlePlacement, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, Status, Trial, evolve

SHORT = "waits for disk space: a checkpoint of 3MiB does not fit into /x, 1MiB free"

Swept = Callable[..., str]


@pytest.fixture
def swept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Swept:
    """Runs a sweep, and returns what was shown of it."""

    def run(trainable: Any, *, engine: str = "inline", **given: Any) -> str:
        sweep.run(trainable, storage_path=tmp_path, engine=engine, **given)
        return "".join(capfd.readouterr())

    return run


def trial(number: int, reason: str = "", status: Status = Status.RUNNING) -> Trial:
    cause = Cause.SPACE if reason == SHORT else Cause.NONE
    return Trial(f"abcde_{number:05d}", {}, Resources(), status, attempt=1, reason=reason, cause=cause)


def test_the_first_that_waits_is_named_once_a_minute() -> None:
    said: list[str] = []
    notice = SpaceNotice(said.append)
    waiting = (trial(0, "rank 1 waits for rank 0"), trial(1, SHORT), trial(2, SHORT), trial(3, SHORT, Status.ERROR))
    trials = {one.id: one for one in waiting}
    notice.on_step(trials, 0.0, ["abcde_00000", "abcde_00003"])  # what has ended waits for nothing
    assert said == []
    notice.on_step(trials, 0.0, list(trials))
    notice.on_step(trials, 0.0, list(trials))
    assert said == [f"trial 00001 {SHORT}. Free some space and it goes on; Ctrl-C ends it"]
    there = Placement((BundlePlacement("far"),))
    notice.on_step({"abcde_00002": evolve(waiting[2], placement=there)}, 61.0, ["abcde_00002"])
    assert said[1:] == [f"trial 00002 on far {SHORT}. Free some space and it goes on; Ctrl-C ends it"]


def test_what_a_scheduler_notes_is_said_as_soon_as_it_does_and_that_there_is_nothing_to_copy_at_the_first_end() -> None:
    said: list[str] = []
    scheduler = sweep.FIFOScheduler()
    notice = SchedulerNotices(scheduler, True, said.append)
    running = evolve(trial(0), last_result=TrialResult({"m": 1}))
    notice.on_step({running.id: running}, 0.0, [running.id])
    assert said == []
    scheduler.notices = ["early"]
    for _ in range(2):
        notice.on_step({running.id: running}, 0.0, [])
    assert said == ["early"]
    for number, status in enumerate((Status.ERROR, Status.TERMINATED, Status.TERMINATED)):
        ended = evolve(trial(number), last_result=TrialResult({"m": 1}), status=status)
        notice.on_step({ended.id: ended}, 0.0, [ended.id])
    assert [text[:53] for text in said] == ["early", "trial 00001 ended without a checkpoint, and FIFOSched"]


@pytest.mark.parametrize(
    ("reason", "failure", "is_said"),
    [
        ("starts again after: KeyError: 'lr'", "user", True),
        ("starts again after: its node n1 is gone", "node_lost", False),
        ("starts again: the driver was restarted", "", False),
    ],
)
def test_trials_that_start_again_failed_alike_only_by_errors_of_their_own(tmp_path, reason, failure, is_said):
    said: list[str] = []
    notice = FailureNotices(said.append)
    notice.setup(experiment_dir=str(tmp_path), plan=None, num_trials=None)
    for number in range(3):
        notice.on_trial_recover(evolve(trial(number), reason=reason, failure=failure, cause=Cause.RETRY))
    assert len(said) == is_said


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_stop_key_with_a_slip_is_said_at_the_first_report_of_an_endless_trial_also_by_a_quiet_sweep(swept, verbose):
    class Endless(sweep.Trainable):
        def step(self) -> dict[str, Any]:
            return {"loss": 1.0, "done": self.iteration >= 30}

    shown = swept(Endless, stop={"training_iterations": 5}, verbose=verbose)
    said = "made 1 report without 'training_iterations', which stop= names; it ends nothing until it is reported. Did"
    assert shown.count(said) == 1
    assert "Did you mean 'training_iteration'" in shown


@pytest.mark.parametrize(
    ("key", "reports", "said_after"), [("accuracies", 3, 3), ("accuracies", 11, 10), ("late", 12, None)]
)
def test_a_stop_key_that_nobody_reports_is_said_once_after_ten_reports_of_a_trial_or_at_its_end(
    swept, key, reports, said_after
):
    def train(config: dict[str, Any]) -> None:
        for step in range(reports):
            sweep.report(accuracy=0.5) if step < 8 else sweep.report(accuracy=0.5, late=1)

    said = swept(train, num_samples=2, stop={key: 99})
    assert said.count("stop=") == (said_after is not None)
    if said_after is not None:
        assert f"made {said_after} reports without 'accuracies', which stop= names" in said
        assert "Did you mean 'accuracy'" in said


def test_a_progress_that_nobody_reports_is_said_once(swept: Swept) -> None:
    def train(config: dict[str, Any]) -> None:
        for epoch in range(3):
            sweep.report(loss=0.5, epoch=epoch)

    scheduler = sweep.ASHAScheduler(time_attr="epochs", max_t=20, metric="loss", mode="min")
    said = swept(train, num_samples=3, scheduler=scheduler)
    assert said.count("made 1 report without 'epochs', which time_attr of asha names; it decides nothing") == 1
    assert "Did you mean 'epoch'" in said


def test_a_score_of_checkpoints_that_is_not_reported_is_said_once(swept: Swept, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(3):
            (tmp_path / "state").mkdir(exist_ok=True)
            sweep.report(acc=-abs(step - 1), checkpoint=sweep.Checkpoint(tmp_path / "state"))

    keep = sweep.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="accuracy")
    said = swept(train, num_samples=2, checkpoint_config=keep)
    assert said.count("without 'accuracy', which checkpoint_score_attribute names; checkpoints without it") == 1
    assert "Did you mean 'acc'" in said


@pytest.mark.parametrize(("metric", "is_said"), [("los", True), ("val_loss", False), ("loss", False)])
def test_a_metric_that_looks_misspelt_is_said_at_the_first_report(swept: Swept, metric: str, is_said: bool) -> None:
    def train(config: dict[str, Any]) -> None:
        sweep.report(loss=0.5)
        sweep.report({"loss": 0.5, metric: 1.0})

    said = swept(train, metric=metric, mode="min", num_samples=2)
    assert said.count("made 1 report without 'los', which is the metric") == is_said
    assert said.count("Did you mean 'loss'") == is_said


def failing_alike(config: dict[str, Any]) -> None:
    if config["x"] == "late":
        sweep.report(loss=1.0)
    if config["x"] == "other":
        raise ValueError("another one")
    config["lr"]


@pytest.mark.parametrize(
    ("xs", "counts"),
    [
        (["early"] * 5, [2, 5]),
        (["early"] * 3, [2]),
        (["early"], []),
        (["early", "other", "early"], []),
        (["early", "late", "early"], []),
    ],
)
def test_the_same_failure_of_the_first_trials_is_said_at_once_with_its_count_and_not_for_each(swept, xs, counts):
    said = swept(
        failing_alike,
        config={"x": sweep.grid_search(xs)},
        engine="local",
        raise_on_failed_trial=False,
        max_concurrent_trials=1,
    )
    found = re.findall(
        r"the first (\d+) trials that failed did so alike, before their first report: KeyError: 'lr'", said
    )
    assert [int(count) for count in found] == counts
