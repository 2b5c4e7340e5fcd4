"""Simulations: the sweep's own decisions on curves in virtual time, on recorded ones, and real runs once more."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sealed import changed
from simulation.test_replay import Climbs, call
from simulation.test_replay import run as run_climbs

import sweep
from sweep.core.messages import Event
from sweep.core.resources import Bundle, Resources
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ConfigError, ExperimentError, ResourceError, SearchError
from sweep.simulation.curves import Curves, RecordedCurve
from sweep.simulation.replay import rerun
from sweep.simulation.virtual import simulate

SPACE = {"x": sweep.uniform(0, 1)}
LONGEST = 9


def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
    for step in range(count + 1, LONGEST + 1):
        yield Point(2.0, {"loss": config["x"] + 1 / step}, has_checkpoint=True)


def lines(xs: list[float], **more: Any) -> list[RecordedCurve]:
    return [RecordedCurve(f"abcde_{i:05d}", {"x": x}, tuple(curve({"x": x}, 0)), **more) for i, x in enumerate(xs)]


def test_trials_share_the_machine_and_time_is_virtual() -> None:
    found = simulate(curve, config=SPACE, metric="loss", mode="min", num_samples=6, cpus=2)
    assert found.seconds == 3 * LONGEST * 2.0
    assert found.trial_seconds == 6 * LONGEST * 2.0
    assert [trial.status.value for trial in found.trials] == ["TERMINATED"] * 6
    assert found.best_trial is min(found.trials, key=lambda trial: trial.config["x"])
    assert found.best_result is not None
    assert found.best_result["loss"] == found.best_trial.config["x"] + 1 / LONGEST
    frame = found.get_dataframe()
    assert list(frame["at"]) == sorted(frame["at"])
    assert set(frame["config/x"]) == {trial.config["x"] for trial in found.trials}
    assert len(frame) == len(found.arrivals) == 6 * LONGEST


@pytest.mark.parametrize(
    ("absences", "seconds", "attempts"),
    [
        ({}, 18.0, [1, 1]),
        ({"b": [(5.0, 10.0)]}, 24.0, [1, 2]),  # two of nine reports were kept, and one second is lost
        ({"b": [(5.0, 30.0)]}, 32.0, [1, 2]),  # the other node is free sooner
        ({"a": [(5.0, 6.0)], "b": [(5.0, 10.0)]}, 24.0, [2, 2]),
        ({"a": [(5.0, 6.0)], "b": [(5.0, 10.0)]}, 20.0, [3]),  # what would move to the other is lost, too
    ],
)
def test_a_node_that_goes_takes_its_trials_with_it_and_they_go_on_from_their_checkpoints(
    absences: dict[str, list[tuple[float, float]]], seconds: float, attempts: list[int]
) -> None:
    nodes = [sweep.Node("a", 1.0), sweep.Node("b", 1.0)]
    found = simulate(curve, config=SPACE, num_samples=len(attempts), nodes=nodes, absences=absences)
    assert found.seconds == seconds
    assert sorted(trial.attempt for trial in found.trials) == attempts
    counts = [trial.last_result["training_iteration"] for trial in found.trials if trial.last_result]
    assert counts == [LONGEST] * len(attempts)
    assert len(found.arrivals) == len(attempts) * LONGEST


class Fixed(sweep.Searcher):
    """Suggests always the same."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return self.config


def under(search_alg: Any, space: dict[str, Any]) -> sweep.Simulation:
    return simulate(curve, config=space, metric="loss", mode="min", num_samples=3, search_alg=search_alg)


