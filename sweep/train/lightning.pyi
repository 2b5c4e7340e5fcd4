# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.integration.pytorch_lightning import RayDDPStrategy as RayDDPStrategy
from sweep.integration.pytorch_lightning import RayLightningEnvironment as RayLightningEnvironment
from sweep.integration.pytorch_lightning import RayTrainReportCallback as RayTrainReportCallback
from sweep.integration.pytorch_lightning import prepare_trainer as prepare_trainer
