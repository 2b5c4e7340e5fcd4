"""No-op trials, each in a process of its own. Arguments: a directory, trials.

What Syne Tune sleeps between two looks at its trials is set to 10 ms; it would be 5 s.
"""

import contextlib
import json
import logging
import os
import sys
import time

from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import PythonBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch

directory, number = sys.argv[1], int(sys.argv[2])
os.environ["SYNETUNE_FOLDER"] = directory
logging.disable(logging.ERROR)


def train(x):
    import time

    from syne_tune import Reporter

    Reporter()(loss=x, at=time.time())


space = {"x": uniform(0, 1)}
backend = PythonBackend(tune_function=train, config_space=space)
tuner = Tuner(
    trial_backend=backend,
    scheduler=RandomSearch(space, metrics=["loss"], do_minimize=True),
    stop_criterion=StoppingCriterion(max_num_trials_completed=number),
    n_workers=os.cpu_count(),
    sleep_time=0.01,
)
began = time.time()
with contextlib.redirect_stdout(sys.stderr):
    tuner.run()
whole_s = time.time() - began
at = sorted(tuner.tuning_status.get_dataframe()["at"])[:number]
assert len(at) == number
skipped = number // 5
print(
    json.dumps({"steady_per_s": (number - skipped) / (at[-1] - at[skipped - 1]), "whole_per_s": number / whole_s}),
)
