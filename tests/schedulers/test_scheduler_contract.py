"""The contract of schedulers, run over every scheduler."""

from __future__ import annotations

import math
import re

import pytest
from conformance.schedulers import SchedulerContract

from searchers.space import uniform
from sweep.errors import ConfigError
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.moasha import MOASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.resource_changing import ResourceChangingScheduler


def by_turns(view, trial, result, scheduler):
    return {"cpu": trial.count % 3 + 1} if "m" in result else None


def pbt(**arguments):
    given = {"perturbation_interval": 2, "hyperparam_mutations": {"x": uniform(0, 1)}, "require_attrs": False}
    return PopulationBasedTraining("training_iteration", **{**given, **arguments})


def pb2(**arguments):
    return PB2(
        "training_iteration", perturbation_interval=5, hyperparam_bounds={"x": [0, 1]}, require_attrs=False, **arguments
    )


SCHEDULERS = {
    "FIFO": lambda: FIFOScheduler(),
    "ASHA": lambda: ASHAScheduler(max_t=20, grace_period=1, reduction_factor=3),
    "ASHAWithBrackets": lambda: ASHAScheduler(
        max_t=64, grace_period=2, reduction_factor=2, brackets=3, stop_last_trials=False
    ),
    "ASHAByPromotion": lambda: ASHAScheduler(max_t=20, grace_period=1, reduction_factor=3, type="promotion"),
    "ASHAByPromotionInBrackets": lambda: ASHAScheduler(
        reduction_factor=2, brackets=3, stop_last_trials=False, type="promotion", rungs=[2, 5, 9]
    ),
    "PASHA": lambda: PASHAScheduler(max_t=20, grace_period=1, reduction_factor=2),
    "HyperBand": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
    "HyperBandWithoutAnEnd": lambda: HyperBandScheduler(max_t=8, reduction_factor=2, stop_last_trials=False),
    "ResourceChanging": lambda: ResourceChangingScheduler(),
    "ResourceChangingOverHyperBand": lambda: ResourceChangingScheduler(HyperBandScheduler(max_t=9), by_turns),
    "HyperBandForBOHB": lambda: HyperBandForBOHB(max_t=9, reduction_factor=3),
    "MedianStopping": lambda: MedianStoppingRule("training_iteration", grace_period=2, min_samples_required=2),
    "MedianStoppingByPauses": lambda: MedianStoppingRule(
        "training_iteration", grace_period=0, min_samples_required=1, hard_stop=False
    ),
    "PB2": lambda: pb2(),
    "PB2InStep": lambda: pb2(synch=True),
    "PopulationBasedTraining": lambda: pbt(),
    "PopulationBasedTrainingInStep": lambda: pbt(synch=True, quantile_fraction=0.5),
}


@pytest.mark.parametrize("name", SCHEDULERS)
class TestEveryScheduler(SchedulerContract):
    @pytest.fixture(autouse=True)
    def _named(self, name):
        self.name = name

    def build(self):
        return SCHEDULERS[self.name]()


class TestMOASHA(SchedulerContract):
    def build(self):
        return MOASHAScheduler(max_t=20, reduction_factor=3, brackets=2)

    def ready(self, mode="max", seed=7):
        scheduler = self.build()
        scheduler.set_search_properties(["m", "training_iteration"], [mode, "max"], seed=seed)
        return scheduler


@pytest.mark.parametrize(
    ("hook", "ours"),
    [
        ("on_trial_result", "on_result(trial, result, trials)"),
        ("on_trial_complete", "on_trial_end(trial)"),
        ("on_trial_error", "on_trial_end(trial)"),
        ("on_trial_remove", "on_trial_end(trial)"),
        ("choose_trial_to_run", "choose(startable)"),
    ],
)
def test_a_hook_of_tunes_that_is_never_called_is_refused_with_the_name_of_ours(hook, ours):
    mixin = type("Mixin", (), {hook: lambda self, controller, trial, result=None: "CONTINUE"})
    with pytest.raises(ConfigError, match=rf"the scheduler Mine has .*{re.escape(hook)}\(\) is {re.escape(ours)}"):
        type("Mine", (mixin, FIFOScheduler), {})


