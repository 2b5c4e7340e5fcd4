"""`ray.tune.integration.xgboost`: report from XGBoost."""

from sweep.integration.xgboost import RayTrainReportCallback as RayTrainReportCallback
from sweep.integration.xgboost import TuneReportCallback as TuneReportCallback
from sweep.integration.xgboost import TuneReportCheckpointCallback as TuneReportCheckpointCallback
