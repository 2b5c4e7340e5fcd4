"""Elastic groups: how large they begin, when they grow and shrink, and what is never done to them."""

from __future__ import annotations

import pytest
from core_world import World, tid

from sweep.core.claims import Claim
from sweep.core.messages import ClaimsChanged, ExitKind, NodesChanged, PauseTrial, ResizeTrial
from sweep.core.resources import UNIT, Bundle, Device, Node, Resources
from sweep.core.trial import Status
from sweep.schedulers.base import Scheduler
from sweep.schedulers.elastic import ElasticGroups
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.median import MedianStoppingRule

A, B = Node("a", cpus=4.0), Node("b", cpus=4.0)
LONG = {"m": 1.0, "time_total_s": 1e6}  # the group has run for long enough


def workers(number, **options):
    return Resources((Bundle(cpu=1.0),) * number, **options)


class Groups(World):
    """A sweep over groups of 2 to 8 workers, one CPU each, on nodes of four CPUs."""

    def __init__(self, nodes=(A,), *, between=(2, 8), inner=None, num_trials=1, **plan):
        elastic = ElasticGroups(inner or FIFOScheduler(), {"num_workers": between, "resize_every_s": 60.0})
        super().__init__(nodes=nodes, scheduler=elastic, num_trials=num_trials, ask_ahead=8, **plan)
        elastic.packer = self.packer
        self.open()

    def first(self, *, config=None, at_a_time=None, least=2):
        return self.scheduler.first_request(config or {}, workers(least), self.plan.num_trials, at_a_time)

    def start(self, number, **config):
        """Suggest a trial with the size that it is given, and start it if it fits."""
        self.suggest(number, self.first(config=config), **config)
        if self[number].status is Status.STARTING:
            self.started(number)

    def size(self, number):
        return len(self[number].resources.bundles)

    def save(self, number, **metrics):
        """Report a checkpoint; returns the size with which the trial runs afterwards."""
        path = f"{tid(number)}/checkpoint_{self[number].count + 1:06d}"
        self.report(number, path, **{**LONG, **metrics})
        if self[number].status is Status.STOPPING:
            self.ended(number)
            if self[number].status is Status.STARTING:
                self.started(number)
        return self.size(number)

    def come(self, *nodes):
        self.tell(NodesChanged(nodes))


# --- how large they begin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_trials", "nodes", "size"),
    [
        (1, (A,), 4),
        (1, (A, B), 8),
        (1, (Node("c", cpus=100.0),), 8),
        (2, (A, B), 4),
        (3, (A, B), 2),
        (100, (A, B), 2),
        (None, (A, B), 2),
        (1, (Node("c", cpus=1.0),), 2),  # it waits for its minimum
    ],
)
def test_a_group_begins_with_its_part_of_what_is_free_and_at_least_its_minimum(num_trials, nodes, size):
    assert Groups(nodes, num_trials=num_trials).first() == workers(size)


def test_the_questions_of_one_batch_share_what_is_free():
    world = Groups((A, B), num_trials=2)
    assert [world.first(), world.first()] == [workers(4)] * 2


def test_as_many_share_as_may_run_at_a_time():
    assert Groups((A, B), num_trials=100).first(at_a_time=2) == workers(4)


def test_a_config_says_its_own_range_or_a_fixed_size():
    world = Groups((A, B))
    assert world.first(config={"scaling_config": {"num_workers": (2, 3)}}) == workers(3)
    assert world.first(config={"scaling_config": {"num_workers": [2, 3]}}) == workers(3)
    assert world.first(config={"scaling_config": {"num_workers": 5}}, least=5) == workers(5)


def test_each_worker_of_a_strict_spread_has_a_node_of_its_own():
    world = Groups((A, B), num_trials=1)
    spread = workers(2, strategy="STRICT_SPREAD")
    assert world.scheduler.first_request({}, spread, 1, None) == spread


def test_groups_with_shares_of_a_gpu_take_all_shares_there_are():
    world = Groups((Node("a", cpus=0.0, devices=(Device("0"), Device("1"))),))
    share = Resources((Bundle(gpu=0.5),) * 2, shared_devices=True)
    one_device = world.scheduler.first_request({}, share, 1, None)
    assert len(one_device.bundles) == 4
    assert one_device.shared_devices


# --- when they grow --------------------------------------------------------------------------------------------------


