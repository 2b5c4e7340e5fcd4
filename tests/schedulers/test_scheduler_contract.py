"""The contract of schedulers, run over FIFO and ASHA."""

from __future__ import annotations

from conformance.schedulers import SchedulerContract

from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler


class TestFIFO(SchedulerContract):
    def build(self):
        return FIFOScheduler()


class TestASHA(SchedulerContract):
    def build(self):
        return ASHAScheduler(max_t=20, grace_period=1, reduction_factor=3)


class TestASHAWithBrackets(SchedulerContract):
    def build(self):
        return ASHAScheduler(max_t=64, grace_period=2, reduction_factor=2, brackets=3, stop_last_trials=False)
