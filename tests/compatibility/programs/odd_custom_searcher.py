"""A Searcher of one's own: suggest, on_trial_result, on_trial_complete, save and restore."""

import pickle

from ray import train, tune
from ray.tune.search import ConcurrencyLimiter, Searcher


class Halving(Searcher):
    def __init__(self, low, high, metric="loss", mode="min"):
        super().__init__(metric=metric, mode=mode)
        self.low, self.high = low, high
        self.asked = {}
        self.completed = []
        self.partial = 0

    def suggest(self, trial_id):
        if len(self.asked) >= 5:
            return Searcher.FINISHED
        x = (self.low + self.high) / 2
        self.asked[trial_id] = x
        return {"x": x}

    def on_trial_result(self, trial_id, result):
        self.partial += 1

    def on_trial_complete(self, trial_id, result=None, error=False):
        assert not error and result[self.metric] >= 0
        self.completed.append(trial_id)
        x = self.asked[trial_id]
        if result["slope"] > 0:
            self.high = x
        else:
            self.low = x

    def save(self, path):
        with open(path, "wb") as f:
            pickle.dump((self.low, self.high, self.asked), f)

    def restore(self, path):
        with open(path, "rb") as f:
            self.low, self.high, self.asked = pickle.load(f)


def objective(config):
    for _ in range(2):
        train.report({"loss": (config["x"] - 3) ** 2, "slope": 2 * (config["x"] - 3)})


searcher = Halving(0, 16)
results = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(search_alg=ConcurrencyLimiter(searcher, max_concurrent=1), num_samples=20),
).fit()
assert len(results) == 5
assert sorted(r.config["x"] for r in results) == [2, 2.5, 3, 4, 8] or len({r.config["x"] for r in results}) == 5
assert results.get_best_result("loss", "min").metrics["loss"] < 0.3
assert len(searcher.completed) == 5
