"""Schedulers that pause and clone, against an engine that loses, delays and kills whatever it may: no sweep hangs."""

from __future__ import annotations

import random

import pytest
from core.test_fuzz import NODES, REQUESTS, Checker, WildEngine, WildSearcher

from searchers.space import uniform
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.sweep import Sweep
from sweep.core.trial import ENDED, HELD
from sweep.errors import SearchError, SweepError, SweepStalled
from sweep.launch.drive import drive
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.resource_changing import ResourceChangingScheduler


def every(rng):
    return {"time_attr": "training_iteration", "perturbation_interval": rng.choice([1, 2]), "synch": rng.random() < 0.5}


BUILDERS = {
    "hyperband": lambda rng: HyperBandScheduler(max_t=6, reduction_factor=2, stop_last_trials=rng.random() < 0.7),
    "large first": lambda rng: HyperBandForBOHB(max_t=6, reduction_factor=2, stop_last_trials=rng.random() < 0.7),
    "promotion": lambda rng: ASHAScheduler(
        max_t=6, reduction_factor=2, brackets=rng.choice([1, 2]), stop_last_trials=rng.random() < 0.7, type="promotion"
    ),
    "pasha": lambda rng: PASHAScheduler(max_t=6, reduction_factor=rng.choice([1.5, 2])),
    "median": lambda rng: MedianStoppingRule(
        "training_iteration",
        grace_period=rng.choice([0, 2]),
        min_samples_required=rng.choice([1, 3]),
        hard_stop=rng.random() < 0.5,
    ),
    "population": lambda rng: PopulationBasedTraining(
        hyperparam_mutations={"x": uniform(0, 1)}, quantile_fraction=0.5, **every(rng)
    ),
    "bandit": lambda rng: PB2(hyperparam_bounds={"x": [0, 1]}, quantile_fraction=0.5, **every(rng)),
    "resource changing": lambda rng: ResourceChangingScheduler(
        rng.choice([lambda rng: None, *map(BUILDERS.get, ("hyperband", "population", "median"))])(rng),
        rng.choice([DistributeResources(), DistributeResourcesToTopJob(), by_turns]),
    ),
}


def by_turns(view, trial, result, scheduler):
    return REQUESTS[(trial.number + trial.count) % len(REQUESTS)]


def run_one(name, seed):
    rng = random.Random(seed)
    engine = WildEngine(rng, sweep_asks=seed % 3 == 0)
    engine.checkpoints = rng.choice([0, 0.3, 1])
    searcher = WildSearcher(rng, rng.randrange(1, 14))
    plan = Plan(
        num_trials=rng.choice([3, 10, None]),
        ask_ahead=1 if searcher.is_adaptive else 64,
        metric="m",
        mode="min",
        can_save_on_demand=rng.random() < 0.5,
        max_failures=rng.choice([0, 2, -1]),
        num_to_keep=rng.choice([None, 1]),
    )
    scheduler = BUILDERS[name](rng)
    requests = REQUESTS[:1] if name == "resource changing" else REQUESTS  # it needs trials that begin alike
    scheduler.set_search_properties("m", "min", seed=seed)
    packer = Packer(NODES)
    sweep = Sweep(plan, scheduler, packer)
    checker = Checker(sweep, packer)
    try:
        drive(sweep, engine, searcher, checker, checker, request_of=lambda config: rng.choice(requests))
    except SweepStalled as stalled:
        raise AssertionError(f"seed {seed}: {stalled}") from stalled
    except SearchError:
        return sweep, False  # three bad suggestions in a row
    except SweepError as failure:
        raise AssertionError(f"seed {seed}: {failure}") from failure
    assert sweep.done
    assert not packer.holders
    for trial in sweep.trials.values():
        assert trial.status not in HELD
        assert sweep.ending is not None or trial.status in ENDED or trial.is_by_person, trial
    return sweep, True


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("number", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_wild_sweeps_end_clean(name, number):
    ended = complete = 0
    for seed in range(number):
        sweep, is_complete = run_one(name, seed)
        complete += is_complete
        ended += sum(t.status in ENDED for t in sweep.trials.values())
    assert complete > 0.9 * number
    assert ended > 2.6 * number
