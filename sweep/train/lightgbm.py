"""`ray.train.lightgbm`: report from LightGBM."""

from sweep.integration.lightgbm import RayTrainReportCallback as RayTrainReportCallback
