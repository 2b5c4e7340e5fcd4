"""What is said of trials that wait for room on a full disk."""

from __future__ import annotations

from sweep.callbacks.watch import SpaceNotice
from sweep.core.resources import Resources
from sweep.core.trial import WAITS_FOR_SPACE, Status, Trial

SHORT = f"{WAITS_FOR_SPACE}: a checkpoint of 3MiB does not fit into /x, 1MiB free"


def trial(number: int, reason: str = "", status: Status = Status.RUNNING) -> Trial:
    return Trial(f"abcde_{number:05d}", {}, Resources(), status, attempt=1, reason=reason)


def test_the_first_that_waits_is_named_once_a_minute() -> None:
    said: list[str] = []
    time = [100.0]
    notice = SpaceNotice(said.append, clock=lambda: time[0])
    trials = {one.id: one for one in (trial(0, "rank 1 waits for rank 0"), trial(1, SHORT), trial(2, SHORT))}
    notice.on_step(trials, 0.0, ["abcde_00000"])
    assert said == []
    notice.on_step(trials, 0.0, list(trials))
    notice.on_step(trials, 0.0, list(trials))
    assert said == [f"trial 00001 {SHORT}. Free some space and it goes on; Ctrl-C ends it"]
    time[0] = 161.0
    notice.on_step(trials, 0.0, ["abcde_00002"])
    assert len(said) == 2


def test_a_trial_that_has_ended_waits_for_nothing() -> None:
    said: list[str] = []
    ended = trial(0, SHORT, Status.ERROR)
    SpaceNotice(said.append).on_step({ended.id: ended}, 0.0, [ended.id])
    assert said == []
