# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.stopper import experiment_plateau as experiment_plateau
from sweep.tune.stopper import function_stopper as function_stopper
from sweep.tune.stopper import maximum_iteration as maximum_iteration
from sweep.tune.stopper import noop as noop
from sweep.tune.stopper import stopper as stopper
from sweep.tune.stopper import timeout as timeout
from sweep.tune.stopper import trial_plateau as trial_plateau
from sweep import CombinedStopper as CombinedStopper
from sweep import ExperimentPlateauStopper as ExperimentPlateauStopper
from sweep import FunctionStopper as FunctionStopper
from sweep import MaximumIterationStopper as MaximumIterationStopper
from sweep import NoopStopper as NoopStopper
from sweep import Stopper as Stopper
from sweep import TimeoutStopper as TimeoutStopper
from sweep import TrialPlateauStopper as TrialPlateauStopper
from sweep import ExperimentPlateauStopper as _EarlyStopping

EarlyStopping = _EarlyStopping

