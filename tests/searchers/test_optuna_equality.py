"""One trial at a time, OptunaSearch is Optuna: the same numbers, bit for bit, as a plain study asked and told."""

from __future__ import annotations

import math
import warnings

import numpy as np
import optuna
import pytest
from optuna.samplers import (
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)

from searchers import (
    OptunaSearch,
    choice,
    lograndint,
    loguniform,
    qloguniform,
    qrandint,
    quniform,
    randint,
    uniform,
)

MIXED = {
    "batch": qrandint(16, 128, 16),
    "drop": quniform(0.0, 0.5, 0.125),
    "kind": choice(["relu", "tanh", "gelu"]),
    "lr": loguniform(1e-5, 1e-1),
    "net": {"depth": randint(1, 8), "width": lograndint(8, 512)},
    "rate": qloguniform(0.5, 8.0, 0.5),
    "x": uniform(-3.0, 5.0),
}


def plain_mixed(trial):
    """Ask for the parameters of `MIXED` as a user of Optuna does."""
    return {
        "batch": trial.suggest_int("batch", 16, 128, step=16),
        "drop": trial.suggest_float("drop", 0.0, 0.5, step=0.125),
        "kind": trial.suggest_categorical("kind", ["relu", "tanh", "gelu"]),
        "lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
        "net": {
            "depth": trial.suggest_int("net/depth", 1, 7),
            "width": trial.suggest_int("net/width", 8, 511, log=True),
        },
        "rate": round(trial.suggest_float("rate", 0.5, 8.0, log=True) / 0.5) * 0.5,
        "x": trial.suggest_float("x", -3.0, 5.0),
    }


def conditional(trial):
    """Define by run: which parameters there are depends on others."""
    kind = trial.suggest_categorical("kind", ["linear", "net"])
    config = {"kind": kind, "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True)}
    if kind == "net":
        config["layers"] = trial.suggest_int("layers", 1, 3)
        for layer in range(config["layers"]):
            config[f"width {layer}"] = trial.suggest_int(f"width {layer}", 8, 64, step=8)
    else:
        config["penalty"] = trial.suggest_float("penalty", 0.0, 1.0, step=0.25)
    return config


def mixed_loss(config):
    bad = {"relu": 0.0, "tanh": 0.5, "gelu": 0.25}[config["kind"]]
    return (math.log10(config["lr"]) + 3) ** 2 + config["x"] ** 2 + bad + config["drop"] + config["net"]["width"] / 512


def conditional_loss(config):
    return (math.log10(config["lr"]) + 2) ** 2 + (config.get("layers", 4) - 2) ** 2 + config.get("penalty", 0)


def seed_of(seed, draw):
    return int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])


SAMPLERS = {
    "tpe": lambda seed, first, cond: TPESampler(seed=seed, multivariate=True, constant_liar=True, group=cond),
    "cmaes": lambda seed, first, cond: CmaEsSampler(
        seed=seed, independent_sampler=RandomSampler(seed=seed), warn_independent_sampling=False
    ),
    "gp": lambda seed, first, cond: GPSampler(
        seed=seed, independent_sampler=RandomSampler(seed=seed), warn_independent_sampling=False
    ),
    "qmc": lambda seed, first, cond: QMCSampler(
        scramble=True, seed=first, independent_sampler=RandomSampler(seed=seed), warn_independent_sampling=False
    ),
    "nsgaii": lambda seed, first, cond: NSGAIISampler(seed=seed),
    "nsgaiii": lambda seed, first, cond: NSGAIIISampler(seed=seed),
    "random": lambda seed, first, cond: RandomSampler(seed=seed),
}


