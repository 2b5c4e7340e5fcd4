"""`ray.tune.integration.lightgbm`: report from LightGBM."""

from sweep.integration.lightgbm import (
    RayTrainReportCallback as RayTrainReportCallback,
    TuneReportCallback as TuneReportCallback,
    TuneReportCheckpointCallback as TuneReportCheckpointCallback,
)
