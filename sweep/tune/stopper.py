"""`ray.tune.stopper`: when trials, or the whole sweep, end."""

from sweep.core.stoppers import (
    CombinedStopper as CombinedStopper,
    ExperimentPlateauStopper as ExperimentPlateauStopper,
    FunctionStopper as FunctionStopper,
    MaximumIterationStopper as MaximumIterationStopper,
    NoopStopper as NoopStopper,
    Stopper as Stopper,
    TimeoutStopper as TimeoutStopper,
    TrialPlateauStopper as TrialPlateauStopper,
)

EarlyStopping = ExperimentPlateauStopper
