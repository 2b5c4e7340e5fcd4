"""Requests to a sweep by those who watch it: how they are written, answered, and made from Python."""
