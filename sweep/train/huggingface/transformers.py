"""`ray.train.huggingface.transformers`: what its Trainer needs in a group."""

from sweep.integration.transformers import (
    RayTrainReportCallback as RayTrainReportCallback,
    prepare_trainer as prepare_trainer,
)