@pytest.mark.parametrize(
    ("build", "arguments", "words"),
    [
        (ASHAScheduler, {"mode": "best"}, "mode is 'best'"),
        (ASHAScheduler, {"max_t": 0}, "max_t is 0"),
        (ASHAScheduler, {"max_t": "100"}, "max_t is '100'"),
        (ASHAScheduler, {"max_t": math.nan}, "max_t is nan"),
        (ASHAScheduler, {"grace_period": -1}, "grace_period is -1"),
        (ASHAScheduler, {"grace_period": True}, "grace_period is True"),
        (ASHAScheduler, {"max_t": 3, "grace_period": 5}, "max_t=3 is below grace_period=5"),
        (ASHAScheduler, {"reduction_factor": 1}, "reduction_factor is 1"),
        (ASHAScheduler, {"grace_period": 10**400}, "grace_period is 1000"),
        (ASHAScheduler, {"type": "promote"}, "type is 'promote'; expected 'stopping' or 'promotion'"),
        (ASHAScheduler, {"brackets": 0}, "brackets is 0"),
        (ASHAScheduler, {"brackets": 1.5}, "brackets is 1.5"),
        (HyperBandScheduler, {"max_t": 0.5}, "max_t is 0.5; expected a finite number of at least 1"),
        (HyperBandScheduler, {"max_t": math.inf}, "max_t is inf"),
        (HyperBandScheduler, {"reduction_factor": 1}, "reduction_factor is 1; expected a finite number above 1"),
        (HyperBandScheduler, {"time_attr": None}, "time_attr is None"),
        (HyperBandScheduler, {"metric": ["a", "b"]}, "judges by one metric"),
        (MedianStoppingRule, {"grace_period": -1}, "grace_period is -1; expected a finite number of at least 0"),
        (MedianStoppingRule, {"min_samples_required": 0}, "min_samples_required is 0; expected a finite"),
        (MedianStoppingRule, {"min_time_slice": "1"}, "min_time_slice is '1'"),
        (MOASHAScheduler, {"metric": "a"}, "two objectives or more"),
        (MOASHAScheduler, {"metric": ["a", "a"]}, "two objectives or more"),
        (MOASHAScheduler, {"metric": ["a", 3]}, "two objectives or more"),
        (MOASHAScheduler, {"metric": ["a", "b"], "mode": ["min"]}, "a list of 2"),
        (MOASHAScheduler, {"metric": ["a", "b"], "mode": ["min", "best"]}, "mode is ['min', 'best']"),
        (PASHAScheduler, {"noise_percentile": 101}, "noise_percentile is 101"),
        (pbt, {"perturbation_interval": 0}, "perturbation_interval is 0; expected a finite number above 0"),
        (pbt, {"burn_in_period": -1}, "burn_in_period is -1"),
        (pbt, {"quantile_fraction": 0.6}, "quantile_fraction is 0.6; expected a number of at least 0 and at most 0.5"),
        (pbt, {"resample_probability": 2}, "resample_probability is 2; expected a number of at least 0 and at most 1"),
        (pbt, {"perturbation_factors": ()}, "perturbation_factors is ()"),
        (pbt, {"perturbation_factors": ("1.2",)}, "perturbation_factors is ('1.2',)"),
        (pbt, {"custom_explore_fn": "f"}, "custom_explore_fn is 'f'"),
        (pbt, {"hyperparam_mutations": {}}, "nothing is given that could be changed"),
    ],
)
@pytest.mark.timeout(5)
def test_a_wrong_argument_is_named(build, arguments, words):
    with pytest.raises(ConfigError) as error:
        build(**arguments)
    assert words in str(error.value)
