"""The best trial by last, all, avg and last-5-avg, and best results without a default metric."""

from ray import tune

CURVES = {"spike": [0, 100, 1, 1, 1, 1, 1], "steady": [20] * 7, "late": [0, 0, 0, 0, 0, 0, 60]}


def objective(config):
    for value in CURVES[config["kind"]]:
        tune.report(score=value)


analysis = tune.run(objective, config={"kind": tune.grid_search(list(CURVES))}, verbose=0)
expected = {"last": "late", "all": "spike", "avg": "steady", "last-5-avg": "steady", "last-10-avg": "steady"}
for scope, kind in expected.items():
    trial = analysis.get_best_trial("score", "max", scope)
    assert trial.config["kind"] == kind, (scope, trial.config)
    assert analysis.get_best_config("score", "max", scope) == {"kind": kind}
try:
    analysis.best_config  # noqa: B018
except ValueError as error:
    assert "metric" in str(error)
else:
    raise AssertionError("a best config of no metric")
assert analysis.get_best_trial("nothing", "max") is None
