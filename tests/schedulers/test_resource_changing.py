"""Resource changing: what is asked for when, what is forwarded, and whole runs in virtual time and with processes."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import os
from functools import partialmethod

import pytest
from conformance.schedulers import Told, tid
from conformance.searchers import Recorder
from record.test_resume import PowerCut, go
from sweep_run import Nobody, given_configs, new_sweep

import sweep
from searchers.space import uniform
from sweep.core.messages import (
    Exit,
    Exited,
    ExitKind,
    NodesChanged,
    PauseTrial,
    Released,
    ResizeTrial,
    ResumeTrial,
    SaveTrial,
    Start,
    StopTrial,
)
from sweep.core.resources import Bundle, BundlePlacement, Node, Placement, PlacementGroupFactory, Resources
from sweep.core.trial import CheckpointRef, Status, Trial, evolve
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ConfigError, ResourceError
from sweep.launch.drive import drive
from sweep.record.resume import retell
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.base import Scheduler, WrappingScheduler
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob
from sweep.schedulers.elastic import ElasticGroups
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.resource_changing import ResourceChangingScheduler

NODES = (Node("n", 8),)


def cpus(amount):
    return Resources((Bundle(cpu=float(amount)),))


class Answering(Scheduler):
    """Answers what a test put into `next`; keeps the names of the hooks that were called."""

    def __init__(self):
        self.next = []
        self.calls = []
        self.notices = []

    def _answer(self, hook, *args):
        self.calls.append(hook)
        answer, self.next = self.next, []
        return answer

    on_trial_add = partialmethod(_answer, "on_trial_add")
    on_result = partialmethod(_answer, "on_result")
    on_trial_end = partialmethod(_answer, "on_trial_end")
    on_refused = partialmethod(_answer, "on_refused")
    on_nodes_changed = partialmethod(_answer, "on_nodes_changed")


class Site(Told):
    """Trials on machines, told to one scheduler as the core does."""

    def __init__(self, function=None, number=2, base=None, nodes=NODES):
        super().__init__(ResourceChangingScheduler(base, function))
        self.scheduler.set_search_properties("m", "max", seed=0)
        self.scheduler.on_nodes_changed(nodes)
        for n in range(number):
            self.add(n)
            self.put(n, placement=Placement((BundlePlacement("n"),)), checkpoint=CheckpointRef("c", 1))


def always(request):
    return lambda view, trial, result, scheduler: request


# --- what is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (None, None),
        (cpus(1), None),  # it has that
        ({"cpu": 1}, None),
        ({"cpu": 2}, cpus(2)),
        ({"CPU": 3, "GPU": 0}, cpus(3)),
        (cpus(5), cpus(5)),
        (PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}]), Resources((Bundle(cpu=1), Bundle(cpu=2)))),
        ({"cpu": 0.5}, cpus(0.5)),  # a function of one's own may go below the base
        ({"cpu": 9}, None),  # no machine has that
    ],
)
def test_a_function_of_ones_own_answers_with_any_kind_of_request(answer, wanted):
    site = Site(always(answer))
    assert list(site.report(0, m=1)) == ([] if wanted is None else [ResizeTrial(tid(0), wanted)])


@pytest.mark.parametrize("answer", [7, "2 cpus", {}, [{"CPU": 1}], {"cpus": 2}, {"cpu": -1}])
def test_what_is_no_request_is_an_error_that_says_so(answer):
    with pytest.raises(ResourceError, match=r"expected a|did you mean"):
        Site(always(answer)).report(0, m=1)


def test_a_function_sees_the_sweep_the_trial_and_its_result():
    seen = []

    def function(view, trial, result, scheduler):
        seen.append((view.num_live, view.total_resources, trial.id, result["m"], scheduler.base_trial_resources))
        return {"cpu": 2} if trial.number == view.get_live_trials()[0].number else None

    site = Site(function)
    site.report(1, m=0.25)
    assert seen == [(2, {"CPU": 8}, tid(1), 0.25, cpus(1))]
    assert [list(site.report(n, m=0)) for n in (0, 1)] == [[ResizeTrial(tid(0), cpus(2))], []]


def test_a_request_that_no_machine_has_is_told_once_with_the_arithmetic():
    site = Site(always({"cpu": 9}))
    for _ in range(3):
        assert not site.report(0, m=1)
    (notice,) = site.scheduler.notices
    assert "wanted what no machine has" in notice
    assert "cpu=9" in notice


@pytest.mark.parametrize(
    ("pending", "is_asked"),
    [
        (None, True),
        (SaveTrial(tid(0)), True),  # it is saved for the change anyway
        (PauseTrial(tid(0)), False),  # a person, or the other scheduler, comes first
        (ResizeTrial(tid(0), cpus(1)), False),  # makes room for others, or the sweep is interrupted
        (ResizeTrial(tid(0), cpus(4)), False),  # was asked for, and waits for a checkpoint
        (ResizeTrial(tid(0), cpus(3)), True),  # was asked for, and is not right any more
    ],
)
def test_what_waits_already_is_respected(pending, is_asked):
    site = Site()
    site.put(0, pending=pending)
    assert list(site.report(0, m=1)) == ([ResizeTrial(tid(0), cpus(4))] if is_asked else [])


def test_after_a_result_for_which_the_base_says_something_of_the_trial_nothing_is_asked():
    base = Answering()
    site = Site(base=base)
    base.next = [StopTrial(tid(0))]
    assert site.report(0, m=1) == [StopTrial(tid(0))]
    base.next = [SaveTrial(tid(1))]
    assert site.report(0, m=1) == [SaveTrial(tid(1)), ResizeTrial(tid(0), cpus(4))]
    base.next = None
    assert site.report(1, m=1) == [ResizeTrial(tid(1), cpus(4))]


# --- trials that cannot be saved -------------------------------------------------------------------------------------


def test_a_trial_that_never_saved_is_asked_once_and_again_when_it_has():
    site = Site()
    site.put(0, checkpoint=None)
    change = ResizeTrial(tid(0), cpus(4))
    assert site.report(0, m=1) == [change]
    assert site.scheduler.on_refused(site.trials[tid(0)], change) == ()
    assert [list(site.report(0, m=1)) for _ in range(3)] == [[], [], []]
    assert len(site.scheduler.notices) == 1
    assert "never saved a checkpoint" in site.scheduler.notices[0]
    site.put(0, checkpoint=CheckpointRef("c", 4))
    assert site.report(0, m=1) == [change]


def test_a_trial_that_has_ended_and_is_run_again_may_be_asked_again():
    site = Site()
    site.put(0, checkpoint=None)
    site.report(0, m=1)
    site.report(0, m=1)
    site.end(0)
    site.put(0, status=Status.RUNNING, attempt=2)
    site.scheduler.on_trial_add(evolve(site.trials[tid(0)], resources=cpus(3)))  # as a person retries it
    assert site.report(0, m=1) == [ResizeTrial(tid(0), cpus(4))]


# --- room that is not there ------------------------------------------------------------------------------------------


def test_a_changed_trial_that_waits_for_room_goes_back_and_stays_until_another_has_ended():
    site = Site(number=3)
    assert site.report(0, m=1) == [ResizeTrial(tid(0), cpus(3))]
    site.put(0, status=Status.PENDING, resources=cpus(3))  # its old attempt has not left yet
    assert list(site.report(1, m=1)) == [ResizeTrial(tid(1), cpus(3))]
    site.put(1, attempt=2, resources=cpus(3))
    site.put(0, placement=None)
    assert list(site.report(1, m=1)) == [ResizeTrial(tid(0), cpus(1))]
    site.put(0, status=Status.RUNNING, attempt=2, resources=cpus(1), placement=Placement((BundlePlacement("n"),)))
    assert list(site.report(0, m=1)) == []
    site.end(2)
    site.put(2, placement=None)
    assert list(site.report(0, m=1)) == [ResizeTrial(tid(0), cpus(4))]


def test_machines_that_go_take_requests_back_that_fit_on_none():
    site = Site()
    site.report(0, m=1)
    assert site.scheduler.on_nodes_changed((Node("n", 4),)) == []
    assert site.scheduler.on_nodes_changed((Node("n", 3), Node("o", 3))) == [ResizeTrial(tid(0), cpus(1))]
    assert site.scheduler.on_nodes_changed((Node("n", 2),)) == []  # that was told already
    site.put(0, attempt=2)
    assert not site.report(0, m=1)  # one each is all there is


# --- what is refused -------------------------------------------------------------------------------------------------


def test_trials_that_begin_with_different_requests_are_refused_with_both():
    site = Site()
    with pytest.raises(ConfigError, match=r"trial 00007 begins with cpu=2, others with cpu=1; .* all begin alike"):
        site.scheduler.on_trial_add(Trial(tid(7), {}, cpus(2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_scheduler": "asha"}, "base_scheduler is 'asha'; expected a scheduler"),
        ({"base_scheduler": ResourceChangingScheduler()}, "base_scheduler is .*; expected a scheduler"),
        ({"resources_allocation_function": {"cpu": 2}}, "resources_allocation_function is {'cpu': 2}; expected a func"),
        ({"resources_allocation_function": DistributeResources}, "expected a function of .* or an object such as"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        ResourceChangingScheduler(**arguments)


def test_the_best_trial_cannot_be_told_without_a_metric():
    scheduler = ResourceChangingScheduler(None, DistributeResourcesToTopJob())
    with pytest.raises(ConfigError, match="needs a metric"):
        scheduler.set_search_properties(None, None)
    scheduler.set_search_properties("m", "max")
    ResourceChangingScheduler(None, DistributeResourcesToTopJob(metric="m")).set_search_properties(None, None)


# --- a wrapper -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ResourceChangingScheduler, ElasticGroups])
def test_every_hook_of_a_scheduler_is_forwarded(kind):
    public = {n for n in vars(Scheduler) if not n.startswith("_")}
    copied = {"metric", "mode", "is_searching", "is_multi_objective", "mutated_paths", "time_attr"}
    copied |= {"first_judgement", "milestones"}
    own = {"is_stateless", "state", "inner"}
    forwarded = {**vars(WrappingScheduler), **vars(kind)}
    assert public - copied - own <= set(forwarded), "a new hook of Scheduler is not handed on to the base scheduler"
    for hook in public & set(forwarded):
        if inspect.isfunction(vars(Scheduler)[hook]):
            theirs, ours = (inspect.signature(hooks[hook]) for hooks in (vars(Scheduler), forwarded))
            assert list(theirs.parameters) == list(ours.parameters), hook


def test_the_base_hears_everything():
    base = Answering()
    site = Site(base=base, number=1)
    site.report(0, m=1)
    assert base.calls == ["on_nodes_changed", "on_trial_add", "on_result"]
    base.calls.clear()
    trial = site.trials[tid(0)]
    site.scheduler.on_refused(trial, ResizeTrial(trial.id, cpus(8)))  # what it wanted itself
    assert base.calls == []
    for decision in (PauseTrial(trial.id), SaveTrial(trial.id), ResizeTrial(trial.id, cpus(1))):
        site.scheduler.on_refused(trial, decision)
    site.end(0)
    assert base.calls == [*["on_refused"] * 3, "on_trial_end"]
    base.next = [StopTrial(tid(0))]
    assert site.scheduler.on_nodes_changed(NODES) == [StopTrial(tid(0))]
    paused = {tid(0): evolve(site.trials[tid(0)], status=Status.PAUSED)}
    assert site.scheduler.on_idle(paused) == [ResumeTrial(tid(0))]
    offered = list(paused.values())
    assert site.scheduler.choose(offered) is offered[0]


def test_what_the_base_is_shows_through():
    population = PopulationBasedTraining(hyperparam_mutations={"x": uniform(0, 1)}, log_config=False)
    scheduler = ResourceChangingScheduler(population)
    assert scheduler.is_searching
    assert scheduler.mutated_paths == ("x",)
    assert scheduler.log_config is False
    assert not scheduler.is_stateless
    assert not scheduler.is_multi_objective
    scheduler.set_search_properties("m", "min", seed=3)
    assert (scheduler.metric, scheduler.mode) == (population.metric, population.mode) == ("m", "min")
    assert scheduler.complete_config({}, 4) == population.complete_config({}, 4)
    assert "PopulationBasedTraining: 0 checkpoints" in scheduler.debug_string()
    assert "FIFOScheduler" in ResourceChangingScheduler().debug_string()
    assert ResourceChangingScheduler(ASHAScheduler("training_iteration", "m", "max")).metric == "m"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = scheduler.no_such_thing
    with pytest.raises(ConfigError, match="metric was given"):
        ResourceChangingScheduler(ASHAScheduler(metric="a")).set_search_properties("m", "max")


def test_it_can_be_copied_for_another_experiment():
    scheduler = ResourceChangingScheduler(ASHAScheduler(), DistributeResources(increase_by_times=2))
    other = copy.deepcopy(scheduler)
    other.set_search_properties("m", "max")
    assert scheduler.metric is None
    assert other.base_scheduler is not scheduler.base_scheduler


# --- whole runs in virtual time --------------------------------------------------------------------------------------


def curve(config, done):
    for _ in range(done, config["n"]):
        yield Point(1.0, {"m": config["n"]}, has_checkpoint=True)


def starts(lengths, scheduler, nodes=NODES, curve=curve, engine=None, **plan):
    """Run trials of these lengths; returns (virtual time, trial, CPUs) of all starts, and the sweep."""
    scheduler.set_search_properties("m", "max", seed=0)
    decided = new_sweep(scheduler, num_trials=len(lengths), ask_ahead=len(lengths), **plan)
    record = Nobody()
    engine = engine or Simulator(curve, nodes)
    searcher = given_configs([{"n": n} for n in lengths])
    drive(decided, engine, searcher, record, record, request_of=lambda config: cpus(1))
    found = [
        (now, command.trial.number, command.trial.resources.total.cpu)
        for _, commands, _, now in record.commits
        for some in commands
        for command in some
        if isinstance(command, Start)
    ]
    assert all(trial.is_ended for trial in decided.trials.values())
    return found, decided


def test_as_trials_end_the_rest_grow_until_the_last_has_the_whole_machine():
    scheduler = ResourceChangingScheduler()
    found, decided = starts([3, 6, 9, 12], scheduler)
    assert found == [
        *[(0.0, n, 1.0) for n in range(4)],
        *[(1.0, n, 2.0) for n in range(4)],
        (4.0, 1, 3.0),
        (4.0, 2, 3.0),
        (7.0, 3, 4.0),
        (7.0, 2, 4.0),
        (10.0, 3, 8.0),
    ]
    assert [trial.count for trial in decided.trials.values()] == [3, 6, 9, 12]
    assert scheduler.state() == (None, [], {})


class Shrinking(Simulator):
    """Loses what runs on `lost` at a time, then that machine."""

    def __init__(self, curve, nodes, at):
        super().__init__(curve, nodes)
        self._lose_at, self._is_lost = at, False

    def next_events(self, deadline):
        events = list(super().next_events(deadline))
        if self.now() < self._lose_at or self._is_lost:
            return events
        self._is_lost = True
        self._nodes = self._nodes[:1]
        lost, left = [], []
        for key, attempt in list(self._running.items()):
            if attempt.trial.placement.bundles[0].node != self._nodes[0].id:
                del self._running[key]
                lost.append(Exited(*key, Exit(ExitKind.LOST)))
                left.append(Released(*key))
        lost_ids = {event.trial_id for event in lost}
        others = [event for event in events if getattr(event, "trial_id", "") not in lost_ids]
        return [*others, *lost, NodesChanged(self._nodes), *left]


def test_a_trial_that_had_grown_survives_the_loss_of_the_machine_that_it_grew_on():
    engine = Shrinking(curve, (Node("a", 2), Node("b", 6)), at=5.5)
    found, decided = starts([20], ResourceChangingScheduler(), engine=engine)
    assert found == [(0.0, 0, 1.0), (1.0, 0, 6.0), (6.0, 0, 1.0), (7.0, 0, 2.0)]
    (trial,) = decided.trials.values()
    assert (trial.status, trial.count, trial.losses) == (Status.TERMINATED, 20, 0)  # a report made up for the loss


# --- told again ------------------------------------------------------------------------------------------------------


def test_after_a_restart_on_a_smaller_machine_grown_trials_go_on(tmp_path):
    root = tmp_path
    with pytest.raises(PowerCut):
        go(root, num=1, scheduler=ResourceChangingScheduler(), cut=9, is_after=True)
    again = ResourceChangingScheduler()
    retell(root / "sweep.db", again, Recorder())
    assert again.state()[2] == {"abcde_00000": cpus(3)}
    assert again.on_nodes_changed((Node("local", 2),)) == [ResizeTrial("abcde_00000", cpus(1))]


# --- with processes --------------------------------------------------------------------------------------------------

LONG = 20_000


def changes_of(seen):
    """Return values without those that repeat the one before: however many steps a trial has time for."""
    return json.dumps([value for value, _ in itertools.groupby(seen)])


class Watcher(sweep.Trainable):
    """Keeps what it may use at every step; the second trial ends when that is the whole machine."""

    def setup(self, config):
        self.seen = []

    def step(self):
        cpu = self.trial_resources.required_resources["CPU"]
        self.seen.append(cpu)
        is_over = len(self.seen) == 2 if self.config["number"] == 0 else cpu == 4 or len(self.seen) == LONG
        return {"m": 1.0, "seen": changes_of(self.seen), "threads": os.environ["OMP_NUM_THREADS"], "done": is_over}

    def reset_config(self, new_config):
        self.seen = []
        return True

    def save_checkpoint(self, checkpoint_dir):
        return {"seen": self.seen}

    def load_checkpoint(self, checkpoint):
        self.seen = checkpoint["seen"]


@pytest.mark.parametrize("reuse_actors", [False, True])
def test_a_process_sees_what_it_was_given_and_goes_on_where_it_was(tmp_path, request, reuse_actors):
    request.addfinalizer(sweep.shutdown)
    sweep.init(num_cpus=4, num_gpus=0)
    scheduler = ResourceChangingScheduler()
    analysis = sweep.run(
        Watcher,
        config={"number": sweep.grid_search([0, 1])},
        metric="m",
        mode="max",
        scheduler=scheduler,
        resources_per_trial={"cpu": 1},
        reuse_actors=reuse_actors,
        storage_path=str(tmp_path),
        name="grow",
        seed=1,
        verbose=0,
    )
    first, second = (json.loads(trial.last_result["seen"]) for trial in analysis.trials)
    assert first == [1, 2]
    assert sorted(set(second)) in ([1, 2, 4], [1, 4])
    assert second == sorted(second)
    assert [trial.last_result["threads"] for trial in analysis.trials] == ["2", "4"]
    again = ResourceChangingScheduler()
    again.set_search_properties("m", "max", seed=1)
    retell(tmp_path / "grow" / "sweep.db", again, Recorder())
    assert again.state() == scheduler.state() == (None, [], {})
