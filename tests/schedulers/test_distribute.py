"""Sharing out machines: tables of who gets how much, and properties that hold on any machines."""

from __future__ import annotations

import pytest
from conformance.schedulers import tid
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.messages import PauseTrial, ResizeTrial
from sweep.core.packing import Packer
from sweep.core.resources import (
    Bundle,
    BundlePlacement,
    Device,
    Node,
    Placement,
    PlacementGroupFactory,
    Resources,
    parse_resources,
)
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.errors import ConfigError
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob, TrialsView
from sweep.schedulers.fifo import FIFOScheduler


def cpus(*amounts):
    return Resources(tuple(Bundle(cpu=float(amount)) for amount in amounts))


def gpus(number, kind="gpu"):
    return tuple(Device(f"{kind}{n}", kind) for n in range(number))


class Site:
    """Machines and the trials on them; every method changes what an allocation function sees."""

    def __init__(self, nodes, base, number, function=None):
        self.function = function or DistributeResources()
        self.scheduler = FIFOScheduler()
        self.scheduler.set_search_properties("m", "max")
        self.view = TrialsView()
        self.view.nodes, self.view.base_resources = tuple(nodes), base
        self.packer = Packer(nodes)
        self.trials = {}
        for n in range(number):
            self.add(n, base)

    def add(self, number, request):
        trial = Trial(tid(number), {}, request, Status.PENDING)
        self.view.add(trial)
        self.put(trial)
        self.start(number)

    def start(self, number):
        trial = self.trials[tid(number)]
        place = self.packer.place(trial.resources, (trial.id, 1))
        if place is not None:
            self.put(evolve(trial, status=Status.RUNNING, placement=place))

    def put(self, trial, **changes):
        self.trials[trial.id] = evolve(trial, **changes)
        self.view.see(self.trials)

    def score(self, number, value):
        self.put(self.trials[tid(number)], last_result=TrialResult({"m": value}))

    def ask(self, number):
        """Return what a trial is given after a result."""
        trial = self.trials[tid(number)]
        return self.function(self.view, trial, trial.last_result or TrialResult({}), self.scheduler)

    def turn(self, number):
        """Let a trial report, and start it again if it is given something else; whether it was."""
        trial = self.trials[tid(number)]
        if trial.status is not Status.RUNNING:
            self.start(number)
            return False
        wanted = self.ask(number)
        if wanted is None or wanted == trial.resources:
            return False
        self.packer.release((trial.id, 1))
        self.put(trial, status=Status.PENDING, placement=None, resources=wanted)
        self.start(number)
        return True

    def end(self, number):
        trial = self.trials[tid(number)]
        self.packer.release((trial.id, 1))
        self.view.remove(trial)
        self.put(trial, status=Status.TERMINATED, placement=None)

    def settle(self, most=30):
        """Let all report in turns until nothing changes; returns the requests of those that live."""
        for _ in range(most):
            live = [trial.number for trial in self.view.get_live_trials()]
            changes = [self.turn(number) for number in live]
            if not any(changes):
                return [trial.resources for trial in self.view.get_live_trials()]
        raise AssertionError("trials are resized to and fro")


def cpu_amounts(requests):
    return [request.total.cpu for request in requests]


