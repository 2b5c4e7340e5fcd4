"""`ray.train.xgboost`: report from XGBoost."""

from sweep.integration.xgboost import RayTrainReportCallback as RayTrainReportCallback
