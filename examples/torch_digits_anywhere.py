"""Tune a torch model on scikit-learn's digits on any engine, with the same results: with ASHA, and in groups of two.

python examples/torch_digits_anywhere.py                                    this machine
python examples/torch_digits_anywhere.py --engine agents                    this machine, and those that join
python examples/torch_digits_anywhere.py --engine agents --hosts a,b        this machine, and those that ssh reaches
python examples/torch_digits_anywhere.py --engine ray --address auto        the nodes of a Ray cluster
python examples/torch_digits_anywhere.py --engine slurm                     the nodes of the job of Slurm it runs in
python examples/torch_digits_anywhere.py --engine slurm --sbatch '-c 2'     jobs of Slurm that come and go
"""

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sweep
from sweep.train import ScalingConfig
from sweep.train.torch import TorchTrainer, prepare_data_loader, prepare_model

MAX_EPOCHS = 9


def load():
    """Return digits as tensors: training images and labels, then validation images and labels."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    kinds = (torch.float32, torch.float32, torch.int64, torch.int64)
    train_x, valid_x, train_y, valid_y = (
        torch.tensor(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)
    )
    return train_x, train_y, valid_x, valid_y


def network(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def learn(model, optimizer, batches):
    for images, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def train(config):
    """Train in one process, with a checkpoint after each epoch."""
    train_x, train_y, valid_x, valid_y = load()
    model = network(config["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    first_epoch = 0
    checkpoint = sweep.get_checkpoint()  # set when the trial goes on elsewhere, because its node was lost
    if checkpoint is not None:
        saved = torch.load(Path(checkpoint.path) / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"] + 1
    for epoch in range(first_epoch, MAX_EPOCHS):
        torch.manual_seed(sweep.get_context().get_seed() + epoch)  # of the trial, not of the machine or the attempt
        learn(model, optimizer, ((train_x[rows], train_y[rows]) for rows in torch.randperm(len(train_x)).split(32)))
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(valid_x), valid_y).item()
        with tempfile.TemporaryDirectory() as directory:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(directory) / "state.pt")
            sweep.report(loss=loss, checkpoint=sweep.Checkpoint.from_directory(directory))


def train_in_a_group(config):
    """Train in every worker of a group, on the same machine or not. The workers have already joined a process group."""
    train_x, train_y, valid_x, valid_y = load()
    net = network(32)
    model = prepare_model(net)  # gradients are averaged over the workers
    loader = prepare_data_loader(DataLoader(TensorDataset(train_x, train_y), batch_size=32, shuffle=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for _ in range(3):
        learn(model, optimizer, loader)  # each worker gets its half
        with torch.no_grad():
            sweep.report(loss=nn.functional.cross_entropy(net(valid_x), valid_y).item())


def main(at_once=1, spread="SPREAD", **options):
    """Run both sweeps; `options` are for both calls of `sweep.run`."""
    options |= {"num_samples": 12, "metric": "loss", "mode": "min", "seed": 0}
    single = sweep.run(
        train,
        name="digits",
        config={"lr": sweep.loguniform(1e-4, 1e-1), "width": sweep.choice([16, 32, 64])},
        search_alg="tpe",
        scheduler=sweep.ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=3),
        # One at a time: TPE and ASHA decide by what has been reported before, which is then the same everywhere.
        max_concurrent_trials=at_once,
        resources_per_trial={"cpu": 1},
        **options,
    )
    groups = sweep.run(
        TorchTrainer(train_in_a_group, scaling_config=ScalingConfig(num_workers=2, placement_strategy=spread)),
        name="digits_groups",
        config={"train_loop_config": {"lr": sweep.grid_search([0.01, 0.1, 1.0])}},
        **options | {"num_samples": 1},
    )
    for analysis in (single, groups):
        print(f"best loss {analysis.best_result['loss']:.4f} in {analysis.best_trial.trial_id}")
        print(f"{len(analysis.trials)} trials, everything is in {analysis.experiment_path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="local", help="local, agents, ray or slurm")
    parser.add_argument("--address", help="of a Ray cluster")
    parser.add_argument("--hosts", type=lambda text: text.split(","), help="machines that ssh reaches")
    parser.add_argument("--sbatch", help="what a job of Slurm asks for")
    parser.add_argument("--not-here", dest="here", action="store_const", const=False, help="this machine only drives")
    parser.add_argument("--at-once", type=int, default=1, help="how many trials of the first sweep run at a time")
    parser.add_argument(
        "--apart",
        dest="spread",
        action="store_const",
        const="STRICT_SPREAD",
        default="SPREAD",
        help="a group waits until each of its workers has a node of its own",
    )
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    at_once, spread = given.pop("at_once"), given.pop("spread")
    sweep.init(**given)  # where trials run; the only line that knows
    main(at_once, spread)
