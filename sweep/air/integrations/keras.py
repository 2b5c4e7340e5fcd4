"""`ray.air.integrations.keras`: report from Keras."""

from sweep.integration.keras import ReportCheckpointCallback as ReportCheckpointCallback