# --- equal parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_cpus", "base", "number", "options", "amounts"),
    [
        (8, 1, 4, {}, [2, 2, 2, 2]),
        (8, 1, 3, {}, [3, 3, 2]),
        (8, 1, 1, {}, [8]),
        (8, 1, 8, {}, [1] * 8),
        (8, 1, 12, {}, [1] * 12),  # not all run: nobody gets more
        (8, 3, 2, {}, [4, 4]),
        (7, 2, 2, {"increase_by": {"CPU": 2}}, [4, 2]),
        (7, 2, 2, {"increase_by": {"cpu": 0.5}}, [3.5, 3.5]),
        (8, 1, 2, {"increase_by": {"CPU": 1}, "increase_by_times": 2}, [3, 3]),
        (8, 1, 2, {"increase_by_times": 1}, [2, 2]),
        (8, 1, 2, {"increase_by_times": 0}, [4, 4]),  # as in Tune: no limit
        (8, 1, 4, {"reserve_resources": {"CPU": 2}}, [2, 2, 1, 1]),
        (8, 1, 4, {"reserve_resources": {"CPU": 5}}, [1, 1, 1, 1]),  # the base is never taken away
        (8, 1, 4, {"reserve_resources": {"CPU": 99}}, [1, 1, 1, 1]),
        (1.5, 0.5, 2, {"increase_by": {"CPU": 0.25}}, [0.75, 0.75]),
        (0.9, 0.1, 3, {"increase_by": {"CPU": 0.1}}, [0.3, 0.3, 0.3]),
    ],
)
def test_every_trial_gets_an_equal_part_of_one_machine(num_cpus, base, number, options, amounts):
    site = Site([Node("n", num_cpus)], cpus(base), number, DistributeResources(**options))
    found = site.settle()
    assert cpu_amounts(found) == pytest.approx(amounts)
    assert cpu_amounts(site.settle(1)) == cpu_amounts(found), "nothing has changed, and trials were resized again"


def test_the_parts_grow_when_trials_end_and_shrink_when_trials_come():
    site = Site([Node("n", 8)], cpus(1), 4)
    history = [cpu_amounts(site.settle())]
    for number in (0, 2, 3):
        site.end(number)
        history.append(cpu_amounts(site.settle()))
    site.add(4, cpus(1))
    history.append(cpu_amounts(site.settle()))
    assert history == [[2, 2, 2, 2], [3, 3, 2], [4, 4], [8], [4, 4]]


@pytest.mark.parametrize(
    ("sizes", "number", "amounts"),
    [
        ((3, 3), 2, [3, 3]),
        ((3, 3), 3, [2, 2, 1]),  # a third part of two CPUs lies on neither machine
        ((4, 2), 2, [3, 2]),
        ((4, 4, 4), 3, [4, 4, 4]),
        ((4, 4), 1, [4]),  # a bundle lies on one machine
        ((1, 1, 1), 2, [1, 1]),
    ],
)
def test_a_part_never_needs_more_than_one_machine(sizes, number, amounts):
    site = Site([Node(f"n{n}", size) for n, size in enumerate(sizes)], cpus(1), number)
    assert cpu_amounts(site.settle()) == amounts
    assert all(trial.status is Status.RUNNING for trial in site.trials.values())


def test_devices_are_given_out_whole_and_as_legal_numbers_of_chips():
    site = Site([Node("n", 8, devices=gpus(5))], parse_resources({"cpu": 1, "gpu": 1}), 2)
    assert [r.bundles[0] for r in site.settle()] == [Bundle(cpu=1, gpu=3), Bundle(cpu=1, gpu=2)]
    site = Site([Node("n", 8, devices=gpus(8, "tpu"))], parse_resources({"tpu": 1}), 1)
    assert site.settle() == [parse_resources({"tpu": 8})]
    site = Site([Node("n", 8, devices=gpus(8, "tpu"))], parse_resources({"tpu": 1}), 3)
    assert [r.total.tpu for r in site.settle()] == [4, 2, 2]  # three chips are no block
    halves = DistributeResources(increase_by={"GPU": 0.5})
    site = Site([Node("n", 8, devices=gpus(3))], parse_resources({"gpu": 0.5}), 2, halves)
    assert [r.total.gpu for r in site.settle()] == [2, 1]


def test_memory_and_custom_things_grow_too():
    node = Node("n", 4, memory=8 * 2**30, custom={"licence": 3})
    unit = {"CPU": 1, "memory": 2**30, "licence": 1}
    base = parse_resources({"cpu": 1, "memory": "1GiB", "licence": 1})
    site = Site([node], base, 1, DistributeResources(increase_by=unit))
    assert site.settle() == [parse_resources({"cpu": 3, "memory": "3GiB", "licence": 3})]


