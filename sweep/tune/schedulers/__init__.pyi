# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.schedulers import async_hyperband as async_hyperband
from sweep.tune.schedulers import hb_bohb as hb_bohb
from sweep.tune.schedulers import hyperband as hyperband
from sweep.tune.schedulers import median_stopping_rule as median_stopping_rule
from sweep.tune.schedulers import pb2 as pb2
from sweep.tune.schedulers import pbt as pbt
from sweep.tune.schedulers import resource_changing_scheduler as resource_changing_scheduler
from sweep.tune.schedulers import trial_scheduler as trial_scheduler
from sweep.schedulers import PASHAScheduler as PASHAScheduler
from sweep.schedulers import PB2 as PB2
from sweep.schedulers import SCHEDULERS as SCHEDULERS
from sweep.schedulers import ASHAScheduler as ASHAScheduler
from sweep.schedulers import AsyncHyperBandScheduler as AsyncHyperBandScheduler
from sweep.schedulers import DistributeResources as DistributeResources
from sweep.schedulers import DistributeResourcesToTopJob as DistributeResourcesToTopJob
from sweep.schedulers import FIFOScheduler as FIFOScheduler
from sweep.schedulers import HyperBandForBOHB as HyperBandForBOHB
from sweep.schedulers import HyperBandScheduler as HyperBandScheduler
from sweep.schedulers import MOASHAScheduler as MOASHAScheduler
from sweep.schedulers import MedianStoppingRule as MedianStoppingRule
from sweep.schedulers import PopulationBasedTraining as PopulationBasedTraining
from sweep.schedulers import PopulationBasedTrainingReplay as PopulationBasedTrainingReplay
from sweep.schedulers import ResourceChangingScheduler as ResourceChangingScheduler
from sweep.schedulers import Scheduler as Scheduler
from sweep.schedulers import TrialsView as TrialsView
from sweep.schedulers import create_scheduler as create_scheduler
from sweep.schedulers import Scheduler as _TrialScheduler

TrialScheduler = _TrialScheduler

