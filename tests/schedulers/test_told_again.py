"""A recorded run told to a new scheduler gives the same further decisions, wherever the driver was interrupted."""

from __future__ import annotations

from functools import partialmethod

import pytest
from every_policy import SCHEDULERS
from sweep_run import in_virtual_time, new_sweep

import sweep
from sweep.core.messages import ResumeTrial
from sweep.engines.simulator import Point
from sweep.schedulers.base import Scheduler
from sweep.schedulers.pbt import PopulationBasedTraining

RETOLD = {"on_trial_add", "on_result", "on_trial_end", "on_nodes_changed"}  # what the record holds


class Recorder(Scheduler):
    """Passes everything on to another scheduler, and keeps what it was told and what it answered."""

    def __init__(self, inner):
        self.inner = inner
        self.calls = []

    def _call(self, hook, *args):
        answer = getattr(self.inner, hook)(*args)
        kept = [dict(arg) if hook in ("on_result", "on_idle") and arg is args[-1] else arg for arg in args]
        self.calls.append((hook, kept, answer))
        return answer

    on_trial_add = partialmethod(_call, "on_trial_add")
    on_result = partialmethod(_call, "on_result")
    on_trial_end = partialmethod(_call, "on_trial_end")
    on_nodes_changed = partialmethod(_call, "on_nodes_changed")
    on_refused = partialmethod(_call, "on_refused")
    on_idle = partialmethod(_call, "on_idle")


def ready(name):
    scheduler = SCHEDULERS[name]()
    scheduler.set_search_properties("loss", "min", seed=3)
    return scheduler


def essential(answer):
    """Decisions without those that withdraw a pause: after a restart one may be withdrawn that is none."""
    return [decision for decision in answer or () if not isinstance(decision, ResumeTrial)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "pb2, synchronous" else ())
        for name in sorted(SCHEDULERS.keys() - {"fifo"})
    ],
)
@pytest.mark.parametrize("step", [29, pytest.param(5, marks=pytest.mark.slow)])
def test_wherever_a_run_is_cut_the_rest_is_decided_alike(name, step):
    def curve(config, done):
        for step in range(done + 1, 13):
            yield Point(0.5 + config["x"], {"loss": step * config["x"], "size": config["x"]}, has_checkpoint=True)

    recorder = Recorder(ready(name))
    decided = new_sweep(recorder, num_trials=12, ask_ahead=4)
    in_virtual_time(decided, curve, [{"x": (5 * i % 12) / 12, "lr": 0.01} for i in range(12)], cpus=3)
    calls = recorder.calls
    assert sum(bool(essential(answer)) for *_, answer in calls) > 5
    for cut in range(0, len(calls), step):
        again = ready(name)
        for hook, args, _ in calls[:cut]:
            if hook in RETOLD:
                getattr(again, hook)(*args)
        for i, (hook, args, answer) in enumerate(calls[cut:], cut):
            assert essential(getattr(again, hook)(*args)) == essential(answer), (cut, i, hook)


# --- with processes --------------------------------------------------------------------------------------------------


class Climber(sweep.Trainable):
    """Adds its rate to a total, which is in every checkpoint."""

    def setup(self, config):
        self.total, self.rate = 0.0, config["rate"]

    def step(self):
        self.total += self.rate
        return {"m": self.total, "done": self.training_iteration >= 7}

    def save_checkpoint(self, checkpoint_dir):
        return {"total": self.total}

    def load_checkpoint(self, checkpoint):
        self.total = checkpoint["total"]


@pytest.mark.parametrize("synch", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_population_is_cloned_between_processes(tmp_path, request, synch):
    request.addfinalizer(sweep.shutdown)
    scheduler = PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"rate": [1.0, 2.0, 3.0, 4.0, 5.0]},
        resample_probability=0,
        synch=synch,
    )
    sweep.init(num_cpus=2, num_gpus=0)
    found = sweep.run(
        Climber,
        config={"rate": sweep.grid_search([1.0, 2.0, 3.0, 4.0])},
        metric="m",
        mode="max",
        seed=1,
        scheduler=scheduler,
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert {(trial.status, trial.last_result["training_iteration"]) for trial in found.trials} == {("TERMINATED", 8)}
    assert scheduler.num_perturbations > 0
    assert found.trials[0].config["rate"] > 1.0
    assert found.trials[0].last_result["m"] > 8.0  # what the checkpoint of another contained, and more
