"""`ray.tune.schedulers`: which trials go on."""

from sweep.schedulers import *
from sweep.schedulers import Scheduler as Scheduler

TrialScheduler = Scheduler
