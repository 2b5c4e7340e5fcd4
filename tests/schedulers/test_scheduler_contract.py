"""The contract of schedulers, run over every scheduler."""

from __future__ import annotations

from conformance.schedulers import SchedulerContract

from searchers.space import uniform
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hyperband import HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.pbt import PopulationBasedTraining


class TestFIFO(SchedulerContract):
    def build(self):
        return FIFOScheduler()


class TestASHA(SchedulerContract):
    def build(self):
        return ASHAScheduler(max_t=20, grace_period=1, reduction_factor=3)


class TestASHAWithBrackets(SchedulerContract):
    def build(self):
        return ASHAScheduler(max_t=64, grace_period=2, reduction_factor=2, brackets=3, stop_last_trials=False)


class TestHyperBand(SchedulerContract):
    def build(self):
        return HyperBandScheduler(max_t=9, reduction_factor=3)


class TestHyperBandWithoutAnEnd(SchedulerContract):
    def build(self):
        return HyperBandScheduler(max_t=8, reduction_factor=2, stop_last_trials=False)


class TestMedianStopping(SchedulerContract):
    def build(self):
        return MedianStoppingRule("training_iteration", grace_period=2, min_samples_required=2)


class TestMedianStoppingByPauses(SchedulerContract):
    def build(self):
        return MedianStoppingRule("training_iteration", grace_period=0, min_samples_required=1, hard_stop=False)


def pbt(**arguments):
    return PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"x": uniform(0, 1)},
        require_attrs=False,
        **arguments,
    )


class TestPopulationBasedTraining(SchedulerContract):
    def build(self):
        return pbt()


class TestPopulationBasedTrainingInStep(SchedulerContract):
    def build(self):
        return pbt(synch=True, quantile_fraction=0.5)
