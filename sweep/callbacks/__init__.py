"""Observers of a sweep: what a callback is, how callbacks are told, loggers and trackers."""
