"""`ray.air.integrations.mlflow`: log to MLflow."""

from sweep.integration.mlflow import *
