"""Tune a torch model on scikit-learn's digits with DDP. Each trial is a group of two workers.

python examples/torch_ddp_digits.py
"""

import os
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sweep
from sweep.train import Checkpoint, ScalingConfig, get_checkpoint, get_context, report
from sweep.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def load():
    """Return digits as tensors: training images and labels, then validation images and labels."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    kinds = (torch.float32, torch.float32, torch.int64, torch.int64)
    train_x, valid_x, train_y, valid_y = (torch.tensor(p, dtype=k) for p, k in zip(parts, kinds, strict=True))
    return train_x, train_y, valid_x, valid_y


def train(config):
    """Train in every worker of the group. The workers have already joined a process group."""
    train_x, train_y, valid_x, valid_y = load()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))
    first_epoch = 0
    checkpoint = get_checkpoint()
    if checkpoint is not None:
        saved = torch.load(Path(checkpoint.path) / "state.pt", weights_only=True)
        net.load_state_dict(saved["model"])
        first_epoch = saved["epoch"]
    model = prepare_model(net)  # gradients are averaged over the workers
    loader = prepare_data_loader(DataLoader(TensorDataset(train_x, train_y), batch_size=32, shuffle=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(first_epoch, config["epochs"]):
        for images, labels in loader:  # each worker gets its half
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (net(valid_x).argmax(1) == valid_y).float().mean().item()
        with tempfile.TemporaryDirectory() as directory:
            stored = None
            if get_context().get_world_rank() == 0:
                torch.save({"model": net.state_dict(), "epoch": epoch + 1}, os.path.join(directory, "state.pt"))
                stored = Checkpoint(directory)
            report({"accuracy": accuracy, "epoch": epoch + 1}, checkpoint=stored)  # rank 0's metrics count


def main():
    sweep.init(num_cpus=4)  # two groups of two workers at a time
    analysis = sweep.run(
        TorchTrainer(train, train_loop_config={"epochs": 9}, scaling_config=ScalingConfig(num_workers=2)),
        config={
            "train_loop_config": {"lr": sweep.loguniform(1e-3, 1.0), "width": sweep.choice([16, 64, 128])},
        },
        num_samples=8,
        metric="accuracy",
        mode="max",
        scheduler="asha",
        seed=1,
    )
    best = analysis.best_trial
    print(f"best accuracy {best.last_result['accuracy']:.4f} with {best.config['train_loop_config']}")
    print(f"its checkpoint: {best.checkpoint.path}")


if __name__ == "__main__":
    main()
