"""Some trials fail: what tune.run raises, what it keeps, and raise_on_failed_trial=False."""

import os

from ray import tune
from ray.tune import TuneError


def objective(config):
    tune.report(x=config["x"])
    if config["x"] % 2:
        raise ZeroDivisionError("odd x")
    tune.report(x=config["x"] + 10)


space = {"x": tune.grid_search([0, 1, 2, 3])}
try:
    tune.run(objective, config=space, name="raising")
except TuneError:
    pass
else:
    raise AssertionError("no TuneError")

analysis = tune.run(
    objective, config=space, raise_on_failed_trial=False, max_failures=1, local_dir=os.path.abspath("res")
)
status = {t.config["x"]: t.status for t in analysis.trials}
assert status == {0: "TERMINATED", 1: "ERROR", 2: "TERMINATED", 3: "ERROR"}, status
bad = [t for t in analysis.trials if t.status == "ERROR"][0]
assert os.path.exists(bad.error_file)
text = open(bad.error_file).read()
assert "ZeroDivisionError: odd x" in text and "Failure # 2" in text, text
assert analysis.get_best_config("x", "max") == {"x": 2}
