"""Log trials to MLflow: the callback, and the function for use within a trial."""

from sweep.callbacks.mlflow import MLflowLoggerCallback, setup_mlflow

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]
