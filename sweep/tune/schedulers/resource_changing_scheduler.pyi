# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.schedulers import DistributeResources as DistributeResources
from sweep.schedulers import DistributeResourcesToTopJob as DistributeResourcesToTopJob
from sweep.schedulers import ResourceChangingScheduler as ResourceChangingScheduler
