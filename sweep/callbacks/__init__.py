"""Observers of a sweep: what a callback is, loggers, the display."""