def test_the_users_own_searcher_may_leave_constants_out() -> None:
    class Plain:
        suggest = Fixed.suggest
        config: Any = {"x": 0.5}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            pass

        def set_search_properties(self, metric: str, mode: str, config: Any, **spec: Any) -> bool:
            return True

    space = {**SPACE, "epochs": 3, "net": {"depth": 2}}
    limited = sweep.ConcurrencyLimiter(Fixed({"x": 0.5}), 2)
    for search in (Fixed({"x": 0.5}), limited, Plain()):
        found = under(search, space)
        assert [trial.config for trial in found.trials] == [{"x": 0.5, "epochs": 3, "net": {"depth": 2}}] * 3
        assert found.notices == []
    assert under(Fixed({"x": 0.5, "epochs": 9}), space).trials[0].config["epochs"] == 9
    assert under(Fixed({"x": 7.0}), SPACE).trials[0].config == {"x": 7.0}  # it need not be of the space


def test_a_config_in_which_something_is_undecided_ends_the_sweep() -> None:
    with pytest.raises(SearchError, match="Fixed: SearchError: x was suggested as Float"):
        under(Fixed({"x": sweep.uniform(0, 1)}), SPACE)


def test_a_simulation_decides_like_the_run_of_the_same_seed(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"config": SPACE, "metric": "loss", "mode": "min", "num_samples": 9, "seed": 7}

    def train(config: dict[str, Any]) -> None:
        for step in range(1, LONGEST + 1):
            sweep.report(loss=config["x"] + 1 / step)

    for scheduler in ("asha", "median_stopping_rule"):
        given = {"time_attr": "training_iteration", "grace_period": 1}
        made = sweep.create_scheduler(scheduler, **given)
        run = sweep.run(
            train,
            **arguments,
            search_alg="tpe",
            scheduler=made,
            storage_path=tmp_path,
            verbose=0,
            engine="inline",
            nodes=[sweep.Node(cpus=1)],
        )
        found = simulate(curve, **arguments, search_alg="tpe", scheduler=sweep.create_scheduler(scheduler, **given))
        assert [(t.config, t.last_result["training_iteration"]) for t in run.trials] == [
            (t.config, t.last_result["training_iteration"]) for t in found.trials if t.last_result is not None
        ]


