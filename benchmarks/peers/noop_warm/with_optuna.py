"""No-op trials in threads of this process, kept in a journal. Arguments: a directory, trials."""

import json
import os
import sys
import time

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

directory, number = sys.argv[1], int(sys.argv[2])
at = []


def train(trial):
    value = trial.suggest_float("x", 0, 1)
    trial.report(value, step=1)
    at.append(time.time())
    return value


optuna.logging.set_verbosity(optuna.logging.ERROR)
began = time.time()
study = optuna.create_study(
    sampler=optuna.samplers.RandomSampler(), storage=JournalStorage(JournalFileBackend(f"{directory}/journal"))
)
study.optimize(train, n_trials=number, n_jobs=os.cpu_count())
whole_s = time.time() - began
at.sort()
assert len(at) == len(study.trials) == number
skipped = number // 5
print(
    json.dumps({"steady_per_s": (number - skipped) / (at[-1] - at[skipped - 1]), "whole_per_s": number / whole_s}),
)
