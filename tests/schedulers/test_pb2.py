"""Population based bandits: what is learned of each interval, what the model chooses of it, and whether that helps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conformance.schedulers import Told, tid

from searchers.space import uniform
from sweep.core.messages import CloneTrial, PauseTrial, ResumeTrial
from sweep.core.trial import CheckpointRef, Status
from sweep.engines.simulator import Point
from sweep.errors import ConfigError
from sweep.schedulers.gaussian_process import Gain, choose_point
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.simulation.virtual import simulate


def scheduler_of(mode="max", seed=0, **arguments):
    scheduler = PB2(
        **{
            "time_attr": "training_iteration",
            "perturbation_interval": 2,
            "hyperparam_bounds": {"x": [0, 10]},
            **arguments,
        }
    )
    scheduler.set_search_properties("m", mode, seed=seed)
    return scheduler


def population(num_trials=2, *, mode="max", seed=0, **arguments):
    """Return a told population of trials with x = 0, 1, 2 ...; every second step is a perturbation point."""
    told = Told(scheduler_of(mode, seed, **arguments), num_trials)
    for number in range(num_trials):
        told.put(number, config={"x": float(number), "other": "kept"})
    return told


def report(told, number, m, *, saved=True, **more):
    """Report once, with a checkpoint that the trial saved by then."""
    count = told.trials[tid(number)].count + 1
    if saved:
        told.put(number, checkpoint=CheckpointRef(f"{tid(number)}/checkpoint_{count:06d}", count, count))
    return told.report(number, m=m, **more)


def gains(told):
    return told.scheduler.state()[4]


def begin(told, number):
    return told.scheduler.state()[5][tid(number)][1]


# --- what is learned -------------------------------------------------------------------------------------------------


def test_every_interval_is_a_gain_per_unit_of_time_at_its_start_and_its_place_in_the_bounds():
    told = population(1)
    for m in [1.0, 4.0, 5.0, 9.0, 9.0, 7.0]:
        report(told, 0, m)
    assert gains(told) == [Gain(0.5, 1.0, (0.0,), 3.0), Gain(1.0, 4.0, (0.0,), 2.5), Gain(2.0, 9.0, (0.0,), -1.0)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, math.nan, 2.0, 3.0, 4.0, 5.0], [-math.inf, 1.0]),  # what diverged; its score says nothing of the next
        ([math.nan, 1.0, 2.0, 3.0], [1.0]),
        ([1.0, -math.inf, 2.0, 3.0], [-math.inf]),
        ([1.0, math.inf, 2.0, 3.0], [1e100, -5e99]),
        ([1e308, -1e308], [-2e100]),
    ],
)
def test_scores_that_cannot_be_subtracted_are_told_apart(values, expected):
    told = population(1)
    for m in values:
        report(told, 0, m)
    assert [gain.gain for gain in gains(told)] == [max(g, -1e100) if math.isfinite(g) else g for g in expected]


def test_an_interval_of_a_trial_without_a_number_is_not_learned_from():
    told = population(2)
    told.put(0, config={"x": "auto"})
    told.put(1, config={})
    for number in (0, 1):
        for m in (1.0, 2.0):
            report(told, number, m)
    assert gains(told) == []


def test_a_clone_begins_with_the_score_that_the_checkpoint_had():
    told = population(2)
    for m in [1.0, 5.0, 8.0]:
        report(told, 0, m, saved=m == 5.0)
    report(told, 1, 0.0)
    (clone,) = report(told, 1, 0.0)
    assert isinstance(clone, CloneTrial)
    assert (clone.trial_id, clone.source_id, clone.config["other"]) == (tid(1), tid(0), "kept")
    assert begin(told, 1) == (2, 5.0)
    told.put(1, config=clone.config, attempt=2, count=2)
    report(told, 1, 6.0)
    report(told, 1, 9.0)
    assert gains(told)[-1] == Gain(1.0, 5.0, (clone.config["x"] / 10,), 2.0)


@pytest.mark.parametrize("has_gone_on", [False, True])
def test_a_checkpoint_that_was_saved_on_demand_belongs_to_the_report_before(has_gone_on):
    told = population(2)
    report(told, 0, 1.0, saved=False)
    report(told, 0, 5.0, saved=False)
    told.put(0, checkpoint=CheckpointRef(f"{tid(0)}/checkpoint_000002", 2, 2))
    if has_gone_on:
        report(told, 0, 8.0, saved=False)
    report(told, 1, 0.0)
    report(told, 1, 0.0)
    assert begin(told, 1) == (2, 5.0)


def test_the_checkpoint_that_a_clone_took_over_is_none_of_its_own():
    told = population(2)
    for m in [1.0, 5.0]:
        report(told, 0, m)
    report(told, 1, 0.0)
    (clone,) = report(told, 1, 0.0)
    ref = told.trials[tid(0)].checkpoint
    told.put(1, config=clone.config, checkpoint=ref, count=2, attempt=2)
    report(told, 1, 6.0, saved=False)
    report(told, 1, 7.0, saved=False)  # it is better now, and what it can give is still the 5.0 at 2
    for m in (0.0, 0.0):
        answer = report(told, 0, m)
    assert (answer[0].trial_id, answer[0].source_id) == (tid(0), tid(1))
    assert begin(told, 0) == (2, 5.0)


def test_an_interval_in_which_somebody_else_changed_the_config_begins_anew():
    told = population(1)
    report(told, 0, 1.0)
    report(told, 0, 2.0)
    told.put(0, config={"x": 5.0})
    report(told, 0, 10.0)
    report(told, 0, 11.0)
    assert gains(told)[1:] == [Gain(1.5, 10.0, (0.5,), 1.0)]


# --- what is chosen --------------------------------------------------------------------------------------------------


def choice(gained, running=(), *, seed=0, time=10.0, score=0.0, num_dimensions=2):
    return choose_point(
        gained, running, time=time, score=score, num_dimensions=num_dimensions, rng=np.random.default_rng(seed)
    )


def bowl(number, *, at=(0.3, 0.7), seed=1, time=10.0, noise=0.01):
    """Return gains that are largest at a point."""
    rng = np.random.default_rng(seed)
    points = rng.random((number, 2))
    return [
        Gain(time, 0.0, tuple(map(float, p)), -float(((p - at) ** 2).sum()) + noise * rng.standard_normal())
        for p in points
    ]


@pytest.mark.parametrize("at", [(0.3, 0.7), (0.0, 1.0)])
def test_after_enough_gains_the_point_is_where_they_are_largest(at):
    assert math.dist(choice(bowl(60, at=at)), at) < 0.15


def test_the_choice_does_not_depend_on_the_scale_or_the_order_of_the_gains():
    some = bowl(20)
    scaled = [Gain(one.time, one.score, one.point, 1000.0 * one.gain - 5.0) for one in some]
    assert choice(scaled) == pytest.approx(choice(some), abs=1e-3)
    by_time = [Gain(float(i), 0.0, one.point, one.gain) for i, one in enumerate(some)]
    assert choice(by_time[::-1]) == choice(by_time)


def test_what_was_good_long_ago_counts_less_than_what_is_good_now():
    moved = bowl(40, at=(0.1, 0.1), time=0.0) + bowl(40, at=(0.9, 0.9), seed=2, time=200.0)
    assert math.dist(choice(moved, time=200.0), (0.9, 0.9)) < 0.25
    assert math.dist(choice(moved, time=0.0), (0.1, 0.1)) < 0.25


def test_points_that_run_already_are_kept_away_from():
    few = [Gain(9.0, 0.0, (x, x), 1.0) for x in (0.2, 0.5, 0.8)]
    chosen = [choice(few)]
    for _ in range(3):
        chosen.append(choice(few, [Gain(10.0, 0.0, point, 0.0) for point in chosen]))
    assert min(math.dist(a, b) for i, a in enumerate(chosen) for b in chosen[:i]) > 0.3
    known = [Gain(10.0, 0.0, point, 123.0) for point in chosen[:3]]
    assert choice(few, known) == chosen[3]  # what they will gain is not known


def test_where_training_diverged_is_avoided():
    """Everywhere else the score falls, so that a gain of nothing would look good."""
    told = [Gain(10.0, 0.0, (x / 10, y), -math.inf) for x in range(5) for y in (0.2, 0.5, 0.8)]
    told += [Gain(10.0, 0.0, one.point, one.gain - 1.0) for one in bowl(30, at=(0.7, 0.5)) if one.point[0] > 0.4]
    assert math.dist(choice(told), (0.7, 0.5)) < 0.2


@pytest.mark.parametrize(
    "gained", [[0.1] * 9, [-math.inf] * 3, [1e100, -1e100, 0.0], [1e-320, 2e-320], [-math.inf, 1.0], [5.0]]
)
def test_strange_gains_give_a_point_of_the_cube_without_a_warning(gained):
    for scale in (1e-310, 1e-100, 1e100):
        told = [Gain(0.0, scale * i, (0.5, 0.5), gain) for i, gain in enumerate(gained)]
        assert all(0.0 <= value <= 1.0 for value in choice(told, score=1e100))
        assert all(0.0 <= value <= 1.0 for value in choice(told, told, score=-1e100, time=1e6))


def test_new_values_lie_within_the_bounds_and_keep_what_they_are():
    bounds = {"x": [1, 5], "net": {"width": [16, 128], "rate": (0.1, 0.2)}, "new": [-3, -2], "few": [0.2, 0.8]}
    configs = []
    for seed in range(6):
        told = population(2, hyperparam_bounds=bounds, seed=seed)
        for number in (0, 1):
            told.put(number, config={"x": 3, "net": {"width": 20, "rate": 0.1, "kept": [1]}, "few": 7, "y": None})
        for number in (0, 1):
            report(told, number, 1.0 - number)
            answer = report(told, number, 1.0 - number)
        configs.append(answer[0].config)
        assert told.trials[tid(0)].config["net"]["width"] == 20  # the source's own is untouched
    for config in configs:
        assert config["x"] in range(1, 6)
        assert config["net"]["width"] in range(16, 129)
        assert {type(config["x"]), type(config["net"]["width"])} == {int}
        assert 0.1 <= config["net"]["rate"] <= 0.2
        assert -3 <= config["new"] <= -2
        assert config["few"] == 7  # no whole number lies in its bounds
        assert (config["net"]["kept"], config["y"]) == ([1], None)
    assert len({config["net"]["width"] for config in configs}) > 3


# --- in step ---------------------------------------------------------------------------------------------------------


def in_step():
    told = population(6, synch=True, quantile_fraction=0.5)
    for number in range(6):
        report(told, number, 0.0)
    for number in range(6):
        assert [type(one) for one in report(told, number, float(number))] == [PauseTrial]
        told.put(number, status=Status.PAUSED)
    return told


def test_at_a_barrier_each_clone_is_chosen_knowing_those_before_it(monkeypatch):
    asked = []

    def choose(gains, running, **more):
        asked.append((gains, set(running), more["time"], more["score"]))
        return (0.25 * len(asked),)

    monkeypatch.setattr("sweep.schedulers.pb2.choose_point", choose)
    told = in_step()
    decisions = told.scheduler.on_idle(told.trials)
    assert decisions[:3] == [ResumeTrial(tid(number)) for number in (3, 4, 5)]
    sources = [int(clone.source_id[-1]) for clone in decisions[3:]]
    assert [(d.trial_id, d.config["x"]) for d in decisions[3:]] == [(tid(0), 2.5), (tid(1), 5.0), (tid(2), 7.5)]
    gained = [Gain(0.5, 0.0, (number / 10,), float(number)) for number in range(6)]
    under_way = [Gain(1.0, float(number), (number / 10,), 0.0) for number in (5, 4, 3, 2, 1, 0)]
    first, second = Gain(1.0, float(sources[0]), (0.25,), 0.0), Gain(1.0, float(sources[1]), (0.5,), 0.0)
    assert asked == [
        (gained, set(under_way[:5]), 1.0, float(sources[0])),
        (gained, {first, *under_way[:4]}, 1.0, float(sources[1])),
        (gained, {second, first, *under_way[:3]}, 1.0, float(sources[2])),
    ]


def test_what_has_ended_is_not_under_way_any_more(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "sweep.schedulers.pb2.choose_point", lambda gains, running, **more: asked.append(running) or (0,)
    )
    told = population(4)
    for number in range(4):
        report(told, number, 9.0 - number)
    told.end(2)
    for number in (0, 1):
        report(told, number, 9.0)
    (clone,) = report(told, 3, 0.0)
    assert clone.config["x"] == 0.0
    assert asked == [[Gain(1.0, 9.0, (0.1,), 0.0), Gain(1.0, 9.0, (0.0,), 0.0)]]


def test_what_runs_on_beyond_the_barrier_has_one_interval():
    told = population(2, synch=True)
    for m in [1.0, 2.0, 4.0, 8.0]:
        report(told, 0, m, saved=False)
    assert gains(told) == [Gain(0.5, 1.0, (0.0,), 1.0)]


def test_a_clone_that_a_person_kept_from_its_barrier_is_not_taken_for_one_afterwards():
    live, again = in_step(), in_step()
    live.put(0, is_by_person=True)
    live.scheduler.on_idle(live.trials)
    for number in (3, 0):
        again.put(number, status=Status.RUNNING, attempt=2)
        again.report(number, m=7.0)
    assert begin(again, 0) == (3, 7.0)  # its config is the old one: the interval begins where it is seen


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (None, "nothing is given that could be changed: pass hyperparam_bounds="),
        ([0, 1], "hyperparam_bounds is [0, 1]; expected a dict of config keys"),
        ({"x": 3}, "hyperparam_bounds['x'] is 3; expected two finite numbers [low, high]"),
        ({"x": [1, 2, 3]}, "hyperparam_bounds['x'] is [1, 2, 3]"),
        ({"x": [False, True]}, "hyperparam_bounds['x'] is [False, True]"),
        ({"x": [0, math.inf]}, "hyperparam_bounds['x'] is [0, inf]"),
        ({"x": uniform(0, 1)}, "hyperparam_bounds['x'] is "),
        (
            {"x": [2, 1]},
            "hyperparam_bounds['x'] is [2, 1]; expected two finite numbers [low, high], the lower one first",
        ),
        ({"x": [0, 1], "net": {"w": (5, 4)}}, "hyperparam_bounds['net']['w'] is (5, 4)"),
    ],
)
def test_wrong_bounds_are_named(bounds, words):
    with pytest.raises(ConfigError) as error:
        PB2(hyperparam_bounds=bounds)
    assert words in str(error.value)


def test_a_config_is_completed_within_the_bounds_by_seed_and_number():
    bounds = {"x": [2, 3], "net": {"w": [16, 32], "d": [0, 1]}, "plain": {"z": [0, 1]}}
    scheduler = scheduler_of(hyperparam_bounds=bounds)
    given = {"y": 1, "net": {"d": 7}, "plain": 3}
    first = scheduler.complete_config(given, 3)
    assert scheduler.mutated_paths == ("x", "net/w", "net/d", "plain/z")
    assert first == scheduler.complete_config(given, 3)
    assert first["x"] != scheduler.complete_config(given, 4)["x"]
    assert first["x"] != scheduler_of(seed=1, hyperparam_bounds=bounds).complete_config(given, 3)["x"]
    assert 2 <= first["x"] <= 3
    assert 16 <= first["net"]["w"] <= 32
    assert (first["y"], first["net"]["d"], first["plain"]) == (1, 7, 3)
    assert given == {"y": 1, "net": {"d": 7}, "plain": 3}
    assert scheduler.complete_config({**first, "plain": {"z": 0.5}}, 9) == {**first, "plain": {"z": 0.5}}


# --- sweeps in virtual time ------------------------------------------------------------------------------------------


def climb(config, count, state):
    """Yield a growing total; the values that let it grow most drift through the square."""
    total = state or 0.0
    for step in range(count + 1, 61):
        best = (0.2 + 0.6 * step / 60, 0.8 - 0.5 * step / 60)
        total += math.exp(-((config["x"] - best[0]) ** 2 + (config["y"] - best[1]) ** 2) / (2 * 0.15**2))
        yield Point(1.0, {"m": total}, True, total)


def best_of(scheduler, seed):
    config = {"x": uniform(0, 1), "y": uniform(0, 1)}
    found = simulate(
        climb, config=config, metric="m", mode="max", num_samples=4, scheduler=scheduler, cpus=4, seed=seed
    )
    return found.best_result["m"], [trial.config for trial in found.trials]


def bandit(synch):
    bounds = {"x": [0, 1], "y": [0, 1]}
    return PB2("training_iteration", perturbation_interval=5, hyperparam_bounds=bounds, synch=synch)


@pytest.mark.parametrize("synch", [False, True])
def test_with_four_trials_it_follows_a_drifting_optimum_better_than_random_changes_do(synch):
    won = []
    for seed in range(3):
        mutations = {"x": uniform(0, 1), "y": uniform(0, 1)}
        other = PopulationBasedTraining(
            "training_iteration", perturbation_interval=5, hyperparam_mutations=mutations, synch=synch
        )
        won.append(best_of(bandit(synch), seed)[0] / best_of(other, seed)[0])
    assert sorted(won)[1] > 1.2