def test_clones_continue_from_the_state_that_they_took_over() -> None:
    def learns(config: Mapping[str, Any], count: int, state: float | None) -> Iterator[Point]:
        level = state or 0.0
        for _ in range(count, 8):
            level += config["rate"]
            yield Point(1.0, {"level": level}, has_checkpoint=True, state=level)

    mutations = {"hyperparam_mutations": {"rate": [1.0]}, "quantile_fraction": 0.5}
    scheduler = sweep.PopulationBasedTraining("training_iteration", perturbation_interval=4, **mutations)
    space = {"rate": sweep.grid_search([0.0, 1.0])}
    found = simulate(learns, config=space, metric="level", mode="max", cpus=2, scheduler=scheduler)
    assert [trial.last_result["level"] for trial in found.trials if trial.last_result is not None] == [8.0, 8.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_samples": 0}, ConfigError, "num_samples is 0; expected a whole number of at least 1"),
        ({"num_samples": True}, ConfigError, "num_samples is True"),
        ({"resources_per_trial": {"cpu": 4}, "cpus": 2}, ResourceError, "a trial asks for"),
        ({"metric": "loss", "scheduler": "asha"}, ConfigError, "needs a mode"),
        ({"scheduler": "asah"}, sweep.errors.UnknownNameError, "there is no scheduler 'asah'"),
        ({"time_budget_s": -1}, ConfigError, "time_budget_s is -1"),
        ({"absences": {"n1": [(1.0, 2.0)]}}, ConfigError, "absences names 'n1', which is none of the nodes"),
    ],
)
def test_bad_arguments_are_refused_as_by_a_run(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        simulate(curve, **{"config": SPACE, **arguments})


# --- recorded curves -------------------------------------------------------------------------------------------------


def test_recorded_configs_are_tried_in_their_order_and_stop_where_another_scheduler_stops_them() -> None:
    curves = Curves(lines([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), metric="loss", mode="min")
    found = simulate(curves, scheduler=sweep.ASHAScheduler(max_t=9, grace_period=3, reduction_factor=3), cpus=6)
    assert [trial.config["x"] for trial in found.trials] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert [trial.count for trial in found.trials] == [9, 3, 3, 3, 3, 3]
    assert curves.num_nearest == curves.num_cut == 0
    assert curves.seconds == 6 * LONGEST * 2.0


def test_a_config_that_was_not_recorded_takes_the_nearest_curve() -> None:
    known = (("a", 1e-5, "a", 1.0), ("b", 1e-2, "a", 2.0), ("c", 1e-2, "b", 3.0))
    recorded = [RecordedCurve(i, {"lr": lr, "kind": k}, (Point(1.0, {"loss": loss}),)) for i, lr, k, loss in known]
    curves = Curves(recorded)
    nearest = [curves.find({"lr": lr, "kind": kind}).trial_id for lr, kind in ((1e-4, "a"), (1e-3, "a"), (1e-5, "b"))]
    assert nearest == ["a", "b", "a"]  # on a logarithmic scale; another kind is as far as the whole range
    assert curves.find({"lr": 1e-2, "kind": "b"}).trial_id == "c"
    assert curves.num_nearest == 3
    found = simulate(curves, config={"lr": 3e-3, "kind": "a"}, metric="loss", mode="min")
    assert [arrival.metrics["loss"] for arrival in found.arrivals] == [2.0]


def test_recorded_failures_fail_again_and_requests_are_as_recorded() -> None:
    curves = Curves(lines([0.1, 0.2], error="ValueError: no", resources=Resources((Bundle(cpu=2.0),))))
    found = simulate(curves, cpus=2)
    assert [trial.status.value for trial in found.trials] == ["ERROR", "ERROR"]
    assert "ValueError: no" in found.trials[0].reason
    assert found.seconds == 2 * LONGEST * 2.0  # one after another: each took both CPUs


def test_a_scheduler_that_changes_configs_has_no_recorded_curves() -> None:
    scheduler = sweep.PopulationBasedTraining(hyperparam_mutations=SPACE)
    with pytest.raises(ConfigError, match="PopulationBasedTraining changes configs while trials run"):
        simulate(Curves(lines([0.1]), metric="loss", mode="min"), scheduler=scheduler)


def test_curves_come_from_a_table() -> None:
    frame = pd.DataFrame(
        {
            "trial_id": ["a", "b", "a", "b"],
            "config/net/width": [1, 2, 1, 2],
            "config/x": [0.5, math.nan, 0.5, math.nan],
            "loss": [3.0, 4.0, 2.0, math.nan],
            "note": [None, "n", "m", None],
            "time_this_iter_s": [1.0, 2.0, 3.0, 4.0],
        }
    )
    curves = Curves.from_dataframe(frame, metric="loss", mode="min").curves
    assert [one.config for one in curves] == [{"net": {"width": 1}, "x": 0.5}, {"net": {"width": 2}}]
    assert [[p.seconds for p in one.points] for one in curves] == [[1.0, 3.0], [2.0, 4.0]]
    assert curves[0].points[1].metrics == {"loss": 2.0, "note": "m"}
    assert set(curves[1].points[1].metrics) == {"loss"}
    with pytest.raises(ConfigError, match=r"the table has no column config/\.\.\.; it has trial_id, loss"):
        Curves.from_dataframe(frame[["trial_id", "loss"]])
    with pytest.raises(ExperimentError, match="no trial has reported anything"):
        Curves([])


# --- experiments -----------------------------------------------------------------------------------------------------


class Net(Climbs):
    """Fails at its fifth step if it is told to."""

    def step(self) -> dict[str, Any]:
        if self.x > 0.9 and self.done == 4:
            raise ValueError("too wide")
        return super().step()


def run(storage: Path, **arguments: Any) -> Path:
    return run_climbs(storage, Net, **{"config": SPACE, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"scheduler": sweep.ASHAScheduler(max_t=9, reduction_factor=3), "search_alg": "tpe"},
        {
            "scheduler": sweep.PopulationBasedTraining(
                time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=SPACE
            ),
            "num_samples": 3,
            "checkpoint_config": sweep.CheckpointConfig(num_to_keep=2, checkpoint_frequency=1),
        },
        {"config": {"x": sweep.grid_search([0.1, 0.95, 0.5])}, "num_samples": 1, "max_failures": 1},
        {"num_samples": -1, "stop": {"training_iteration": 3}, "time_budget_s": 0.5},
    ],
    ids=["asha and tpe", "pbt", "failures", "a budget"],
)
def test_a_real_run_comes_out_the_same_in_virtual_time(tmp_path: Path, arguments: dict[str, Any]) -> None:
    root = run(tmp_path, **arguments, engine="local", nodes=[sweep.Node(cpus=3)])
    found = rerun(root)
    assert found.difference is None
    assert found.num_events > 20
    assert found.seconds > 0


class Late(Simulator):
    """Brings what happens next although a deadline came before it, as a machine that is busy does."""

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        return super().next_events(None if self._queue and not self._posted else deadline)


def test_a_deadline_that_was_overtaken_is_not_met_in_the_second_run(tmp_path: Path) -> None:
    machine = [sweep.Node(cpus=3)]
    engine = Late(curve, machine)  # a searcher that said "not now" is asked again a second later, and reports take two
    root = run(tmp_path, engine=engine, num_samples=4, max_concurrent_trials=2, search_alg="tpe", nodes=machine)
    assert rerun(root).difference is None


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler=sweep.ASHAScheduler(max_t=9, reduction_factor=3))
    with changed(root / "sweep.db") as db:
        (seq,) = db.execute("SELECT seq FROM events WHERE commands LIKE '%\"Stop\"%'").fetchone()
        db.execute(f"UPDATE event SET data = json_remove(data, '$.commands[#-1]') WHERE seq = {seq}")
    difference = rerun(root).difference
    assert difference is not None
    assert difference.seq == seq
    shown = call(root, "simulate", "made")
    assert shown.exit_code == 0 or "the first difference is at event" in shown.output
    assert f"the first difference is at event {seq}, Reported " in shown.output


