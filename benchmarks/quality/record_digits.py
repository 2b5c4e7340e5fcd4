"""Record the learning curves of 300 small networks on the digits that scikit-learn carries, as a table for replays.

`python benchmarks/quality/record_digits.py` writes `digits_curves.csv` next to itself; it takes some minutes on one
core. The table is shipped, so that experiments with schedulers take milliseconds and everybody has the same curves.

Per row: the number of the config, its values, then per epoch 1 to 27 how many of the 719 validation images were wrong,
and the seconds of processor time that the epoch took.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("digits_curves.csv")
NUM_CONFIGS = 300
NUM_EPOCHS = 27
SEED = 0


def draw(number: int) -> dict[str, Any]:
    """Return config `number`: always the same, whatever others are drawn."""
    rng = np.random.default_rng(np.random.SeedSequence([SEED, number]))

    def log_uniform(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.6g}")

    return {
        "lr": log_uniform(1e-5, 1.0),
        "alpha": log_uniform(1e-7, 1.0),
        "batch_size": 2 ** int(rng.integers(3, 9)),
        "width": 2 ** int(rng.integers(3, 8)),
        "momentum": round(float(rng.uniform(0.0, 0.99)), 4),
    }


def train(config: dict[str, Any], number: int, data: Any) -> tuple[list[int], list[float]]:
    """Return per epoch how many validation images were wrong, and the seconds of processor time it took."""
    from sklearn.neural_network import MLPClassifier

    images, held_out, labels, truth = data
    network = MLPClassifier(
        hidden_layer_sizes=(config["width"],),
        solver="sgd",
        learning_rate_init=config["lr"],
        alpha=config["alpha"],
        batch_size=config["batch_size"],
        momentum=config["momentum"],
        random_state=number,
    )
    wrong, seconds = [], []
    for _ in range(NUM_EPOCHS):
        began = time.process_time()
        try:
            network.partial_fit(images, labels, classes=np.arange(10))
            wrong.append(int(np.sum(network.predict(held_out) != truth)))
        except (
            ValueError
        ):  # scikit-learn refuses to go on once weights are no numbers: it is wrong as often as by chance
            wrong.append(round(0.9 * len(truth)))
        seconds.append(time.process_time() - began)
    return wrong, seconds


def main(num_configs: int = NUM_CONFIGS) -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    warnings.simplefilter("ignore", RuntimeWarning)  # a rate of 1 overflows, which is part of the task
    images, labels = load_digits(return_X_y=True)
    images, held_out, labels, truth = train_test_split(images, labels, test_size=0.4, stratify=labels, random_state=0)
    mean, deviation = images.mean(), images.std()  # of all pixels together: one by one, the dark corners are blown up
    data = ((images - mean) / deviation, (held_out - mean) / deviation, labels, truth)
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        epochs = range(1, NUM_EPOCHS + 1)
        writer.writerow(["number", *draw(0), *(f"wrong_{e}" for e in epochs), *(f"seconds_{e}" for e in epochs)])
        for number in range(num_configs):
            config = draw(number)
            wrong, seconds = train(config, number, data)
            writer.writerow([number, *config.values(), *wrong, *(f"{s:.3f}" for s in seconds)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=NUM_CONFIGS)
    main(parser.parse_args().configs)
