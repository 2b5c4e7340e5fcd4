"""Grids within lists and within nested dicts, and the literal {"grid_search": [...]}."""

from ray import tune


def objective(config):
    first, second = config["hidden"]
    tune.report(size=first * second, act=config["model"]["act"], pair=str(config["pair"]))


analysis = tune.run(
    objective,
    config={
        "hidden": [tune.grid_search([16, 32]), 64],
        "model": {"act": {"grid_search": ["relu", "tanh"]}, "deep": {"bias": True}},
        "pair": tune.grid_search([[1, 2], [3, 4]]),
    },
)
assert len(analysis.trials) == 8
seen = {(t.config["hidden"][0], t.config["model"]["act"], tuple(t.config["pair"])) for t in analysis.trials}
assert len(seen) == 8
assert all(isinstance(t.config["hidden"], list) and t.config["hidden"][1] == 64 for t in analysis.trials)
frame = analysis.dataframe()
assert set(frame["config/model/act"]) == {"relu", "tanh"}
assert set(frame["size"]) == {16 * 64, 32 * 64}