@pytest.mark.parametrize(
    ("is_resumed", "says"),
    [(True, "it was driven in 2 runs, on 2"), (False, "it has not ended, or its driver was killed")],
)
def test_what_cannot_be_run_again_says_why(tmp_path: Path, is_resumed: bool, says: str) -> None:
    root = run(tmp_path, num_samples=1)
    if is_resumed:
        run(tmp_path, num_samples=2, resume=True)
    else:
        with changed(root / "sweep.db") as db:
            (seq,) = db.execute("SELECT min(seq) FROM events WHERE kind = 'Exited'").fetchone()
            db.execute(f"DELETE FROM event WHERE seq >= {seq}")
    with pytest.raises(ExperimentError, match=says):
        rerun(root)


def breaking(config: Mapping[str, Any], count: int) -> Iterator[Point]:
    for step, point in enumerate(curve(config, count), start=count + 1):
        if config["x"] > 0.9 and step == 5:
            raise ValueError("too wide")
        yield point


def test_the_command_compares_another_scheduler_with_the_record(tmp_path: Path) -> None:
    space = {"x": sweep.grid_search([0.1, 0.2, 0.3, 0.95, 0.4, 0.5])}
    machine = [sweep.Node(cpus=6)]
    root = run(tmp_path, engine=Simulator(breaking, machine), config=space, num_samples=1, nodes=machine)
    shown = call(root, "simulate", "made", "--scheduler", "asha", "--eta", "3", "--max-t", "9", "--cpus", "6")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.output.splitlines()]
    assert rows[2] == ["trials", "6", "6", "100%"]
    assert rows[3][:2] == ["reports", "49"]  # one failed after four
    assert int(rows[3][2]) < 49
    assert rows[6][:2] == ["best", "loss"]
    assert "the winner 00000 would have been kept" in shown.output
    assert "note:" not in shown.output
    found = json.loads(
        call(root, "simulate", "made", "--scheduler", "asha", "--set", "brackets=1", "--grace", "3", "--json").output
    )
    assert found["recorded"]["reports"] == 49
    assert found["simulated"]["reports"] < 49
    assert found["winner"] == {"trial": sweep.ExperimentAnalysis(root).trials[0].trial_id, "is_kept": True}
    one = json.loads(call(root, "simulate", "made", "--trials", "2", "--concurrency", "1", "--json").output)
    assert (one["simulated"]["trials"], one["simulated"]["reports"]) == (2, 18)
    same = call(root, "simulate", "made")
    assert same.output.endswith("facts: every decision as recorded\n")
    assert same.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--eta", "3"], "reduction_factor: say of which scheduler"),
        (["--scheduler", "asha", "--set", "brackets"], "--set brackets: expected NAME=VALUE"),
        (["--scheduler", "asha", "--set", "rungz=1"], "AsyncHyperBandScheduler has no parameter 'rungz'"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(tmp_path: Path, arguments: list[str], message: str) -> None:
    root = run(tmp_path, num_samples=1)
    shown = call(root, "simulate", "made", *arguments)
    assert isinstance(shown.exception, sweep.SweepError)
    assert message in str(shown.exception)


def test_cut_curves_are_said(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler=sweep.ASHAScheduler(max_t=6, reduction_factor=3))
    curves = Curves.from_experiment(root)
    reasons = [trial.reason for trial in sweep.ExperimentAnalysis(root).trials]
    assert any(reason.startswith("reached max_t") for reason in reasons), "which is no cut"
    assert curves.num_cut == sum(reason.startswith("stopped early") for reason in reasons) > 0
    shown = call(root, "simulate", "made", "--scheduler", "asha", "--max-t", "3")
    assert f"note: {curves.num_cut} of 8 recorded trials had been stopped" in shown.output


def test_a_perturbed_sweep_has_no_curves_of_its_own(tmp_path: Path) -> None:
    scheduler = sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=SPACE, synch=True
    )
    root = run(tmp_path, engine="local", num_samples=2, scheduler=scheduler, nodes=[sweep.Node(cpus=2)])
    with pytest.raises(ExperimentError, match="the scheduler changed the config"):
        Curves.from_experiment(root)


