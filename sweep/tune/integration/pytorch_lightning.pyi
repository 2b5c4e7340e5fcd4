# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.integration.pytorch_lightning import TuneReportCallback as TuneReportCallback
from sweep.integration.pytorch_lightning import TuneReportCheckpointCallback as TuneReportCheckpointCallback
