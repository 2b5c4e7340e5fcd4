"""One trial, kept in a journal; what counts is the time from the start of this process to its end."""

import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(
    sampler=optuna.samplers.RandomSampler(), storage=JournalStorage(JournalFileBackend(f"{sys.argv[1]}/journal"))
)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
assert study.best_value < 1
print("{}")