def plain(sampler_of, space, loss, num_trials, directions=("minimize",)):
    """Return the configs of a plain study whose sampler has a new seed before each ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(directions=list(directions))
        configs = []
        for draw in range(num_trials):
            study.sampler = sampler_of(draw)
            trial = study.ask()
            configs.append(space(trial))
            study.tell(trial, loss(configs[-1]))
    return configs, [trial.params for trial in study.trials]


def ours(search, loss, num_trials, metrics=("loss",)):
    configs = []
    for number in range(num_trials):
        config = search.suggest(f"t{number}")
        value = loss(config)
        values = value if isinstance(value, tuple) else (value,)
        result = dict(zip(metrics, values, strict=True)) | {"training_iteration": 1}
        search.on_trial_result(f"t{number}", result)
        search.on_trial_complete(f"t{number}", result)
        configs.append(config)
    return configs, [trial.params for trial in search.study.trials]


@pytest.fixture(autouse=True)
def quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


SMALL = {"kind": choice(["a", "b"]), "lr": loguniform(1e-4, 1.0), "q": quniform(0.0, 1.0, 0.25)}


def plain_small(trial):
    return {
        "kind": trial.suggest_categorical("kind", ["a", "b"]),
        "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
        "q": trial.suggest_float("q", 0.0, 1.0, step=0.25),
    }


def small_loss(config):
    return (math.log10(config["lr"]) + 2) ** 2 + config["q"] + (config["kind"] == "a")


def losses(config):
    return mixed_loss(config), config["net"]["width"] * config["net"]["depth"]


def by_run(trial):
    """Ask as `conditional` does; what it returns adds nothing."""
    conditional(trial)


# The space, how it is asked for by hand, what is reported, and the samplers with a number of trials.
WORLDS = {
    "mixed": (MIXED, plain_mixed, mixed_loss, {"tpe": 30, "cmaes": 30, "qmc": 30, "random": 30}),
    "conditional": (by_run, conditional, conditional_loss, {"tpe": 30, "cmaes": 30, "qmc": 30, "random": 30}),
    "several objectives": (MIXED, plain_mixed, losses, {"tpe": 30, "qmc": 30}),
    "small": (SMALL, plain_small, small_loss, {"gp": 30}),
}
GENETIC = {"nsgaii": 60, "nsgaiii": 60}
SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("world", "name", "num_trials"),
    [
        pytest.param(world, name, number, marks=SLOW if name == "gp" or (world, name) == ("mixed", "nsgaiii") else ())
        for world, (*_, samplers) in WORLDS.items()
        for name, number in (samplers if world == "small" else samplers | GENETIC).items()
    ],
)
def test_a_space_gives_the_numbers_of_a_plain_study(world, name, num_trials):
    space, asked, loss, _ = WORLDS[world]
    make, is_conditional = SAMPLERS[name], world == "conditional"
    metrics, modes, directions = ["loss"], ["min"], ["minimize"]
    if loss is losses:
        metrics, modes, directions = ["loss", "size"], ["min", "max"], ["minimize", "maximize"]
    expected = plain(
        lambda draw: make(seed_of(7, draw), seed_of(7, 0), is_conditional), asked, loss, num_trials, directions
    )
    assert ours(OptunaSearch(space, metrics, modes, sampler=name, seed=7), loss, num_trials, metrics) == expected
    assert len({str(params) for params in expected[1]}) > num_trials * 0.5


FINITE = {"kind": choice(["a", "b"]), "q": quniform(0.0, 1.0, 0.25)}


def plain_finite(trial):
    return {"kind": trial.suggest_categorical("kind", ["a", "b"]), "q": trial.suggest_float("q", 0.0, 1.0, step=0.25)}


@pytest.mark.parametrize(("space", "asked", "is_liar"), [(SMALL, plain_small, False), (FINITE, plain_finite, True)])
@pytest.mark.parametrize(("at_a_time", "num_random"), [(4, 7), (8, 5)])
def test_several_at_a_time_give_the_numbers_of_a_plain_study(space, asked, is_liar, at_a_time, num_random):
    """Open trials count among those at random, and as bad ones only where points would be tried twice."""
    search, study = OptunaSearch(space, "loss", "min", seed=6), optuna.create_study()
    expected, found, waiting = [], [], []
    for draw in range(40):
        if len(waiting) == at_a_time:
            trial, config = waiting.pop(0)
            loss = config["q"] + (config["kind"] == "a") + abs(config.get("lr", 0) - 0.3)
            study.tell(trial, loss)
            search.on_trial_complete(f"t{trial.number}", {"loss": loss})
        num_startup = max(num_random, 10 - len(waiting))
        study.sampler = TPESampler(
            seed=seed_of(6, draw), multivariate=True, constant_liar=is_liar, n_startup_trials=num_startup
        )
        trial = study.ask()
        expected.append(asked(trial))
        found.append(search.suggest(f"t{draw}"))
        waiting.append((trial, found[-1]))
    assert found == expected


def test_a_function_of_a_seed_gives_the_numbers_of_a_plain_study():
    def make(seed):
        return TPESampler(seed=seed, n_startup_trials=4, n_ei_candidates=8)

    expected = plain(lambda draw: make(seed_of(2, draw)), plain_mixed, mixed_loss, 20)
    assert ours(OptunaSearch(MIXED, "loss", "min", sampler=make, seed=2), mixed_loss, 20) == expected
