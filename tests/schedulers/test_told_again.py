"""A recorded run told to a new scheduler gives the same further decisions, wherever the driver was interrupted."""

from __future__ import annotations

import pytest
from sweep_run import in_virtual_time, new_sweep

import sweep
from searchers.space import uniform
from sweep.core.messages import ResumeTrial
from sweep.core.trial import Status
from sweep.engines.simulator import Point
from sweep.record.layout import ExperimentLayout
from sweep.record.resume import retell
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.base import Scheduler
from sweep.schedulers.hb_bohb import HyperBandForBOHB
from sweep.schedulers.hyperband import HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.moasha import MOASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.resource_changing import ResourceChangingScheduler

RETOLD = {
    "on_trial_add",
    "on_result",
    "on_trial_end",
    "on_nodes_changed",
}  # what the record holds; the rest follows from it


class Recorder(Scheduler):
    """Passes everything on to another scheduler, and keeps what it was told and what it answered."""

    def __init__(self, inner):
        self.inner = inner
        self.calls = []

    def _call(self, hook, *args):
        answer = getattr(self.inner, hook)(*args)
        kept = tuple(arg if isinstance(arg, (tuple, str)) or not hasattr(arg, "items") else dict(arg) for arg in args)
        kept = tuple(args[i] if hook == "on_result" and i == 1 else arg for i, arg in enumerate(kept))
        self.calls.append((hook, kept, answer))
        return answer

    def on_trial_add(self, trial):
        self._call("on_trial_add", trial)

    def on_result(self, trial, result, trials):
        return self._call("on_result", trial, result, trials)

    def on_trial_end(self, trial):
        return self._call("on_trial_end", trial)

    def on_nodes_changed(self, nodes):
        return self._call("on_nodes_changed", nodes)

    def on_refused(self, trial, decision):
        return self._call("on_refused", trial, decision)

    def on_idle(self, trials):
        return self._call("on_idle", trials)


def hyperband():
    return HyperBandScheduler(max_t=9)


def large_first():
    return HyperBandForBOHB(max_t=9)


def promotion():
    return ASHAScheduler(max_t=9, reduction_factor=2, type="promotion")


def pasha():
    return PASHAScheduler(max_t=9, reduction_factor=2)


def objectives():
    return MOASHAScheduler(metric=["m", "time_total_s"], mode=["max", "min"], max_t=9, reduction_factor=2)


def median():
    return MedianStoppingRule("training_iteration", grace_period=2)


def population(**arguments):
    return PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"x": uniform(0, 1)}, **arguments
    )


def in_step():
    return population(synch=True)


def bandit(**arguments):
    return PB2("training_iteration", perturbation_interval=4, hyperparam_bounds={"x": [0, 1]}, **arguments)


def bandit_in_step():
    return bandit(synch=True)


def resource_changing():
    return ResourceChangingScheduler(hyperband())


def ready(build):
    scheduler = build()
    scheduler.set_search_properties("m", "max", seed=3)
    return scheduler


def essential(answer):
    """Decisions without those that withdraw a pause: after a restart one may be withdrawn that is none."""
    return [decision for decision in answer or () if not isinstance(decision, ResumeTrial)]


@pytest.mark.parametrize(
    "build",
    [
        hyperband,
        large_first,
        promotion,
        pasha,
        objectives,
        median,
        population,
        in_step,
        bandit,
        bandit_in_step,
        resource_changing,
    ],
)
@pytest.mark.parametrize("step", [29, pytest.param(5, marks=pytest.mark.slow)])
def test_wherever_a_run_is_cut_the_rest_is_decided_alike(build, step):
    def curve(config, done):
        for step in range(done + 1, 13):
            yield Point(0.5 + config["x"], {"m": step * config["x"]}, has_checkpoint=True)

    recorder = Recorder(ready(build))
    decided = new_sweep(recorder, num_trials=12, ask_ahead=4)
    in_virtual_time(decided, curve, [{"x": (5 * i % 12) / 12} for i in range(12)], cpus=3)
    calls = recorder.calls
    assert sum(bool(essential(answer)) for *_, answer in calls) > 5
    for cut in range(0, len(calls), step):
        again = ready(build)
        for hook, args, _ in calls[:cut]:
            if hook in RETOLD:
                getattr(again, hook)(*args)
        for i, (hook, args, answer) in enumerate(calls[cut:], cut):
            assert essential(getattr(again, hook)(*args)) == essential(answer), (cut, i, hook)


