"""`ray.tune.integration.keras`: report from Keras."""

from sweep.integration.keras import ReportCheckpointCallback as ReportCheckpointCallback
from sweep.integration.keras import TuneReportCallback as TuneReportCallback
from sweep.integration.keras import TuneReportCheckpointCallback as TuneReportCheckpointCallback
