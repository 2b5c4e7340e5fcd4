"""`ray.tune.integration.keras`: report from Keras."""

from sweep.integration.keras import (
    ReportCheckpointCallback as ReportCheckpointCallback,
    TuneReportCallback as TuneReportCallback,
    TuneReportCheckpointCallback as TuneReportCheckpointCallback,
)