def test_a_group_grows_from_its_next_checkpoint_when_a_node_comes():
    world = Groups()
    world.start(0)
    assert world.save(0) == 4
    world.come(A, B)
    world.report(0, **LONG)
    assert world.size(0) == 4  # nothing is lost for it
    assert world[0].attempt == 1
    assert world.save(0) == 8
    assert (world[0].attempt, world[0].started_from.count) == (2, 3)


def test_a_group_that_has_run_for_less_than_it_must_is_not_resized():
    world = Groups()
    world.start(0)
    world.come(A, B)
    assert world.save(0, time_total_s=59.0) == 4
    assert world.save(0, time_total_s=60.0) == 8


def test_the_time_between_two_changes_is_that_of_the_config():
    world = Groups(between=None)
    world.start(0, scaling_config={"num_workers": (2, 8), "resize_every_s": 5.0})
    world.come(A, B)
    assert world.save(0, time_total_s=4.0) == 4
    assert world.save(0, time_total_s=5.0) == 8


def test_a_group_that_never_saves_is_never_resized():
    world = Groups()
    world.start(0)
    world.come(A, B)
    for _ in range(5):
        world.report(0, **LONG)
    assert (world.size(0), world[0].status, world[0].attempt) == (4, Status.RUNNING, 1)


def test_a_group_takes_what_another_has_left():
    world = Groups((A, B), num_trials=2)
    world.start(0)
    world.start(1)
    assert [world.save(0), world.save(1)] == [4, 4]
    world.report(1, **LONG)
    world.ended(1, ExitKind.FINISHED)
    assert world.save(0) == 8


def test_what_others_wait_for_is_theirs():
    world = Groups(num_trials=2)
    world.suggest(0, workers(4))
    world.started(0)
    world.suggest(1, 3.0, scaling_config={"num_workers": 1})
    assert world[1].status is Status.PENDING
    assert world.save(0) == 4  # at its minimum there would be no room for 3 either
    world.come(A, B)
    assert world[1].status is Status.STARTING
    assert world.save(0) == 5


def test_a_group_that_waits_is_given_its_part_of_what_a_trial_leaves():
    world = Groups((A,), num_trials=2)
    world.suggest(0, 4.0, scaling_config={"num_workers": 1})
    world.started(0)
    world.suggest(1, workers(2))
    assert world[1].status is Status.PENDING
    world.report(0)
    world.ended(0, ExitKind.FINISHED)
    assert (world.size(1), world[1].status) == (4, Status.STARTING)


def test_what_other_sweeps_of_the_machine_hold_is_not_counted_upon():
    world = Groups((A, B))
    world.tell(ClaimsChanged((Claim("other", 1, held=(("b", "cpu", "", 4 * UNIT),)),)))
    assert world.first() == workers(4)


# --- when they shrink ------------------------------------------------------------------------------------------------


def test_a_group_shrinks_for_the_minimum_of_one_that_waits_and_no_further():
    world = Groups((A, B), num_trials=None)
    world.suggest(0, workers(8))
    world.started(0)
    world.suggest(1, workers(2))
    assert world[1].status is Status.PENDING
    assert world.save(0) == 6
    assert (world.size(1), world[1].status) == (2, Status.STARTING)


def test_two_groups_do_not_take_from_each_other_in_turns():
    world = Groups((A, B), num_trials=2)
    world.start(0)
    world.start(1)
    for _ in range(4):
        assert [world.save(0), world.save(1)] == [4, 4]
    assert [world[0].attempt, world[1].attempt] == [1, 1]


def test_only_one_of_two_groups_makes_room_for_one_that_waits():
    world = Groups((A, B), num_trials=None)
    for number in (0, 1):
        world.suggest(number, workers(4))
        world.started(number)
    world.suggest(2, workers(2))
    world.report(0, f"{tid(0)}/checkpoint_000001", **LONG)
    assert world[0].status is Status.STOPPING
    assert world.save(1) == 4
    world.ended(0)
    assert [world.size(0), world[2].status] == [2, Status.STARTING]


def test_a_group_whose_node_is_lost_goes_on_from_its_checkpoint_with_what_is_left():
    world = Groups((A, B))
    world.start(0)
    world.save(0)
    world.report(0, **LONG)
    world.exited(0, ExitKind.NODE_LOST)
    world.come(A)
    world.released(0)
    assert (world.size(0), world[0].status, world[0].started_from.count) == (4, Status.STARTING, 1)