def test_bundles_are_added_like_the_last_or_as_said():
    base = PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}])
    site = Site([Node("n", 8), Node("o", 4)], base, 2, DistributeResources(add_bundles=True))
    assert site.settle() == [cpus(1, 2, 2, 2), cpus(1, 2, 2)]
    unit = DistributeResources(add_bundles=True, increase_by={"CPU": 1}, increase_by_times=2)
    assert Site([Node("n", 8), Node("o", 4)], base, 1, unit).settle() == [cpus(1, 2, 1, 1)]


# --- what is done now, and what later --------------------------------------------------------------------------------


def test_a_trial_grows_only_into_what_is_free_now():
    site = Site([Node("n", 8)], cpus(1), 2)
    first = site.trials[tid(0)]
    site.packer.release((first.id, 1))
    site.put(first, status=Status.PENDING, resources=cpus(6))
    site.start(0)
    assert site.ask(1) == cpus(2)  # its part is 4, and 2 are free
    assert site.ask(0) == cpus(4)  # the other one shrinks at once
    assert cpu_amounts(site.settle()) == [4, 4]


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, 4),
        ({"status": Status.STOPPING, "next_status": Status.TERMINATED}, 4),
        ({"pending": ResizeTrial(tid(0), cpus(7))}, None),  # it is promised 7 of 8
        ({"pending": PauseTrial(tid(0))}, 4),
        ({"status": Status.PENDING, "resources": cpus(6), "placement": None}, 2),  # waits for 6
        ({"status": Status.PENDING, "resources": cpus(6)}, 2),  # its old attempt is about to leave
        ({"status": Status.PENDING, "resources": cpus(8)}, None),
        ({"status": Status.PAUSED, "placement": None}, 4),  # takes no room, and its part is kept
    ],
)
def test_what_others_hold_or_wait_for_is_not_free(changes, given):
    site = Site([Node("n", 8)], cpus(1), 2)
    site.put(site.trials[tid(0)], **changes)
    assert site.ask(1) == (None if given is None else cpus(given))


def test_half_free_devices_make_no_whole_one():
    site = Site(
        [Node("n", 4, devices=gpus(3))], parse_resources({"gpu": 0.5}), 5, DistributeResources(increase_by={"gpu": 0.5})
    )
    assert site.ask(0) is None  # it shares one, and the last of the others has the third: nobody is alone
    assert site.ask(4) == parse_resources({"gpu": 0.5})  # its part
    site.end(1)
    assert site.ask(0) == parse_resources({"gpu": 1})


def test_reserved_amounts_are_free_now_before_anybody_grows():
    site = Site([Node("n", 8)], cpus(1), 1, DistributeResources(reserve_resources={"CPU": 2}))
    site.put(Trial(tid(5), {}, cpus(4), Status.TERMINATED, placement=Placement((BundlePlacement("n"),))))
    site.view.remove(site.trials[tid(5)])
    assert site.ask(0) == cpus(2)


def test_a_request_that_is_no_step_is_brought_to_one():
    site = Site([Node("n", 8)], cpus(1), 2, DistributeResources(increase_by={"CPU": 2}))
    site.put(site.trials[tid(0)], resources=cpus(2.5))
    assert site.ask(0) == cpus(5)
    site.put(site.trials[tid(0)], resources=cpus(7.5))
    assert site.ask(0) == cpus(5)


# --- the best one gets it all ----------------------------------------------------------------------------------------


def test_the_best_trial_gets_what_is_free_and_gives_it_back_when_it_is_no_longer_the_best():
    site = Site([Node("n", 8)], cpus(1), 3, DistributeResourcesToTopJob())
    history = [cpu_amounts(site.settle())]
    for number, value in [(0, 0.5), (1, 0.9), (2, 0.9), (1, 0.1), (2, float("nan")), (0, float("nan"))]:
        site.score(number, value)
        history.append(cpu_amounts(site.settle()))
    assert history == [
        [1, 1, 1],  # nobody has reported
        [6, 1, 1],
        [1, 6, 1],
        [1, 6, 1],  # as good as the best is not better
        [1, 1, 6],
        [6, 1, 1],  # NaN is never the best: 0.5 is
        [1, 6, 1],
    ]


