"""What is said of a sweep that is being stopped."""

from __future__ import annotations

import pytest

from sweep.core.resources import Resources
from sweep.core.trial import CheckpointRef, Status, Trial
from sweep.display.ending import Ending, EndingNotice, waited_for
from sweep.errors import ConfigError, MetricError, SearchError


def trial(number: int, checkpoint: CheckpointRef | None = None, status: Status = Status.RUNNING) -> Trial:
    return Trial(f"abcde_{number:05d}", {}, Resources(), status, attempt=1, checkpoint=checkpoint)


def test_the_time_that_is_left_is_counted_down_and_the_second_time_kills() -> None:
    time = [100.0]
    ending = Ending(30.0, clock=lambda: time[0])
    assert ending.until() == ""
    assert not ending.is_interrupted
    ending.hear(1)
    assert ending.until() == "STOPPING  in 30s what still runs is killed; ^C again kills it now"
    time[0] = 121.5
    assert ending.until() == "STOPPING  in 9s what still runs is killed; ^C again kills it now"
    time[0] = 130.0
    assert ending.until().startswith("STOPPING  the time is over")
    ending.hear(2)
    assert ending.until() == "KILLING  what still runs; one more ^C ends the driver at once"
    assert ending.is_interrupted
    unkillable = Ending(30.0, can_kill=False)  # trials of this process
    unkillable.hear(1)
    assert unkillable.until() == "STOPPING  trials end at their next report; the third ^C ends everything at once"


def test_whom_it_waits_for_is_named_and_saving_is_said_only_where_they_can() -> None:
    saved = CheckpointRef("0/c1", 1)
    five = [trial(number) for number in range(5)]
    assert waited_for(five[:2], can_save_on_demand=False) == "waiting for 00000 00001 to end at the next report"
    assert waited_for(five, can_save_on_demand=False) == (
        "waiting for 00000 00001 00002 and 2 more to end at the next report"
    )
    assert waited_for(five[:1], can_save_on_demand=True) == "waiting for 00000 to save and end"
    assert waited_for([trial(7, saved)], can_save_on_demand=False) == "waiting for 00007 to save and end"
    assert waited_for([], can_save_on_demand=True) == "no trial runs any more"


@pytest.mark.parametrize(
    ("error", "word", "can_resume"),
    [
        (None, "ended after", True),
        (SearchError("the searcher failed"), "failed after", True),
        (OSError("no space left"), "failed after", True),
        (MetricError("nobody reports it"), "failed after", False),
        (ConfigError("wrong"), "failed after", False),
        (KeyboardInterrupt(), "interrupted after", True),
    ],
    ids=str,
)
def test_a_sweep_that_failed_for_an_argument_is_not_to_be_resumed(error, word, can_resume):
    ending = Ending()
    ending.error = error
    assert (ending.word, ending.can_resume) == (word, can_resume)


def test_where_no_display_shows_it_a_line_does_once_per_time(capsys: pytest.CaptureFixture[str]) -> None:
    ending = Ending(30.0, clock=lambda: 0.0)
    notice = EndingNotice(ending, can_save_on_demand=False)
    trials = {one.id: one for one in (trial(0), trial(1, status=Status.PENDING))}
    notice.on_step(trials, 1.0, [])
    assert capsys.readouterr().err == ""
    ending.hear(1)
    notice.on_step(trials, 1.0, [])
    notice.on_step(trials, 2.0, [])
    assert capsys.readouterr().err == (
        "sweep: STOPPING  in 30s what still runs is killed; ^C again kills it now; "
        "waiting for 00000 to end at the next report\n"
    )
    ending.hear(2)
    notice.on_step(trials, 3.0, [])
    assert "KILLING" in capsys.readouterr().err
