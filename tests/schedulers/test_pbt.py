"""Population based training: whole lists of decisions, turns, barriers, and a moving optimum that it follows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conformance.schedulers import Told, tid
from sweep_run import in_virtual_time, new_sweep

from searchers.space import loguniform, uniform
from sweep.core.messages import CloneTrial, PauseTrial, ResizeTrial, ResumeTrial, SaveTrial
from sweep.core.resources import Placement
from sweep.core.trial import CheckpointRef, Status
from sweep.engines.simulator import Point
from sweep.errors import MetricError
from sweep.schedulers import create_scheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.pbt import PopulationBasedTraining


def population(num_trials=4, *, mode="max", seed=0, saved=True, **arguments):
    """Return a told population of trials with x = 0, 1, 2 ...; each step it perturbs is the second."""
    scheduler = PopulationBasedTraining(
        **{
            "time_attr": "training_iteration",
            "perturbation_interval": 2,
            "hyperparam_mutations": {"x": lambda: 100.0},
            "resample_probability": 0.0,
            "perturbation_factors": (10.0,),
            **arguments,
        }
    )
    scheduler.set_search_properties("m", mode, seed=seed)
    told = Told(scheduler, num_trials)
    for number in range(num_trials):
        ref = CheckpointRef(f"{tid(number)}/checkpoint_000001", 1, 1) if saved else None
        told.put(number, checkpoint=ref, config={"x": float(number)})
    return told


def two_steps(told, number, m):
    """Report twice; returns what was decided at the second report, the first being within the interval."""
    assert told.report(number, m=m) == ()
    return told.report(number, m=m)


def test_the_best_save_the_worst_continue_from_them_and_the_others_go_on():
    told = population()
    assert two_steps(told, 0, 5.0) == ()  # alone, there are no quantiles
    assert two_steps(told, 1, 7.0) == [SaveTrial(tid(1))]
    assert two_steps(told, 2, 6.0) == ()
    assert two_steps(told, 3, 1.0) == [CloneTrial(tid(3), tid(1), {"x": 10.0})]
    assert told.scheduler.debug_string() == "PopulationBasedTraining: 1 checkpoints, 1 perturbs"


def test_a_clone_counts_its_interval_from_where_its_source_did():
    told = population(2)
    two_steps(told, 0, 9.0)
    told.report(1, m=1.0)
    assert told.report(1, m=1.0, training_iteration=7)
    assert told.report(1, m=1.0, training_iteration=3) == ()  # it continues at 3: 2 + 2 is the next point
    assert [type(d) for d in told.report(1, m=1.0, training_iteration=4)] == [CloneTrial]


def test_nothing_is_decided_within_the_burn_in_period():
    told = population(2, burn_in_period=5)
    for _ in range(4):
        assert told.report(0, m=9.0) == ()
        assert told.report(1, m=1.0) == ()
    told.report(0, m=9.0)
    assert [type(d) for d in told.report(1, m=1.0)] == [CloneTrial]


def test_nan_is_the_worst_and_never_a_source():
    told = population(3, quantile_fraction=0.5)
    two_steps(told, 0, math.nan)
    assert two_steps(told, 1, math.nan) == [SaveTrial(tid(1))]  # of two equals the younger
    assert two_steps(told, 2, 0.0) == [SaveTrial(tid(2))]
    assert two_steps(told, 1, math.nan) == ()
    (clone,) = two_steps(told, 0, math.nan)
    assert (clone.trial_id, clone.source_id) == (tid(0), tid(2))


def test_trials_that_ended_are_no_part_of_the_population():
    told = population(3)
    two_steps(told, 0, 9.0)
    two_steps(told, 1, 5.0)
    told.end(0)
    assert [d.source_id for d in two_steps(told, 2, 1.0)] == [tid(1)]


def test_a_source_that_never_saved_is_skipped_and_that_is_said_once():
    told = population(2, saved=False)
    two_steps(told, 0, 9.0)
    for _ in range(3):
        assert two_steps(told, 1, 1.0) == ()
    assert len(told.scheduler.notices) == 1
    assert "none of the best trials has saved a checkpoint" in told.scheduler.notices[0]
    told.put(0, checkpoint=CheckpointRef("x"))
    assert [type(d) for d in two_steps(told, 1, 1.0)] == [CloneTrial]


def test_a_clone_may_be_a_source_though_it_never_saved_itself():
    """When a record is told again, what a clone started from is not known, only that it did."""
    told = population(3)
    told.put(1, checkpoint=None)
    two_steps(told, 0, 5.0)
    assert [type(d) for d in two_steps(told, 1, 1.0)] == [CloneTrial]
    two_steps(told, 1, 9.0)
    assert [d.source_id for d in two_steps(told, 2, 0.0)] == [tid(1)]


def test_the_source_is_drawn_by_seed_trial_and_point_alone():
    def sources(seed):
        told = population(8, seed=seed, quantile_fraction=0.5)
        for number in range(4, 8):
            two_steps(told, number, 9.0)
        return [two_steps(told, number, 1.0)[0].source_id for number in range(4)]

    drawn = [sources(seed) for seed in range(12)]
    assert drawn == [sources(seed) for seed in range(12)]
    assert {source for some in drawn for source in some} == {tid(number) for number in range(4, 8)}


def test_a_result_without_the_metric_is_an_error_that_says_what_to_do():
    told = population(1)
    with pytest.raises(MetricError) as error:
        told.report(0, other=1.0)
    assert "a result lacks 'm'" in str(error.value)
    assert "require_attrs=False" in str(error.value)
    with pytest.raises(MetricError, match="lacks 'training_iteration' and 'm'"):
        told.report(0, training_iteration=None)
    with pytest.raises(MetricError, match="lacks a number as 'training_iteration'"):
        told.report(0, training_iteration="one", m=1.0)


def test_without_require_attrs_such_a_result_decides_nothing_and_that_is_said_once():
    told = population(1, require_attrs=False)
    assert told.report(0, other=1.0) == ()
    assert told.report(0, other=1.0) == ()
    assert told.scheduler.notices == [
        "a result lacks 'm', which PopulationBasedTraining judges by. Report it with every result; such results decide "
        "nothing."
    ]


# --- taking turns ----------------------------------------------------------------------------------------------------


def turn(told):
    return [ResizeTrial(tid(0), told.trials[tid(0)].resources)]


def test_who_comes_to_a_point_while_others_wait_goes_to_the_end_of_the_queue():
    told = population()
    told.put(3, status=Status.PENDING)
    assert two_steps(told, 0, 1.0) == turn(told)
    told.put(0, pending=SaveTrial(tid(0)))
    assert two_steps(told, 0, 1.0) == turn(told)


def test_one_of_the_worst_makes_room_by_becoming_a_clone():
    told = population()
    told.put(3, status=Status.PENDING)
    two_steps(told, 1, 9.0)
    assert [type(d) for d in two_steps(told, 0, 1.0)] == [CloneTrial]


@pytest.mark.parametrize("why", ["it is about to start", "it ended", "it cannot be paused", "a person pauses it"])
def test_it_goes_on_if(why):
    told = population(saved=why != "it cannot be paused")
    told.put(3, status=Status.PENDING)
    if why == "it is about to start":
        told.put(3, placement=Placement(()))
    elif why == "it ended":
        told.end(3)
    elif why == "it cannot be paused":
        told.scheduler.on_refused(told.trials[tid(0)], turn(told)[0])
        assert "cannot pause" in told.scheduler.notices[0]
    else:
        told.put(0, pending=PauseTrial(tid(0)))
    assert two_steps(told, 0, 1.0) == ()


def test_a_trial_that_ended_and_came_back_has_its_score_and_is_the_youngest():
    told = population(4)
    for number, m in enumerate([5.0, 3.0, 5.0, 4.0]):
        two_steps(told, number, m)
    told.end(0)
    told.end(1)
    told.put(0, status=Status.RUNNING, attempt=2)
    told.scheduler.on_trial_add(told.trials[tid(0)])
    (clone,) = two_steps(told, 3, 4.0)
    assert clone == CloneTrial(tid(3), tid(0), {"x": 0.0})
    assert two_steps(told, 2, 5.0) == ()
    told.end(0)
    assert two_steps(told, 2, 5.0) == [SaveTrial(tid(2))]


# --- all in step -----------------------------------------------------------------------------------------------------


def test_in_step_all_wait_and_are_changed_together_when_nothing_runs():
    told = population(synch=True, quantile_fraction=0.5)
    for number, m in enumerate([1.0, 4.0, 3.0, 2.0]):
        assert two_steps(told, number, m) == [
            PauseTrial(tid(number), "waits for the population at training_iteration=2")
        ]
        told.put(number, status=Status.PAUSED)
    decisions = told.scheduler.on_idle(told.trials)
    assert decisions[:2] == [ResumeTrial(tid(1)), ResumeTrial(tid(2))]
    assert [(d.trial_id, d.source_id in (tid(1), tid(2))) for d in decisions[2:]] == [(tid(0), True), (tid(3), True)]
    assert told.scheduler.state()[2:] == (4.0, 1)
    told.put(1, status=Status.RUNNING, attempt=2)
    assert told.report(1, m=1.0) == ()
    assert [type(d) for d in told.report(1, m=1.0)] == [PauseTrial]


def test_the_next_barrier_is_not_before_the_furthest_trial():
    told = population(2, synch=True, burn_in_period=3)
    told.report(0, m=1.0, training_iteration=2)
    assert told.scheduler.state()[2] == 3.0
    told.report(0, m=1.0, training_iteration=9)
    told.report(1, m=1.0, training_iteration=3)
    for number in range(2):
        told.put(number, status=Status.PAUSED)
    told.scheduler.on_idle(told.trials)
    assert told.scheduler.state()[2] == 9.0


def test_what_a_person_paused_is_left_alone_at_the_barrier():
    told = population(3, synch=True)
    for number, m in enumerate([1.0, 4.0, 3.0]):
        two_steps(told, number, m)
        told.put(number, status=Status.PAUSED, is_by_person=number == 0)
    assert told.scheduler.on_idle(told.trials) == [ResumeTrial(tid(1)), ResumeTrial(tid(2))]


# --- arguments -------------------------------------------------------------------------------------------------------


def test_it_is_built_by_name():
    assert isinstance(create_scheduler("pbt", hyperparam_mutations={"x": [1]}), PopulationBasedTraining)


def test_a_config_is_completed_by_seed_and_number():
    told = population(hyperparam_mutations={"x": uniform(0, 1), "net": {"w": [1, 2]}})
    first = told.scheduler.complete_config({"y": 1}, 3)
    assert first == told.scheduler.complete_config({"y": 1}, 3)
    assert first != told.scheduler.complete_config({"y": 1}, 4)
    assert set(first) == {"x", "y", "net"}
    assert told.scheduler.complete_config(first, 9) == first
    assert told.scheduler.mutated_paths == ("x", "net/w")


# --- sweeps in virtual time ------------------------------------------------------------------------------------------


def gains(config, done, state):
    """Yield a growing sum, which is part of every checkpoint; the learning rate that gains most falls."""
    total = state or 0.0
    for step in range(done + 1, 49):
        best = 10 ** (-3 * step / 48)
        total += math.exp(-((math.log10(config["lr"] / best)) ** 2) * 4)
        yield Point(1.0, {"m": total}, has_checkpoint=True, state=total)


def walk(scheduler, seed, *, cpus=8):
    scheduler.set_search_properties(
        *((None, None) if isinstance(scheduler, FIFOScheduler) else ("m", "max")), seed=seed
    )
    configs = [{"lr": float(lr)} for lr in 10 ** np.random.default_rng(seed).uniform(-3, 0, size=8)]
    sweep = new_sweep(scheduler, num_trials=8, ask_ahead=64)
    kept = in_virtual_time(sweep, gains, configs, cpus=cpus, has_state=True)
    assert all(trial.status is Status.TERMINATED for trial in sweep.trials.values())
    return sweep, kept.told


def follower(**arguments):
    return PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"lr": loguniform(1e-3, 1.0)},
        resample_probability=0.1,
        perturbation_factors=(0.5, 1.5),
        **arguments,
    )


def best_of(sweep):
    return max(trial.last_result["m"] for trial in sweep.trials.values())


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_follows_a_moving_optimum_better_than_random_search_with_the_same_budget(seed, synch):
    random_search, _ = walk(FIFOScheduler(), seed)
    followed, told = walk(follower(synch=synch), seed)
    assert best_of(followed) > 1.3 * best_of(random_search)
    num_results = sum(one.result is not None and one.hook.value == "trial_result" for one in told)
    assert num_results <= 8 * 48 + 8 * 3 * 16  # clones repeat at most an interval each


@pytest.mark.parametrize("synch", [False, True])
def test_a_population_shares_a_small_machine(synch):
    sweep, told = walk(follower(synch=synch), 1, cpus=2)
    reports = [(one.trial.id, one.result["training_iteration"]) for one in told if one.hook.value == "trial_result"]
    beyond = next(i for i, (_, step) in enumerate(reports) if step > 6)
    assert len({trial_id for trial_id, _ in reports[:beyond]}) == 8  # all had a turn before any had its third
    assert best_of(sweep) > 20
