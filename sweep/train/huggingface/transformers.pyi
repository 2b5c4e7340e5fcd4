# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.integration.transformers import RayTrainReportCallback as RayTrainReportCallback
from sweep.integration.transformers import prepare_trainer as prepare_trainer