@pytest.mark.parametrize(
    ("options", "metric_of_run", "best"),
    [
        ({}, "m", 0),
        ({"mode": "min"}, "m", 1),
        ({"metric": "loss"}, None, 1),
        ({"metric": "loss", "mode": "min"}, "m", 0),
    ],
)
def test_metric_and_mode_are_those_given_or_those_of_the_run(options, metric_of_run, best):
    site = Site([Node("n", 8)], cpus(1), 2, DistributeResourcesToTopJob(**options))
    site.scheduler.metric, site.scheduler.mode = metric_of_run, None
    for number, values in enumerate([{"m": 2, "loss": 1}, {"m": 1, "loss": 2}]):
        site.put(site.trials[tid(number)], last_result=TrialResult(values))
    assert cpu_amounts(site.settle()) == [7, 1] if best == 0 else [1, 7]


def test_with_several_objectives_the_best_one_is_found_by_the_metric_given():
    site = Site([Node("n", 8)], cpus(1), 2, DistributeResourcesToTopJob(metric="m"))
    site.scheduler.metric, site.scheduler.mode = ["m", "cost"], ["min", "min"]
    site.score(1, 5)
    assert cpu_amounts(site.settle()) == [1, 7]
    with pytest.raises(ConfigError, match="or here where the run has several objectives"):
        DistributeResourcesToTopJob().check_metric(["m", "cost"])


def test_the_best_one_needs_a_metric():
    site = Site([Node("n", 8)], cpus(1), 2, DistributeResourcesToTopJob())
    site.scheduler.metric = None
    with pytest.raises(ConfigError, match="needs a metric to compare trials by: pass metric="):
        site.ask(0)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DistributeResources, DistributeResourcesToTopJob])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"increase_by": {"CPU": 0}}, "increase_by is {'CPU': 0}; expected amounts such as"),
        ({"increase_by": {"cpus": 1}}, "did you mean 'cpu'"),
        ({"increase_by": 2}, "increase_by is 2; expected amounts such as"),
        ({"reserve_resources": [1]}, r"reserve_resources is \[1\]; expected"),
        ({"increase_by_times": 1.5}, "increase_by_times is 1.5; expected a whole number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        kind(**options)


@pytest.mark.parametrize(("options", "message"), [({"metric": 3}, "metric is 3"), ({"mode": "up"}, "mode is 'up'")])
def test_a_metric_is_a_name_and_a_mode_is_min_or_max(options, message):
    with pytest.raises(ConfigError, match=message):
        DistributeResourcesToTopJob(**options)


@pytest.mark.parametrize(
    ("options", "base", "message"),
    [
        ({}, cpus(1, 1), r"trials ask for 2 bundles \(2 x \(cpu=1\) PACK\) and add_bundles is False; expected one"),
        ({"add_bundles": True}, Resources((Bundle(gpu=1),) * 2, distinct_devices=True), "a group keeps its size"),
        ({"add_bundles": True}, Resources((Bundle(tpu=4),) * 2, bundles_per_slice=2), "a group keeps its size"),
        (
            {},
            parse_resources({"gpu": 0.5}),
            "trials ask for gpu=0.5 and can grow by no number of gpu=1: GPUs are given",
        ),
        ({"increase_by": {"tpu": 8}}, parse_resources({"tpu": 8}), "can grow by no number of tpu=8"),
    ],
)
def test_requests_that_cannot_grow_are_refused(options, base, message):
    with pytest.raises(ConfigError, match=message):
        DistributeResources(**options).check(base)
    with pytest.raises(ConfigError, match=message):
        DistributeResourcesToTopJob(**options).check(base)


# --- what a function may see -----------------------------------------------------------------------------------------


def test_a_view_shows_machines_and_trials():
    site = Site([Node("n", 4, 2**30, gpus(2), {"licence": 1}), Node("o", 2)], cpus(1), 3)
    view = site.view
    assert view.total_resources == {"CPU": 6, "GPU": 2, "memory": 2**30, "licence": 1}
    site.end(1)
    assert [trial.number for trial in view.get_trials()] == [0, 1, 2]
    assert [trial.number for trial in view.get_live_trials()] == [0, 2]
    assert view.live_ids == [tid(0), tid(2)]
    assert view.num_live == 2
    assert [view.rank(site.trials[tid(n)]) for n in (0, 2)] == [0, 1]
    assert view.get_trial(tid(1)).status is Status.TERMINATED
    assert view.get_trial("nobody") is None
    view.add(site.trials[tid(1)])  # a person retries it
    view.add(site.trials[tid(1)])
    assert view.live_ids == [tid(0), tid(1), tid(2)]
    view.remove(site.trials[tid(1)])
    view.remove(site.trials[tid(1)])
    assert view.live_ids == [tid(0), tid(2)]


# --- on any machines -------------------------------------------------------------------------------------------------

SITES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=3).map(
    lambda sizes: [Node(f"n{n}", float(cpu), devices=gpus(gpu)) for n, (cpu, gpu) in enumerate(sizes)]
)
BASES = st.sampled_from([{"cpu": 1}, {"cpu": 0.5}, {"cpu": 2}, {"cpu": 1, "gpu": 1}, {"gpu": 0.5}, {"cpu": 1.5}])
UNITS = st.sampled_from([None, {"CPU": 1}, {"CPU": 0.5}, {"GPU": 0.5}, {"CPU": 1, "GPU": 1}])


