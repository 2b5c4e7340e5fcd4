"""`ray.tune.integration.xgboost`: report from XGBoost."""

from sweep.integration.xgboost import (
    RayTrainReportCallback as RayTrainReportCallback,
    TuneReportCallback as TuneReportCallback,
    TuneReportCheckpointCallback as TuneReportCheckpointCallback,
)
