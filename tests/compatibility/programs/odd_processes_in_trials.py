"""Trials that start processes of their own: torch DataLoaders with workers, joblib, pools."""

import multiprocessing

import joblib
import torch
from ray import train, tune


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(float(i * i))


def double(x):
    return 2 * x


def objective(config):
    if config["how"] in ("loader", "spawning loader"):
        context = "spawn" if "spawning" in config["how"] else None
        loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=context)
        value = float(sum(batch.sum() for batch in loader))
    elif config["how"] == "joblib":
        value = sum(joblib.Parallel(n_jobs=2)(joblib.delayed(double)(x) for x in range(5)))
    else:
        with multiprocessing.Pool(2) as pool:
            value = sum(pool.map(double, range(4)))
    train.report({"value": value})


if __name__ == "__main__":
    ways = ["loader", "spawning loader", "joblib", "pool"]
    results = tune.Tuner(objective, param_space={"how": tune.grid_search(ways)}).fit()
    assert not results.errors, results.errors
    values = {r.config["how"]: r.metrics["value"] for r in results}
    assert values == {"loader": 140, "spawning loader": 140, "pool": 12, "joblib": 20}, values