@settings(max_examples=150, deadline=None)
@given(
    nodes=SITES,
    base=BASES.map(parse_resources),
    unit=UNITS,
    number=st.integers(1, 7),
    reserve=st.integers(0, 3),
    adds=st.booleans(),
    is_to_top=st.booleans(),
    ends=st.lists(st.integers(0, 6), max_size=4),
)
def test_all_requests_together_always_lie_on_the_machines(nodes, base, unit, number, reserve, adds, is_to_top, ends):
    options = {"add_bundles": adds, "increase_by": unit, "reserve_resources": {"CPU": reserve} if reserve else None}
    kind = DistributeResourcesToTopJob if is_to_top else DistributeResources
    try:
        kind(**options).check(base)
    except ConfigError:
        options["increase_by"] = dict(zip(("CPU", "GPU"), (0, 0.5), strict=True)) if base.total.gpu else {"CPU": 1}
    site = Site(nodes, base, number, kind(**options))
    for n in range(number):
        site.score(n, (3 * n) % 7)
    whole = Packer(nodes)
    is_room_for_all = [whole.place(base, (str(n), 1)) for n in range(number)].count(None) == 0
    have = sum(node.cpus for node in nodes)
    for ended in [None, *ends]:
        if ended is not None and tid(ended) in site.trials and not site.trials[tid(ended)].is_ended:
            site.end(ended)
        live = site.settle()
        if not is_room_for_all:
            continue
        packer = Packer(nodes)
        order = sorted(range(len(live)), key=lambda n: (-len(live[n].bundles), -live[n].total.cpu, -live[n].total.gpu))
        assert all(packer.place(live[n], (str(n), 1)) is not None for n in order), live
        assert all(trial.status is Status.RUNNING for trial in site.view.get_live_trials()), "somebody waits for ever"
        used = sum(request.total.cpu for request in live)
        assert used <= max(have - reserve, len(live) * base.total.cpu) + 1e-6
        for request in live:
            assert request.total.cpu >= base.total.cpu
            assert request.total.gpu >= base.total.gpu
