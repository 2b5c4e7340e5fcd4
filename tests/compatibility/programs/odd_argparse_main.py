"""The shape of a published script: argparse, a main guard, logging, a smoke test flag."""

import argparse
import logging
import os

from ray import train, tune
from ray.tune.schedulers import create_scheduler
from ray.tune.search import create_searcher

logger = logging.getLogger(__name__)


def train_fn(config):
    logger.info("started %s", config)
    for epoch in range(config["epochs"]):
        train.report({"acc": config["lr"] * epoch})


def tune_it(args):
    if args.searcher:
        search_alg, scheduler = create_searcher("optuna", metric="acc", mode="max"), None
    else:
        search_alg, scheduler = None, create_scheduler("async_hyperband", metric="acc", mode="max", max_t=4)
    tuner = tune.Tuner(
        train_fn,
        param_space={"lr": tune.uniform(0, 1), "epochs": 2 if args.smoke_test else 4},
        tune_config=tune.TuneConfig(num_samples=3, search_alg=search_alg, scheduler=scheduler),
        run_config=train.RunConfig(name=args.name, verbose=1, storage_path=os.path.expanduser("~/ray_results")),
    )
    return tuner.fit()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("ray.tune").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke-test", action="store_true")
    parser.add_argument("--searcher", action="store_true")
    parser.add_argument("--name", default="exp")
    args, _ = parser.parse_known_args(["--smoke-test"])
    grid = tune_it(args)
    assert len(grid) == 3
    assert os.path.isdir(os.path.expanduser("~/ray_results/exp"))
    args, _ = parser.parse_known_args(["--searcher", "--name", "other"])
    grid = tune_it(args)
    assert [r.metrics["training_iteration"] for r in grid] == [4, 4, 4]
    assert grid.get_best_result("acc", "max").metrics["acc"] > 0
