# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.integration.mlflow import MLflowLoggerCallback as MLflowLoggerCallback
from sweep.integration.mlflow import setup_mlflow as setup_mlflow
