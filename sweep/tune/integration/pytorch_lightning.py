"""`ray.tune.integration.pytorch_lightning`: report from Lightning."""

from sweep.integration.pytorch_lightning import TuneReportCallback as TuneReportCallback
from sweep.integration.pytorch_lightning import TuneReportCheckpointCallback as TuneReportCheckpointCallback
