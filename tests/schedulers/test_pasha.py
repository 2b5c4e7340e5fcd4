"""PASHA: whole lists of decisions, the noise it estimates, and sweeps in virtual time that cost less than ASHA's."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from conformance.schedulers import Told, tid
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_run import given_configs

from sweep.core.messages import PauseTrial, ResumeTrial, StopTrial
from sweep.core.trial import CheckpointRef, Status
from sweep.engines.simulator import Point
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler, crossing
from sweep.simulation.virtual import simulate


def pasha(mode="max", **arguments):
    scheduler = PASHAScheduler(**{"reduction_factor": 2, **arguments})
    scheduler.set_search_properties("m", mode)
    return Told(scheduler)


def reach(told, number, time, m):
    """Report one result; the trial runs on whatever was decided, as if it had been promoted or could not be paused."""
    if tid(number) not in told.trials:
        told.add(number)
    told.put(number, checkpoint=CheckpointRef("c", time))
    decisions = told.report(number, training_iteration=time, m=m)
    return [(type(d), int(d.trial_id[-5:])) for d in decisions]


def opened(told):
    return told.scheduler.current_max_t


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_the_next_rung_opens_when_the_rankings_differ(mode, sign):
    told = pasha(mode, rungs=[1, 2, 4, 8])
    assert reach(told, 0, 1, sign * 0.1) == [(PauseTrial, 0)]
    assert reach(told, 1, 1, sign * 0.3) == []
    assert reach(told, 2, 1, sign * 0.2) == [(PauseTrial, 2)]
    assert reach(told, 3, 1, sign * 0.4) == []
    assert reach(told, 1, 2, sign * 0.5) == [(PauseTrial, 1)]
    assert reach(told, 3, 2, sign * 0.6) == [(PauseTrial, 3)]  # nobody is promoted from the top rung
    assert reach(told, 4, 1, sign * 0.35) == []
    assert reach(told, 5, 1, sign * 0.0) == [(PauseTrial, 5)]
    assert reach(told, 4, 2, sign * 0.55) == [(PauseTrial, 4)]
    assert opened(told) == 2
    assert reach(told, 6, 1, sign * 0.9) == []
    assert reach(told, 6, 2, sign * 0.1) == [(ResumeTrial, 3), (ResumeTrial, 4), (PauseTrial, 6)]
    assert opened(told) == 4
    assert reach(told, 3, 4, sign * 0.7) == [(PauseTrial, 3)]
    assert reach(told, 4, 4, sign * 0.6) == [(PauseTrial, 4)]
    assert opened(told) == 4


CURVES = {
    0: [0.50, 0.60, 0.70, 0.80],
    1: [0.52, 0.58, 0.72, 0.78],  # crosses the first one again and again: 0.02 is noise
    2: [0.90, 0.615, 0.73, 0.79],  # falls behind the first one once, by what is noise
    3: [0.95, 0.625, 0.74, 0.79],  # and this one by more
}


def run_curve(told, number, curve):
    for time, m in enumerate(curve, 1):
        reach(told, number, time, m)


def test_a_ranking_that_differs_by_noise_opens_nothing():
    told = pasha(rungs=[2, 4, 8])
    run_curve(told, 0, CURVES[0])
    assert told.scheduler.epsilon == 0
    run_curve(told, 1, CURVES[1])
    assert told.scheduler.epsilon == pytest.approx(0.02)
    run_curve(told, 2, CURVES[2])
    assert (opened(told), told.scheduler.state()[2]) == (4, 1)
    run_curve(told, 3, CURVES[3])
    assert opened(told) == 8
    assert told.scheduler.epsilon == pytest.approx(0.02)  # until the new rung tells otherwise
    assert told.scheduler.state()[2] == 0


@pytest.mark.parametrize(("percentile", "expected"), [(0, 0.1), (50, 0.3), (75, 0.35), (90, 0.38), (100, 0.4)])
def test_epsilon_is_the_percentile_that_was_asked_for(percentile, expected):
    told = pasha(rungs=[1, 3, 9], noise_percentile=percentile)
    # all cross each other; at the end they differ by 0.1, 0.4 and 0.3
    for number, curve in enumerate([[1.0, 0.0, 1.0], [0.9, 0.2, 0.9], [0.6, 0.5, 0.6]]):
        run_curve(told, number, curve)
    assert told.scheduler.epsilon == pytest.approx(expected)


curve_values = st.lists(st.one_of(st.integers(0, 3).map(float), st.just(math.nan)), min_size=6, max_size=6)


@settings(max_examples=80)
@given(st.lists(st.tuples(curve_values, st.sets(st.integers(0, 4))), max_size=7))
def test_crossings_are_those_of_the_definition(given_curves):
    """Compared with all triples of times, for curves with gaps."""
    curves = [{t: v for t, v in enumerate(c) if t not in gaps} for c, gaps in given_curves]
    for curve, other in combinations(curves, 2):
        common = sorted(t for t in curve if t in other)
        end = curve[5] - other[5]
        is_crossing = any(
            (curve[j] - other[j]) * end < 0 < (curve[i] - other[i]) * end for i, j in combinations(common, 2)
        )
        assert crossing(curve, other, 5) == (abs(end) if is_crossing and math.isfinite(end) else None)


def test_nan_ranks_last_and_is_never_promoted():
    told = pasha(rungs=[1, 2, 4])
    for number in range(3):
        assert reach(told, number, 1, math.nan) == [(PauseTrial, number)]
    assert reach(told, 3, 1, 0.5) == []
    assert reach(told, 4, 1, 0.7) == []
    reach(told, 3, 2, math.nan)
    reach(told, 4, 2, 0.1)
    assert opened(told) == 2  # worse below, and NaN at the top: no contradiction
    assert told.scheduler.epsilon == 0


def test_reports_that_lie_far_apart_are_tolerated():
    told = pasha(rungs=[1, 2, 4, 8, 16])
    assert reach(told, 0, 8, 1.0) == [(PauseTrial, 0)]
    assert reach(told, 1, 4, 1.0) == [(PauseTrial, 1)]
    for number, (first, second) in enumerate([(0.1, 0.9), (0.2, 0.1)], 2):
        reach(told, number, 1, first)
        reach(told, number, 2, second)
    assert opened(told) == 4


def test_when_nothing_runs_all_that_wait_are_stopped_in_the_end():
    told = pasha(rungs=[1, 2, 4])
    for number in range(4):
        reach(told, number, 1, number)
        told.put(number, status=Status.PAUSED)
    reach(told, 3, 2, 3)
    first = told.scheduler.on_idle(told.trials)
    assert [(type(d), d.trial_id) for d in first] == [
        (ResumeTrial, tid(1)),
        (ResumeTrial, tid(2)),
        (StopTrial, tid(0)),
    ]
    for number in (0, 1, 2):
        told.put(number, status=Status.TERMINATED)
        told.end(number)
    assert told.scheduler.on_idle(told.trials) == [
        StopTrial(tid(3), "not needed beyond 2: the ranking did not change there")
    ]


def cost(scheduler, value):
    """Return the sum of epochs and the best config of 81 in virtual time."""

    def curve(config, count):
        for step in range(count + 1, 28):
            yield Point(1.0, {"m": value(config["x"], step)}, has_checkpoint=True)

    run = simulate(
        curve,
        metric="m",
        mode="max",
        num_samples=-1,
        search_alg=given_configs({"x": (37 * n % 81) / 81} for n in range(81)),
        scheduler=scheduler,
        cpus=2,
    )
    assert all(trial.status is Status.TERMINATED for trial in run.trials)
    return len(run.arrivals), max(trial.count for trial in run.trials), run.best_trial.config["x"]


def test_where_rankings_are_stable_it_costs_a_fraction_of_asha_and_finds_the_same():
    def stable(x, step):
        return x - 1 / (1 + step)

    pasha_cost, furthest, best = cost(PASHAScheduler(max_t=27, reduction_factor=3), stable)
    asha_cost, to_the_end, best_of_asha = cost(ASHAScheduler(max_t=27, reduction_factor=3, type="promotion"), stable)
    assert (furthest, to_the_end) == (3, 27)
    assert best == best_of_asha == 80 / 81
    assert pasha_cost < 0.6 * asha_cost


def test_where_they_are_not_it_is_asha():
    def crossing(x, step):
        return x * step if step < 3 else math.sin(50 * x * step) + step

    arguments = {"max_t": 27, "reduction_factor": 3}
    assert cost(PASHAScheduler(**arguments), crossing)[1] == 27