def test_a_group_is_never_smaller_than_its_minimum():
    world = Groups((A, B), between=(5, 8))
    world.suggest(0, workers(8))
    world.started(0)
    world.save(0)
    world.exited(0, ExitKind.NODE_LOST)
    world.tell(NodesChanged((A,), away=(B,)))
    world.released(0)
    assert world[0].status is Status.PENDING
    assert "waits for node 'b'" in world[0].reason
    world.come(A, B)
    assert (world.size(0), world[0].status) == (8, Status.STARTING)


def test_a_group_on_a_node_that_will_leave_goes_on_without_it_at_once():
    world = Groups((A, B))
    world.start(0)
    world.come(A)  # its processes on b are still there
    assert world.save(0, time_total_s=1.0) == 4


def test_a_group_lost_after_notice_and_before_its_next_report_shrinks_too():
    world = Groups((A, B))
    world.start(0)
    world.save(0)
    world.tell(NodesChanged((A,), away=(B,)))
    world.exited(0, ExitKind.NODE_LOST)
    world.released(0)
    assert (world.size(0), world[0].status) == (4, Status.STARTING)


def test_groups_that_have_not_reported_yet_count_with_what_they_were_given():
    world = Groups((A, B), num_trials=3)
    for number in (0, 1):
        world.suggest(number, workers(4))
    assert world.first() == workers(2)
    world.come(A, B, Node("c", cpus=3.0))
    assert [world.size(0), world.size(1), world[0].pending] == [4, 4, None]
    assert world.first() == workers(3)


def test_a_group_that_was_never_seen_to_run_in_this_run_is_sized_anew_when_the_run_begins():
    before = Groups((A, B))
    before.start(0)
    before.save(0)
    trials = list(before.sweep.trials.values())
    elastic = ElasticGroups(FIFOScheduler(), {"num_workers": (2, 8), "resize_every_s": 60.0})
    world = World(nodes=(A,), scheduler=elastic, trials=trials)
    elastic.packer = world.packer
    elastic.on_trial_add(trials[0])
    world.open()
    assert (len(world[0].resources.bundles), world[0].status) == (4, Status.STARTING)


def test_a_group_that_waits_for_more_than_will_be_free_waits_for_its_minimum_instead():
    world = Groups((A, B), num_trials=2)
    world.start(0)
    world.suggest(1, workers(8))
    assert world[1].status is Status.PENDING
    world.report(0, m=1.0, time_total_s=1.0)
    assert (world.size(1), world[1].status) == (4, Status.STARTING)


# --- beside other schedulers -----------------------------------------------------------------------------------------


class Pausing(Scheduler):
    refused = None

    def on_result(self, trial, result, trials):
        return [PauseTrial(trial.id)]

    def on_refused(self, trial, decision):
        self.refused = decision
        return ()


def test_what_the_other_scheduler_decides_of_a_trial_comes_first():
    world = Groups(inner=Pausing())
    world.start(0)
    world.come(A, B)
    world.report(0, f"{tid(0)}/checkpoint_000001", **LONG)
    assert world[0].next_status is Status.PAUSED
    assert world.size(0) == 4


def test_it_shows_what_the_other_scheduler_is():
    inner = MedianStoppingRule(grace_period=3)
    elastic = ElasticGroups(inner, {"num_workers": [2, 8], "resize_every_s": 60.0})
    elastic.set_search_properties("m", "min")
    assert (elastic.metric, elastic.mode, elastic.first_judgement) == ("m", "min", inner.first_judgement)
    assert elastic.debug_string() == inner.debug_string()


def test_a_refused_decision_of_the_other_scheduler_is_its_own_affair():
    inner = Pausing()
    world = Groups(inner=inner)
    world.start(0)
    world.report(0, **LONG)
    assert isinstance(inner.refused, PauseTrial)
    inner.refused = None
    world.scheduler.on_refused(world[0], ResizeTrial(tid(0), workers(99)))
    assert inner.refused is None


# --- what is said of it ----------------------------------------------------------------------------------------------


def test_people_are_told_what_becomes_of_a_size():
    world = Groups((A,))
    world.start(0)
    world.save(0)
    assert world.scheduler.outlook(world[0]) == "4 of at most 8 workers: no more room"
    world.come(A, B)
    grows = "4 of at most 8 workers: grows to 8 at its next checkpoint, at most every 60 s"
    assert world.scheduler.outlook(world[0]) == grows
    world.save(0)
    assert world.scheduler.outlook(world[0]) == "8 of at most 8 workers"
    world.report(0)
    world.ended(0, ExitKind.FINISHED)
    assert world.scheduler.outlook(world[0]) == ""
