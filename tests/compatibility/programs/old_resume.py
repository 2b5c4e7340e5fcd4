"""A failed experiment taken up again by name with resume=, finished trials left as they are."""

import os

from ray import tune
from ray.tune.error import TuneError

LOCAL = os.path.abspath("results")
GATE = os.path.abspath("gate")
RUNS = os.path.abspath("runs")
os.makedirs(RUNS)


def train(config, checkpoint_dir=None):
    with open(os.path.join(RUNS, f"{config['x']}"), "a") as f:
        f.write("x")
    start = 0
    if checkpoint_dir:
        start = int(open(os.path.join(checkpoint_dir, "n")).read())
    for i in range(start, 4):
        if i == 2 and config["x"] == 1 and not os.path.exists(GATE):
            raise RuntimeError("the gate is shut")
        with tune.checkpoint_dir(step=i) as d:
            open(os.path.join(d, "n"), "w").write(str(i + 1))
        tune.report(i=i, started=start)


def launch(**kwargs):
    return tune.run(train, name="exp", local_dir=LOCAL, config={"x": tune.grid_search([0, 1, 2])}, **kwargs)


try:
    launch()
except TuneError:
    pass
else:
    raise AssertionError("a failed trial did not raise")

open(GATE, "w").close()
analysis = launch(resume="ERRORED_ONLY")
assert [t.status for t in analysis.trials] == ["TERMINATED"] * 3
assert {t.config["x"]: t.last_result["started"] for t in analysis.trials} == {0: 0, 1: 2, 2: 0}
analysis = launch(resume=True)
assert len(analysis.trials) == 3
counts = {name: len(open(os.path.join(RUNS, name)).read()) for name in os.listdir(RUNS)}
assert counts == {"0": 1, "1": 2, "2": 1}, counts
