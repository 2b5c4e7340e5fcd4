"""Observers of a sweep: what a callback is, how callbacks are called, loggers and trackers."""