# --- with processes --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _inventory():
    yield
    sweep.shutdown()


def climber():
    """Return a trainable that adds its rate to a total, which is in every checkpoint."""

    class Climber(sweep.Trainable):
        def setup(self, config):
            self.total, self.rate = 0.0, config["rate"]

        def step(self):
            self.total += self.rate
            return {"m": self.total, "done": self.training_iteration >= 7}

        def save_checkpoint(self, checkpoint_dir):
            return {"total": self.total}

        def load_checkpoint(self, checkpoint):
            self.total = checkpoint["total"]

    return Climber


def climb(scheduler, again, tmp_path, num_cpus):
    """Run four climbers in processes; returns the trials by rate, and checks that the record brings the state back."""
    sweep.init(num_cpus=num_cpus, num_gpus=0)
    grid = sweep.run(
        climber(),
        config={"rate": sweep.grid_search([1.0, 2.0, 3.0, 4.0])},
        metric="m",
        mode="max",
        seed=1,
        scheduler=scheduler,
        resources_per_trial={"cpu": 1},
        storage_path=str(tmp_path),
        name="climb",
        verbose=0,
    )
    assert [trial.status for trial in grid.trials] == [Status.TERMINATED] * 4
    again.set_search_properties("m", "max", seed=1)

    class Deaf:
        hears_results = False

        def retell(self, *args):
            pass

        def on_trial_complete(self, *args, **more):
            pass

        def on_unpause(self, *args):
            pass

        def on_pause(self, *args):
            pass

    retell(ExperimentLayout(tmp_path / "climb").database, again, Deaf())
    assert again.state() == scheduler.state()
    return grid.trials


def test_hyperband_pauses_and_resumes_processes(tmp_path):
    def build():
        return HyperBandScheduler(max_t=4, reduction_factor=2)  # brackets [(3, 4)] and [(3, 2), (2, 4)]

    trials = climb(build(), build(), tmp_path, 2)
    assert [trial.last_result["training_iteration"] for trial in trials] == [4, 4, 4, 4]
    assert trials[3].last_result["m"] == 16.0
    assert trials[3].attempt == 2  # it was paused at 2, alone in its bracket


def test_the_median_rule_stops_processes(tmp_path):
    def build():
        return MedianStoppingRule("training_iteration", grace_period=2, min_samples_required=2)

    trials = climb(build(), build(), tmp_path, 1)
    steps = {trial.config["rate"]: trial.last_result["training_iteration"] for trial in trials}
    assert steps[4.0] == 8
    assert min(steps.values()) < 8
    assert all(trial.last_result["m"] == trial.config["rate"] * steps[trial.config["rate"]] for trial in trials)


@pytest.mark.parametrize("synch", [False, True])
def test_a_population_is_cloned_between_processes(tmp_path, synch):
    def build():
        return PopulationBasedTraining(
            "training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"rate": [1.0, 2.0, 3.0, 4.0, 5.0]},
            resample_probability=0,
            synch=synch,
        )

    scheduler = build()
    trials = climb(scheduler, build(), tmp_path, 2)
    assert scheduler.num_perturbations > 0
    assert {trial.last_result["training_iteration"] for trial in trials} == {8}
    assert trials[0].config["rate"] > 1.0
    assert trials[0].last_result["m"] > 8.0  # what the checkpoint of another contained, and more


@pytest.mark.parametrize("synch", [False, True])
def test_what_a_bandit_learned_from_processes_comes_back_from_the_record(tmp_path, synch):
    def build():
        return PB2("training_iteration", perturbation_interval=2, hyperparam_bounds={"rate": [0, 5]}, synch=synch)

    scheduler = build()
    trials = climb(scheduler, build(), tmp_path, 2)  # compares the states, in which all gains are
    assert scheduler.num_perturbations > 0
    assert trials[0].config["rate"] != 1.0
    assert {gain.score for gain in scheduler.state()[4]} > {2.0}
