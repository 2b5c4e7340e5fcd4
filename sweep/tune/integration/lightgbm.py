"""`ray.tune.integration.lightgbm`: report from LightGBM."""

from sweep.integration.lightgbm import RayTrainReportCallback as RayTrainReportCallback
from sweep.integration.lightgbm import TuneReportCallback as TuneReportCallback
from sweep.integration.lightgbm import TuneReportCheckpointCallback as TuneReportCheckpointCallback
