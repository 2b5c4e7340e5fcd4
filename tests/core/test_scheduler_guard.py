"""The border to schedulers: what they are asked, told and blamed for; and what they hear of machines."""

from __future__ import annotations

import pytest
from core_world import Scripted, World, cpus, opened, running, tid

from sweep.core.messages import ExitKind, NodesChanged, PauseTrial, ResizeTrial, StopTrial
from sweep.core.resources import Node
from sweep.core.scheduler_guard import choose, consult, tell
from sweep.core.trial import Status, Trial
from sweep.errors import SweepError
from sweep.schedulers.base import Scheduler


class Answering(Scheduler):
    def __init__(self, answer):
        self.answer = answer

    def on_result(self, trial, result, trials):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    choose = on_trial_add = lambda self, given: self.on_result(given, None, None)


STOP = StopTrial(tid(0))


@pytest.mark.parametrize(
    ("answer", "decisions"),
    [(None, ()), ((), ()), ([], []), ([STOP], [STOP]), ((STOP,), [STOP]), (iter([STOP]), [STOP])],
)
def test_whatever_a_scheduler_answers_with_is_read_as_decisions(answer, decisions):
    assert consult(Answering(answer), "on_result", None, None, None) == decisions


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([STOP, "stop"], "the scheduler Answering answered on_result with .*; expected decisions"),
        (7, "the scheduler Answering answered on_result with 7; expected decisions"),
        (ValueError("no"), "the scheduler Answering failed: ValueError: no"),
        ((1 / zero for zero in [0]), "the scheduler Answering failed: ZeroDivisionError"),
    ],
)
def test_what_is_no_decision_and_what_fails_is_the_schedulers_fault(answer, message):
    with pytest.raises(SweepError, match=message):
        consult(Answering(answer), "on_result", None, None, None)


def test_the_error_of_a_scheduler_is_kept_as_the_cause():
    error = KeyError("gone")
    for ask in (consult, tell):
        with pytest.raises(SweepError, match="failed: KeyError: 'gone'") as caught:
            ask(Answering(error), "on_trial_add", None)
        assert caught.value.__cause__ is error
    with pytest.raises(SweepError) as caught:
        choose(Answering(error), [])
    assert caught.value.__cause__ is error


def test_what_has_no_answer_may_answer_anything():
    assert tell(Answering(7), "on_trial_add", None) is None


def test_only_what_is_offered_may_be_chosen():
    offered = [Trial(tid(n), {}, cpus(1)) for n in range(2)]
    assert choose(Answering(offered[1]), offered) is offered[1]
    assert choose(Answering(None), offered) is None
    with pytest.raises(SweepError, match="Answering answered choose with '00000_00007'; expected one of the trials"):
        choose(Answering(Trial(tid(7), {}, cpus(1))), offered)


# --- the machines ----------------------------------------------------------------------------------------------------


class Watching(Scripted):
    """Remembers which machines it was told of, and answers that what is in `shrink` asks for one CPU."""

    def __init__(self):
        super().__init__()
        self.shrink = []

    def on_nodes_changed(self, nodes):
        self.heard.append(("nodes", *[(node.id, node.cpus) for node in nodes]))
        return [ResizeTrial(tid(number), cpus(1)) for number in self.shrink]


def test_a_scheduler_hears_of_the_machines_before_anything_may_start_and_whenever_they_change():
    world = opened(num_cpus=4, num_trials=2, ask_ahead=2, scheduler=Watching())
    world.suggest(0, 1.0)
    world.tell(NodesChanged((Node("n", 2), Node("o", 3))))
    assert world.scheduler.heard == [("nodes", ("n", 4)), ("add", 0), ("nodes", ("n", 2), ("o", 3))]


def test_what_waits_and_fits_nowhere_any_more_may_be_given_a_smaller_request():
    world = opened(num_cpus=4, num_trials=3, ask_ahead=3, scheduler=Watching())
    world.run(0, 4.0)
    world.suggest(1, 4.0)
    world.suggest(2, 4.0)
    world.scheduler.shrink = [1]
    assert world.tell(NodesChanged((Node("n", 2),))) == ["tell error 2"]
    assert world[1].resources == cpus(1)
    assert world[1].status is Status.PENDING


def test_a_paused_trial_too():
    world = opened(num_cpus=4, num_trials=1, scheduler=Watching())
    world.run(0, 4.0)
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    world.exited(0)
    world.scheduler.shrink = [0]
    world.tell(NodesChanged((Node("n", 2),)))
    assert (world[0].status, world[0].resources) == (Status.PAUSED, cpus(1))


def test_a_request_that_fits_nowhere_when_the_attempt_has_ended_is_not_taken():
    world = running(num_cpus=4)
    lines = world.report(0, "0/c1", decisions=[ResizeTrial(tid(0), cpus(4))])
    assert lines == ["tell result 0", "tell save 0", "stop 0.1#1"]
    world.tell(NodesChanged((Node("n", 2),)))
    assert world.exited(0) == ["start 0.2"]  # there is room for the old request before the old attempt has left
    assert (world[0].resources, world[0].pending) == (cpus(1), None)


def test_a_request_that_fits_is_taken():
    world = running(num_cpus=4)
    world.report(0, "0/c1", decisions=[ResizeTrial(tid(0), cpus(4))])
    world.exited(0, ExitKind.STOPPED)
    assert world.released(0) == ["start 0.2"]
    assert world[0].resources == cpus(4)


def test_a_scheduler_that_fails_over_machines_ends_the_sweep():
    class Failing(Scripted):
        def on_nodes_changed(self, nodes):
            raise ValueError("what machines?")

    world = World(scheduler=Failing())
    assert "fail SweepError" in world.open()
    assert "Failing failed: ValueError: what machines?" in str(world.failure)
