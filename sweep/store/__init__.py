"""The record of a sweep on disk: writing it, reading it, bringing a sweep back from it."""
