"""Metrics that are reported late, wrongly or never: what a whole run makes of them, and what it says."""

from __future__ import annotations

import re
import warnings

import pytest
from test_api_bad_input import MIXED, mixed

import sweep
from sweep.errors import MetricError
from sweep.record.reader import ExperimentReader


@pytest.fixture(autouse=True)
def _storage(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))


def run(trainable, **arguments):
    return sweep.run(trainable, **({"verbose": 0, "metric": "loss", "mode": "min"} | arguments))


@pytest.mark.parametrize("own", [{}, {"raise_on_failed_trial": False}, {"engine": "inline"}])
def test_a_metric_that_no_trial_of_a_small_sweep_reported_is_an_error_at_its_end(tmp_path, own):
    with pytest.raises(MetricError, match=r"2 trials reported loss; expected the metric 'accuracy'.*kept in .*/m\.$"):
        run(lambda config: {"loss": 1.0}, metric="accuracy", num_samples=2, name="m", **own)
    assert [trial.status for trial in ExperimentReader(tmp_path / "m").trials()] == ["TERMINATED"] * 2


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "a trial reported nothing; expected the metric 'loss'. Call sweep"),
        ({"loss": None}, "reported None under the metric 'loss'; expected a number"),
        (0.5, "a bare number, which is filed under '_metric'; expected the metric 'loss'. Write `return {'loss'"),
    ],
)
def test_nothing_none_and_a_bare_number_are_told_apart_from_a_slip(returned, said):
    with pytest.raises(MetricError, match=re.escape(said)):
        run(lambda config: returned, engine="inline")
    sweep.run(lambda config: returned, verbose=0, engine="inline")  # without a metric nobody waits for a report


def test_a_metric_that_is_reported_later_is_allowed_and_much_later_when_not_strict():
    def late(config):
        for _ in range(config["steps"]):
            sweep.report(warming_up=1)
        sweep.report(loss=1.0)

    assert run(late, config={"steps": 1}).best_result["loss"] == 1.0
    with pytest.raises(MetricError, match="When it comes after more than 10 reports, pass strict_metric=False"):
        run(late, config={"steps": 12})
    assert run(late, config={"steps": 12}, strict_metric=False).best_result["loss"] == 1.0


def test_the_end_summary_counts_the_trials_that_never_reported_the_metric(tmp_path, capfd):
    run(mixed, config=MIXED, verbose=1, raise_on_failed_trial=False)
    assert "2 x never reported the metric 'loss'   trials 00001 00002" in capfd.readouterr().out


def test_trials_that_were_stopped_early_are_not_counted_among_those_that_never_reported_the_metric(recwarn):
    def slow(config):
        sweep.report(loss=1.0) if config["x"] else sweep.report(warming_up=1)
        sweep.report(warming_up=2)

    class First(sweep.Stopper):
        def __call__(self, trial_id, result):
            return False

        def stop_all(self):
            return True

    run(slow, config={"x": sweep.grid_search([1, 0])}, stop=First())
    assert not recwarn.list


def late_once(config):
    for step in range(4):
        sweep.report({"loss": config["x"]} if step == 2 else {"warming_up": 1})


@pytest.mark.parametrize("scheduler", ["asha", "medianstopping"])
def test_a_scheduler_to_which_the_metric_comes_late_goes_on(scheduler):
    space = {"x": sweep.uniform(0, 1)}
    analysis = run(late_once, config=space, num_samples=4, scheduler=scheduler)
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}


def test_a_scheduler_that_cannot_go_on_without_the_metric_says_so_at_the_first_report():
    population = sweep.PopulationBasedTraining(
        time_attr="training_iteration", hyperparam_mutations={"x": sweep.uniform(0, 1)}
    )
    with pytest.raises(MetricError, match=r"^a result lacks 'loss', which PopulationBasedTraining judges by\."):
        run(late_once, config={"x": 1.0}, scheduler=population)


@pytest.mark.parametrize("searcher", ["random", "tpe"])
def test_a_searcher_goes_on_when_trials_never_report_the_metric_or_report_a_text(searcher):
    def odd(config):
        number = int(sweep.get_context().get_trial_id()[-5:])
        sweep.report([{"loss": config["x"]}, {"loss": "bad"}, {"a": 1}][number % 3])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = run(
            odd,
            config={"x": sweep.uniform(0, 1), "y": sweep.uniform(0, 1)},
            num_samples=8,
            search_alg=searcher,
            raise_on_failed_trial=False,
        )
    assert len(analysis.trials) == 8


def test_a_resumed_sweep_tells_its_scheduler_again_only_what_it_was_told(tmp_path):
    def odd(config):
        for step in range(3):
            sweep.report({"loss": "bad"} if config["x"] < 0.5 and step == 1 else {"loss": config["x"]})

    given = {"config": {"x": sweep.uniform(0, 1)}, "name": "r", "seed": 1, "raise_on_failed_trial": False}
    for samples in (4, 8):
        run(odd, num_samples=samples, resume="AUTO", scheduler="asha", **given)
    found = sweep.replay(tmp_path / "r")
    assert (found.num_runs, found.is_same) == (2, True)
