"""Trials in processes of this machine: a fork server, a supervisor per slot, a worker per attempt."""
