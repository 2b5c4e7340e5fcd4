"""The scribe: a process that follows the record and writes log files, so that the driver opens none."""
