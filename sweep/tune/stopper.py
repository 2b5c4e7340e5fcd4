"""`ray.tune.stopper`: when trials, or the whole sweep, end."""

from sweep.core.stoppers import CombinedStopper as CombinedStopper, ExperimentPlateauStopper as ExperimentPlateauStopper
from sweep.core.stoppers import FunctionStopper as FunctionStopper, MaximumIterationStopper as MaximumIterationStopper
from sweep.core.stoppers import NoopStopper as NoopStopper, Stopper as Stopper, TimeoutStopper as TimeoutStopper
from sweep.core.stoppers import TrialPlateauStopper as TrialPlateauStopper

EarlyStopping = ExperimentPlateauStopper
