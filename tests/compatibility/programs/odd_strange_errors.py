"""Errors that cannot be pickled, KeyboardInterrupt and StopIteration raised in a trial."""

import threading

from ray import train, tune


class Unpicklable(Exception):
    def __init__(self, lock, text):
        super().__init__(text)
        self.lock = lock


def objective(config):
    train.report({"x": 1})
    if config["kind"] == "lock":
        raise Unpicklable(threading.Lock(), "has a lock")
    if config["kind"] == "interrupt":
        raise KeyboardInterrupt
    if config["kind"] == "assert":
        assert config["missing"], "never here"


results = tune.Tuner(objective, param_space={"kind": tune.grid_search(["lock", "assert", "fine", "interrupt"])}).fit()
errors = {r.config["kind"]: r.error for r in results}
assert errors["fine"] is None
assert "has a lock" in str(errors["lock"]), errors["lock"]
assert "missing" in str(errors["assert"])
assert errors["interrupt"] is not None
assert results.num_errors == 3
