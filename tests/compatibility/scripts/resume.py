"""Resuming after a kill: Tuner.restore, resume="AUTO", and failed trials tried again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import sweep as tune
from sweep import Checkpoint

STORAGE = os.path.abspath("results")
WAIT, WAITING, MENDED = os.path.abspath("wait"), os.path.abspath("waiting"), os.path.abspath("mended")


def train_fn(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = json.load(open(os.path.join(directory, "step.json")))["step"]
    for step in range(start + 1, 6):
        with tempfile.TemporaryDirectory() as directory:
            json.dump({"step": step}, open(os.path.join(directory, "step.json"), "w"))
            tune.report({"step": step, "started": start}, checkpoint=Checkpoint.from_directory(directory))
        if step == 2 and os.path.exists(WAIT):
            open(WAITING, "w").close()
            time.sleep(600)
        if config["x"] == 3 and not os.path.exists(MENDED):
            raise RuntimeError("not mended yet")


def fit():
    tuner = tune.Tuner(
        train_fn,
        param_space={"x": tune.grid_search([1, 2, 3])},
        run_config=tune.RunConfig(name="killed", storage_path=STORAGE, verbose=0),
    )
    return tuner.fit()


if __name__ == "__main__":
    if sys.argv[1:] == ["first"]:
        fit()
        sys.exit()
    open(WAIT, "w").close()
    path = os.path.join(STORAGE, "killed")
    first = subprocess.Popen([sys.executable, __file__, "first"])
    while not tune.Tuner.can_restore(path) or not os.path.exists(WAITING):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    os.remove(WAIT)

    assert not tune.Tuner.can_restore(os.path.join(STORAGE, "nothing"))
    tuner = tune.Tuner.restore(path, trainable=train_fn, resume_errored=True)
    results = tuner.fit()
    assert sorted(result.config["x"] for result in results) == [1, 2, 3]
    assert results.num_errors == 1
    finished = [result for result in results if result.error is None]
    assert all(result.metrics["step"] == 5 for result in finished)
    assert any(result.metrics["started"] == 2 for result in finished)

    open(MENDED, "w").close()
    results = tune.Tuner.restore(path, train_fn, resume_errored=True).fit()
    assert results.num_errors == 0
    assert all(result.metrics["step"] == 5 for result in results)

    def few(config):
        tune.report({"x": config["x"]})

    for number in (1, 2):
        analysis = tune.run(
            few, name="auto", storage_path=STORAGE, resume="AUTO", num_samples=number, config={"x": 1}, verbose=0
        )
        assert len(analysis.trials) == number
    print("resumed")
