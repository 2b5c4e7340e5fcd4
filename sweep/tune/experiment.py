"""`ray.tune.experiment`: experiments, and trials as callbacks see them."""

from sweep import Experiment as Experiment
from sweep.callbacks.observed import ObservedTrial as _Trial

Trial = _Trial
