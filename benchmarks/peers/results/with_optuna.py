"""Eight threads that report as fast as they can into a journal. Arguments: a directory, reports of each trial."""

import json
import sys
import time
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

directory, number = Path(sys.argv[1]), int(sys.argv[2])
times = []


def train(trial):
    began = time.time()
    for step in range(number):
        trial.report(1 / (step + 1), step)
    times.append((began, time.time()))
    return 1 / number


optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = JournalStorage(JournalFileBackend(f"{directory}/journal"))
study = optuna.create_study(study_name="results", storage=storage)
study.optimize(train, n_trials=8, n_jobs=8)
again = optuna.load_study(study_name="results", storage=JournalStorage(JournalFileBackend(f"{directory}/journal")))
kept = sum(len(trial.intermediate_values) for trial in again.trials)
assert kept == 8 * number, kept
print(json.dumps({"per_s": kept / (max(end for _, end in times) - min(began for began, _ in times))}))
