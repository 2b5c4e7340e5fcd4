"""How much the driver grows while trials end, in kept processes. Arguments: a directory, trials."""

import gc
import json
import sys

import psutil

import sweep

directory, number = sys.argv[1], int(sys.argv[2])


def train(config):
    sweep.report(loss=config["x"])


class Watch(sweep.Callback):
    """Looks at this process when a tenth of the trials has ended, and at the end."""

    def __init__(self):
        self.ended, self.bytes = 0, {}

    def on_trial_complete(self, trial):
        self.ended += 1
        if self.ended in (number // 10, number):
            gc.collect()
            self.bytes[self.ended] = psutil.Process().memory_info().rss


watch = Watch()
sweep.run(
    train,
    config={"x": sweep.uniform(0, 1)},
    num_samples=number,
    metric="loss",
    mode="min",
    verbose=0,
    storage_path=directory,
    reuse_actors=True,
    callbacks=[watch],
)
grown = watch.bytes[number] - watch.bytes[number // 10]
print(json.dumps({"mib_per_10000": grown / 2**20 / (number - number // 10) * 10_000}))
