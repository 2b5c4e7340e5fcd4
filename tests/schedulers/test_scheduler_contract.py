"""The contract of schedulers, run over every scheduler."""

from __future__ import annotations

import re

import pytest
from conformance.schedulers import SchedulerContract

from searchers.space import uniform
from sweep.errors import ConfigError
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hb_bohb import HyperBandForBOHB
from sweep.schedulers.hyperband import HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.moasha import MOASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.resource_changing import ResourceChangingScheduler


def by_turns(view, trial, result, scheduler):
    return {"cpu": trial.count % 3 + 1} if "m" in result else None


def pbt(**arguments):
    return PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"x": uniform(0, 1)},
        require_attrs=False,
        **arguments,
    )


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
