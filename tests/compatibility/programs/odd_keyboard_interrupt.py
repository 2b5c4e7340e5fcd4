"""Ctrl-C half way: the sweep ends, its state is saved, and the same script goes on with it."""

import os
import signal
import threading
import time

from ray import tune

LOCAL = os.path.abspath("res")


def objective(config):
    open(os.path.join(LOCAL, "begun"), "w").close()
    for i in range(40):
        time.sleep(0.05)
        tune.report(i=i)
        if os.path.exists(os.path.join(LOCAL, "quick")):
            return


def interrupt():
    while not os.path.exists(os.path.join(LOCAL, "begun")):
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt, daemon=True).start()
try:
    analysis = tune.run(objective, name="cut", local_dir=LOCAL, num_samples=8, config={"a": tune.uniform(0, 1)})
except KeyboardInterrupt:
    pass
else:
    assert any(t.status != "TERMINATED" for t in analysis.trials)

open(os.path.join(LOCAL, "quick"), "w").close()
analysis = tune.run(
    objective, name="cut", local_dir=LOCAL, num_samples=8, config={"a": tune.uniform(0, 1)}, resume=True
)
assert len(analysis.trials) == 8
assert all(t.status == "TERMINATED" for t in analysis.trials), [t.status for t in analysis.trials]
