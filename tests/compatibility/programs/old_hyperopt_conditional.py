"""A hyperopt user's space: hp.choice over dicts, labels that differ from keys, points first."""

from hyperopt import hp
from ray import tune
from ray.tune.search.hyperopt import HyperOptSearch

space = {
    "classifier": hp.choice(
        "classifier_type",
        [
            {"type": "svm", "C": hp.lognormal("svm_C", 0, 1)},
            {"type": "tree", "depth": hp.quniform("depth", 1, 9, 2), "crit": hp.choice("crit", ["gini", "entropy"])},
        ],
    ),
    "seed": 3,
}


def objective(config):
    c = config["classifier"]
    assert ("C" in c) == (c["type"] == "svm")
    tune.report({"loss": c.get("C", 0) + c.get("depth", 0)})


analysis = tune.run(
    objective,
    search_alg=HyperOptSearch(space, metric="loss", mode="min", random_state_seed=1),
    num_samples=8,
    verbose=0,
)
assert {t.config["classifier"]["type"] for t in analysis.trials} <= {"svm", "tree"}
assert all(t.config["seed"] == 3 for t in analysis.trials)
assert all(t.status == "TERMINATED" for t in analysis.trials)
