"""Whatever trials report, and whatever an older version stored of it: a sweep goes on, resumes and is read."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import odd_values
import pytest
from click.testing import CliRunner

import sweep
from sweep.core.results import NUMBERS

EVERY = list(odd_values.ODD)
FEW = [
    "10**400",
    "10**5000",
    "array of 3",
    "10 MB of text",
    "surrogate",
    "list that holds itself",
    "0-d tensor",
    "True",
]
SCHEDULERS = {
    "fifo": lambda: None,
    "asha": lambda: sweep.ASHAScheduler(max_t=2, grace_period=1),
    "median": lambda: sweep.MedianStoppingRule(time_attr="training_iteration", grace_period=1, min_samples_required=2),
    "hyperband": lambda: sweep.HyperBandScheduler(max_t=2),
    "pbt": lambda: sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"x": sweep.uniform(0, 1)}
    ),
}
SEARCHERS = {"random": lambda: None, "tpe": lambda: sweep.OptunaSearch(seed=1)}
COMBINED = [
    (one, other) for one in SCHEDULERS for other in SEARCHERS if (one, other) != ("pbt", "tpe")
]  # it refuses that
PLACES = ("metric", "other", "filled in", "key", "inside")


def reported(names, number, step, x):
    """Return what trial `number` reports: one of the odd values, in one of the places."""
    place, name = PLACES[number % len(PLACES)], names[number // len(PLACES) % len(names)]
    metrics = {"loss": x + step, "plain": 1}
    if step == 0 and place in ("metric", "filled in"):
        return metrics  # so that there is something before
    value = odd_values.ODD[name]()
    match place:
        case "metric":
            metrics["loss"] = value
        case "other":
            metrics["odd"] = value
        case "filled in":
            metrics[NUMBERS[number % len(NUMBERS)]] = value
        case "key":
            try:
                metrics[value] = 1.0
            except Exception:  # it has no hash
                metrics["values"] = [value]
        case "inside":
            metrics |= {"eval": {"odd": value, "acc": 0.5}, "listed": [value, 1.0]}
    return metrics


def trainable_of(names):
    """Return a class whose trials report `names` in all places."""

    class Odd(sweep.Trainable):
        def setup(self, config):
            self.number = int(self.trial_id[-5:])

        def step(self):
            metrics = reported(names, self.number, self.iteration, self.config["x"])
            return metrics | {"done": True} if self.iteration >= 1 and "done" not in metrics else metrics

        def save_checkpoint(self, checkpoint_dir):
            return {}

        def load_checkpoint(self, checkpoint):
            pass

    return Odd


def run(names, scheduler, searcher, *, more=0, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about our values
        return sweep.run(
            trainable_of(names),
            config={"x": sweep.uniform(0, 1)},
            num_samples=len(names) * len(PLACES) + more,
            metric="loss",
            mode="min",
            scheduler=SCHEDULERS[scheduler](),
            search_alg=SEARCHERS[searcher](),
            engine="inline",
            verbose=0,
            seed=1,
            raise_on_failed_trial=False,
            name="odd",
            **arguments,
        )


def check_ends(analysis, names):
    """Check that a trial is in ERROR just when a metric, or what is filled in, was no number."""
    for trial in analysis.trials:
        number = int(trial.trial_id[-5:])
        place, name = PLACES[number % len(PLACES)], names[number // len(PLACES) % len(names)]
        if place in ("other", "key", "inside"):
            assert trial.status == "TERMINATED", (trial.reason, place, name)
        elif name in odd_values.NUMBERS:
            assert "expected a number" not in trial.reason, (trial.reason, place, name)
        elif trial.status == "ERROR":
            key = "loss" if place == "metric" else NUMBERS[number % len(NUMBERS)]
            assert f"{key!r} is " in trial.reason, (trial.reason, place, name)
            assert len(trial.reason) < 250 or "Name one of" in trial.reason
            assert len(trial.reason) < 1500
            assert "expected a number" in trial.reason


def check_files(analysis, root):
    """Read everything that is made of a sweep."""
    for style in ("sweep", "ray", "optuna"):
        assert len(analysis.dataframe(style=style)) == len(analysis.trials)
    assert len(analysis.history()) > 0
    analysis.events()
    for frame in (analysis.dataframe(), analysis.history()):
        frame.to_string()
        frame.to_csv()
    repr(analysis), analysis._repr_html_()
    for trial in analysis.trials:
        directory = Path(root) / trial.trial_id
        lines = (directory / "result.json").read_text(encoding="utf-8").splitlines() if trial.last_result else []
        for line in lines:
            json.loads(line)
        if lines:
            with (directory / "progress.csv").open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            assert len(rows) == len(lines)
            assert all(None not in row and None not in row.values() for row in rows)


COMMANDS = [
    ["show", "odd"],
    ["show", "odd", "1"],
    ["show", "odd", "1", "--format", "json"],
    ["ls", "odd"],
    ["trials", "odd", "--sort", "loss"],
    ["trials", "odd", "--format", "json"],
    ["trials", "odd", "--format", "csv"],
    ["why", "odd"],
    ["why", "odd", "0"],
    ["best", "odd"],
    ["best", "odd", "--scope", "all", "--format", "json"],
    ["best", "odd", "--scope", "last-5-avg"],
    ["replay", "odd"],
    ["replay", "odd", "--verify"],
]


def check_commands(storage):
    from sweep.cli.main import sweep as program

    wrong = []
    for command in COMMANDS:
        found = CliRunner().invoke(program, [*command, "--storage", str(storage)])
        if found.exit_code not in (0, 2) or (found.exception and not isinstance(found.exception, SystemExit)):
            wrong.append((command, found.exit_code, found.exception, found.output[-500:]))
        found.output.encode()
    assert not wrong, wrong


def test_a_sample_of_odd_values_harms_no_sweep(tmp_path, capfd):
    analysis = run(FEW, "asha", "tpe", storage_path=str(tmp_path))
    check_ends(analysis, FEW)
    assert len(analysis.trials) == len(FEW) * len(PLACES)
    again = run(FEW, "asha", "tpe", storage_path=str(tmp_path), resume=True, more=1)
    assert len(again.trials) == len(FEW) * len(PLACES) + 1
    assert sweep.replay(tmp_path / "odd").is_same


def test_what_odd_values_become_is_read_by_files_frames_and_commands(tmp_path, capfd):
    analysis = run(FEW, "fifo", "random", storage_path=str(tmp_path))
    check_files(analysis, tmp_path / "odd")
    check_commands(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "searcher"), COMBINED)
def test_every_odd_value_in_every_place_harms_no_sweep(scheduler, searcher, tmp_path, capfd):
    analysis = run(EVERY, scheduler, searcher, storage_path=str(tmp_path))
    check_ends(analysis, EVERY)
    check_files(analysis, tmp_path / "odd")
    again = run(EVERY, scheduler, searcher, storage_path=str(tmp_path), resume=True, more=1)
    assert len(again.trials) == len(EVERY) * len(PLACES) + 1
    assert sweep.replay(tmp_path / "odd").is_same
    check_commands(tmp_path)


# --- configs ---

IN_CONFIGS = ["10**400", "10**5000", "array of 3", "surrogate", "NUL", "complex", "path", "mixed set"]


@pytest.mark.parametrize("searcher", list(SEARCHERS))
def test_an_odd_value_in_a_config_is_tried_recorded_and_shown(searcher, tmp_path, capfd):
    def train(config):
        return {"loss": config["x"] if type(config["odd"]) is not type(None) else 0.0}

    options = [odd_values.ODD[name]() for name in IN_CONFIGS]
    given = {"metric": "loss", "mode": "min", "name": "odd", "storage_path": str(tmp_path), "engine": "inline"}
    for number in (12, 14):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Optuna, about options that are no numbers or texts
            analysis = sweep.run(
                train,
                config={"odd": sweep.choice(options), "x": sweep.uniform(0, 1)},
                num_samples=number,
                search_alg=SEARCHERS[searcher](),
                resume="AUTO",
                verbose=0,
                seed=1,
                **given,
            )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 14
    assert any(type(trial.config["odd"]) is int for trial in analysis.trials)
    check_files(analysis, tmp_path / "odd")
    check_commands(tmp_path)
    assert sweep.replay(tmp_path / "odd").is_same
