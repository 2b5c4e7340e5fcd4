"""`ray.train.lightning`: what Lightning needs in a group."""

from sweep.integration.pytorch_lightning import (
    RayDDPStrategy as RayDDPStrategy,
    RayLightningEnvironment as RayLightningEnvironment,
    RayTrainReportCallback as RayTrainReportCallback,
    prepare_trainer as prepare_trainer,
)
