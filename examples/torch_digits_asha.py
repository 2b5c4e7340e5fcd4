"""Tune a torch MLP on scikit-learn's digits: TPE proposes configs, ASHA stops bad trials early, checkpoints are kept.

python examples/torch_digits_asha.py
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import sweep

MAX_EPOCHS = 27


def load():
    """Return digits as tensors: training images and labels, then validation images and labels."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    kinds = (torch.float32, torch.float32, torch.int64, torch.int64)
    train_x, valid_x, train_y, valid_y = (
        torch.tensor(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)
    )
    return train_x, train_y, valid_x, valid_y


def train(config):
    train_x, train_y, valid_x, valid_y = load()
    model = nn.Sequential(
        nn.Linear(64, config["width"]), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(config["width"], 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
    first_epoch = 0

    checkpoint = sweep.get_checkpoint()  # set when the trial continues after a failure, a pause or a killed driver
    if checkpoint is not None:
        saved = torch.load(Path(checkpoint.path) / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"] + 1

    for epoch in range(first_epoch, MAX_EPOCHS):
        model.train()
        for rows in torch.randperm(len(train_x)).split(config["batch_size"]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train_x[rows]), train_y[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(valid_x)
            loss = nn.functional.cross_entropy(logits, valid_y).item()
            accuracy = (logits.argmax(1) == valid_y).float().mean().item()
        with tempfile.TemporaryDirectory() as directory:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(directory) / "state.pt")
            sweep.report(
                accuracy=accuracy, loss=loss, epoch=epoch + 1, checkpoint=sweep.Checkpoint.from_directory(directory)
            )


def main():
    analysis = sweep.run(
        train,
        config={
            "lr": sweep.loguniform(1e-5, 1e-1),
            "width": sweep.choice([16, 32, 64, 128, 256]),
            "dropout": sweep.uniform(0.0, 0.6),
            "weight_decay": sweep.loguniform(1e-6, 1e-2),
            "batch_size": sweep.choice([32, 64, 128]),
        },
        num_samples=24,
        metric="accuracy",
        mode="max",
        search_alg=sweep.OptunaSearch(sampler="tpe"),
        scheduler=sweep.ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=3),
        resources_per_trial={"cpu": 1},
        checkpoint_config=sweep.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"),
        seed=0,
    )
    best = analysis.best_trial
    accuracy = best.last_result["accuracy"]
    stopped = sum(
        trial.last_result["training_iteration"] < MAX_EPOCHS for trial in analysis.trials if trial.last_result
    )
    print(f"best validation accuracy {accuracy:.4f} in trial {best.trial_id}")
    print(f"best config {best.config}")
    print(f"{stopped} of {len(analysis.trials)} trials were stopped early")
    runs = analysis.dataframe(full=True)  # read from sweep.db
    at_once = max(((runs.start_time <= t) & (runs.end_time > t)).sum() for t in runs.start_time)
    print(f"up to {at_once} trials ran at the same time")
    print(f"everything is in {analysis.experiment_path}")
    return analysis


if __name__ == "__main__":
    main()