def overfitting(config: Mapping[str, Any], count: int) -> Iterator[Point]:
    for step in range(count, 4):
        yield Point(1.0, {"loss": config["x"] * (1 if step < 3 else -1)})


def test_the_best_trial_of_a_simulation_is_by_the_last_reports() -> None:
    space = {"x": sweep.grid_search([-5.0, 3.0, float("nan"), 3.0, float("-inf")])}
    found = simulate(overfitting, config=space, metric="loss", mode="min", cpus=1)
    assert found.best_trial is found.trials[1]
    assert found.best_result is found.trials[1].last_result
    assert found.best_result is not None
    assert found.best_result["loss"] == -3.0


def test_of_several_objectives_no_simulated_trial_is_best() -> None:
    found = simulate(curve, config=SPACE, metric=["loss", "time_total_s"], mode=["min", "min"])
    with pytest.raises(ValueError, match=r"several objectives, loss \(min\), time_total_s \(min\), so no single trial"):
        _ = found.best_trial


def test_the_winner_of_a_recorded_sweep_is_by_the_last_reports(tmp_path: Path) -> None:
    space = {"x": sweep.grid_search([-5.0, 3.0])}
    root = run(tmp_path, engine=Simulator(overfitting, [sweep.Node()]), config=space, num_samples=1)
    found = json.loads(call(root, "simulate", "made", "--cpus", "1", "--json").output)
    assert found["winner"] == {"trial": sweep.ExperimentAnalysis(root).trials[1].trial_id, "is_kept": True}
    assert found["recorded"]["best"] == found["simulated"]["best"] == -3.0
    scheduled = json.loads(
        call(root, "simulate", "made", "--scheduler", "asha", "--max-t", "2", "--cpus", "1", "--json").output
    )
    assert scheduled["winner"]["is_kept"] is False
