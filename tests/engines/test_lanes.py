"""What happens to lanes: their neighbours, the end of their process, signals, requests, other engines, other sweeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.engines import CPU, NODE, collect, has_released, shapes, trial
from lanes_programs import Climbs, Plain

import sweep
from sweep.core.messages import Continue, Exited, ExitKind, Start, Stop, Waiting
from sweep.core.resources import Bundle, BundlePlacement, Placement, Resources
from sweep.core.trial import evolve
from sweep.engines.base import EngineContext
from sweep.engines.lanes import LanesEngine
from sweep.engines.local.claims import Claims
from sweep.errors import ConfigError, ResourceError, TrainableError
from sweep.lanes.batch import Pool
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader
from sweep.requests.files import write
from sweep.worker.trainable import prepare

SPACE = {"x": sweep.uniform(0, 1), "lr": sweep.uniform(0.01, 0.3)}
SAVING = sweep.CheckpointConfig(checkpoint_frequency=1)


def run(storage: Path, trainable: Any = Climbs, **arguments: Any) -> Any:
    given = {"config": SPACE, "num_samples": 7, "stop": {"step": 4}, "nodes": [sweep.Node(cpus=2)], "seed": 1}
    given |= {"name": "made", "verbose": 0, "raise_on_failed_trial": False, "on_interrupt": "return"}
    return sweep.run(trainable, storage_path=str(storage), **{**given, **arguments})


def curves(storage: Path) -> dict[str, list[tuple[int, float]]]:
    """Return step and loss of every report, by the number of the trial."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in ExperimentReader(storage / "made").results():
        found.setdefault(row.trial_id[-5:], []).append((row.metrics["step"], row.metrics["loss"]))
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, float]]]:
    """Return the curves of the same trials, each in a process of its own."""
    storage = tmp_path_factory.mktemp("alone")
    run(storage, engine="local")
    return curves(storage)


def with_lanes(number: int | str, base: type = Climbs, **members: Any) -> Any:
    return type("Climbs", (base,), {"num_lanes": number, **members})


def once(path: Path, do: Callable[[], object]) -> None:
    """Do something unless it was done."""
    if not path.exists():
        path.touch()
        do()


class At(sweep.Callback):
    """Does something at the first report of a step."""

    def __init__(self, step: int, do: Callable[[Any, Any], object]) -> None:
        self.step, self.do, self.is_done = step, do, False

    def on_trial_result(self, trial, result):
        if result["step"] == self.step and not self.is_done:
            self.is_done = True
            self.do(trial, result)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_a_trial_reports_what_it_reports_alone_whatever_its_neighbours(tmp_path: Path, alone: Any) -> None:
    found = []
    for name, more in {"few": with_lanes(3), "many": with_lanes("auto")}.items():
        run(tmp_path / name, more)
        found.append(curves(tmp_path / name))
    assert found[0] == found[1] == alone
    assert {len(one) for one in found[0].values()} == {4}
    assert len({one[-1][1] for one in found[0].values()}) == 7


def pool(number: int, base: type = Climbs) -> Pool:
    return Pool(base(), Plain, {}, number)


def advanced(of: Pool) -> dict[Any, Any]:
    (group,) = of.groups.values()
    assert group.settle() == {}
    return group.advance()


def test_a_lane_that_was_left_is_taken_by_the_next_and_nothing_else_moves() -> None:
    lanes = pool(4)
    first = [lanes.enter({"x": 0.1 * number}, seed=number) for number in range(4)]
    advanced(lanes)
    (batch,) = first[0].group.batches
    first[2].leave()
    assert batch.seats == [first[0], first[1], None, first[3]]
    late = lanes.enter({"x": 0.9}, seed=9)
    losses = {seat: metrics["loss"] for seat, metrics in advanced(lanes).items()}
    assert first[0].group.batches == [batch]
    assert batch.seats == [first[0], first[1], late, first[3]]
    alone = pool(1)
    seat = alone.enter({"x": 0.9}, seed=9)
    assert advanced(alone)[seat]["loss"] == losses[late]
    assert late.count == 1
    assert first[0].count == 2


def test_trials_that_differ_in_the_midst_of_a_large_array_have_programs_of_their_own() -> None:
    weights = np.linspace(0.0, 1.0, 5000)
    other = np.where(np.arange(5000) == 2500, weights + 1e-12, weights)
    lanes = pool(4)
    for number, array in enumerate((weights, weights.copy(), other)):
        lanes.enter({"x": 0.1, "weights": array}, seed=number)
    assert [len(group.trials) for group in lanes.groups.values()] == [2, 1]


def test_nan_in_one_lane_ends_that_lane_only(tmp_path: Path) -> None:
    class Sinks(Climbs):
        def step(self, state, config, batch, key, index):
            state, metrics = super().step(state, config, batch, key, index)
            return state, {**metrics, "loss": np.nan if config["x"] == 2.0 and index == 1 else metrics["loss"]}

    space, more = {"x": sweep.grid_search([0.1, 2.0, 0.3])}, {"failure_config": sweep.FailureConfig(nan="error")}
    analysis = run(tmp_path, Sinks, config=space, num_samples=1, metric="loss", mode="min", **more)
    assert [(one.status, one.last_result["step"]) for one in analysis.trials] == [
        ("TERMINATED", 4),
        ("ERROR", 2),
        ("TERMINATED", 4),
    ]


def test_trials_of_each_static_value_have_a_program_of_their_own(tmp_path: Path) -> None:
    class Wide(Climbs):
        static = ("width",)

        def init(self, key, config):
            return {**super().init(key, config), "wide": np.zeros((config["width"], config["model"]["size"]))}

        def step(self, state, config, batch, key, index):
            new, metrics = super().step(state, config, batch, key, index)
            more = {"width": len(state["wide"]), "size": state["wide"].shape[1], "same": config["kind"] == "b"}
            return {**new, "wide": state["wide"] + 1}, {**metrics, **more}

    space = {**SPACE, "width": sweep.grid_search([2, 3]), "kind": sweep.grid_search(["a", "b"])}
    space["model"] = {"size": 4, "rate": sweep.uniform(0, 1)}  # the same for all, so it may decide a shape
    analysis = run(tmp_path, Wide, config=space, num_samples=3)
    assert len(analysis.trials) == 12
    for one in analysis.trials:
        assert (one.status, one.last_result["size"]) == ("TERMINATED", 4)
        assert (one.last_result["width"], one.last_result["same"]) == (one.config["width"], one.config["kind"] == "b")
    assert len({one.last_result["pid"] for one in analysis.trials}) == 1


def test_as_many_workers_as_the_machine_has_room_for(tmp_path: Path) -> None:
    two = with_lanes(2, resources_per_worker={"cpu": 2})
    analysis = run(tmp_path, two, nodes=[sweep.Node(cpus=5)])
    assert len({one.last_result["pid"] for one in analysis.trials}) == 2


# --- ends ------------------------------------------------------------------------------------------------------------


def test_an_exception_before_the_program_has_worked_is_that_of_its_trials(tmp_path: Path) -> None:
    class Bad(Climbs):
        static = ("kind",)

        def step(self, state, config, batch, key, index):
            if config["kind"] == "bad":
                raise ZeroDivisionError("no such step")
            return super().step(state, config, batch, key, index)

    analysis = run(tmp_path, Bad, config={**SPACE, "kind": sweep.grid_search(["bad", "good"])}, num_samples=2)
    by_kind = {kind: [one for one in analysis.trials if one.config["kind"] == kind] for kind in ("bad", "good")}
    assert {(one.status, one.last_result["step"]) for one in by_kind["good"]} == {("TERMINATED", 4)}
    for one in by_kind["bad"]:
        assert one.status == "ERROR"
        assert "ZeroDivisionError: no such step" in str(one.error)
        assert 'raise ZeroDivisionError("no such step")' in one.error.traceback


def raising(flag: Path | None) -> type:
    class Raises(Climbs):
        def step(self, state, config, batch, key, index):
            if index == 2 and (flag is None or not flag.exists()):
                if flag is not None:
                    flag.touch()
                raise ZeroDivisionError("at the third step")
            return super().step(state, config, batch, key, index)

    return Raises


@pytest.mark.slow
def test_trials_go_on_from_their_checkpoints_where_the_program_raises_later(tmp_path: Path) -> None:
    analysis = run(tmp_path, raising(tmp_path / "flag"), checkpoint_config=SAVING)
    assert {one.status for one in analysis.trials} == {"TERMINATED"}
    found = curves(tmp_path)
    assert {tuple(step for step, _ in one) for one in found.values()} == {(1, 2, 3, 4)}
    assert {row.attempt for row in ExperimentReader(tmp_path / "made").trials()} == {2}
    run(tmp_path / "alone", raising(tmp_path / "flag"), engine="local")
    assert found == curves(tmp_path / "alone")


@pytest.mark.slow
def test_a_program_that_always_raises_later_ends_with_what_it_raised(tmp_path: Path) -> None:
    analysis = run(tmp_path, raising(None), num_samples=2)
    assert {one.status for one in analysis.trials} == {"ERROR"}
    for one in analysis.trials:
        assert "the process of its lanes ended: ZeroDivisionError: at the third step" in str(one.error)


def test_trials_of_a_worker_that_is_killed_go_on_in_the_next(tmp_path: Path) -> None:
    kill = At(2, lambda trial, result: os.kill(result["pid"], signal.SIGKILL))
    analysis = run(tmp_path, checkpoint_config=SAVING, callbacks=[kill])
    assert kill.is_done
    assert {one.status for one in analysis.trials} == {"TERMINATED"}
    assert {tuple(dict(one)) for one in curves(tmp_path).values()} == {(1, 2, 3, 4)}
    # what was not saved and is done again is the same
    assert all(len(set(one)) == 4 for one in curves(tmp_path).values())
    assert {row.failures for row in ExperimentReader(tmp_path / "made").trials()} == {0}
    assert sweep.replay(tmp_path / "made").differences == []


@pytest.mark.slow
def test_trials_of_a_worker_that_is_stopped_go_on_in_the_next(tmp_path: Path) -> None:
    class Slow(Climbs):
        def step(self, state, config, batch, key, index):
            time.sleep(0.3)  # it goes on for a second, to say where it is, and is to have no time for all
            return super().step(state, config, batch, key, index)

    stop = At(2, lambda trial, result: os.kill(result["pid"], signal.SIGSTOP))
    more = {"report_timeout_s": 5.0, "max_failures": 5}
    analysis = run(tmp_path, Slow, checkpoint_config=SAVING, callbacks=[stop], **more)
    assert {one.status for one in analysis.trials} == {"TERMINATED"}
    assert {tuple(dict(one)) for one in curves(tmp_path).values()} == {(1, 2, 3, 4)}
    exits = [
        fact.event.exit.kind for fact in read_facts(tmp_path / "made" / "sweep.db") if isinstance(fact.event, Exited)
    ]
    assert ExitKind.HUNG in exits


# --- signals and requests --------------------------------------------------------------------------------------------


def interrupting(flag: Path, number: int) -> type:
    driver = os.getpid()

    class Interrupts(Climbs):
        def step(self, state, config, batch, key, index):
            if index == 2 and not flag.exists():
                flag.touch()
                os.kill(driver, signal.SIGINT)
                time.sleep(0.2)
                if number == 2:
                    os.kill(driver, signal.SIGINT)
                    time.sleep(1000)
            return super().step(state, config, batch, key, index)

    return Interrupts


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_in_the_middle_of_a_step_leaves_all_saved_and_a_resume_goes_on(
    tmp_path: Path, number: int, alone: Any
) -> None:
    """The second ends a step that does not end."""
    more = {"checkpoint_config": SAVING} if number == 2 else {}
    first = run(tmp_path, interrupting(tmp_path / "flag", number), **more)
    assert first.interrupted
    assert {one.status for one in first.trials} <= {"RUNNING", "PENDING"}
    again = run(tmp_path, interrupting(tmp_path / "flag", number), resume=True, **more)
    assert {one.status for one in again.trials} == {"TERMINATED"}
    assert {tuple(step for step, _ in one) for one in curves(tmp_path).values()} == {(1, 2, 3, 4)}
    assert curves(tmp_path) == alone
    assert sweep.replay(tmp_path / "made").differences == []


def waiting_for(flag: Path) -> type:
    """Return a trainable whose trials below 0.15 end four steps after there is a flag, and others with their fourth."""

    class Waits(Climbs):
        num_lanes = 2

        def step(self, state, config, batch, key, index):
            time.sleep(0.01)
            new, metrics = super().step(state, config, batch, key, index)
            left = state["left"] - (config["x"] > 0.15 or flag.exists())
            return {**new, "left": left}, {**metrics, "done": left <= 0}

        def init(self, key, config):
            return {**super().init(key, config), "left": np.float64(4)}

    return Waits


@pytest.mark.slow
def test_a_trial_that_is_cancelled_leaves_its_lane_and_the_others_go_on(tmp_path: Path) -> None:
    cancel = At(1, lambda trial, result: write(tmp_path / "made", "cancel", (f"{trial.trial_id[:-5]}00000",)))
    space = {"x": sweep.grid_search([0.0, 0.2, 0.3, 0.4])}
    never = waiting_for(tmp_path / "never")
    analysis = run(tmp_path, never, config=space, num_samples=1, stop={}, callbacks=[cancel])
    assert [one.last_result["step"] for one in analysis.trials][1:] == [4, 4, 4]
    assert {one.status for one in analysis.trials} == {"TERMINATED"}
    assert {row.failures for row in ExperimentReader(tmp_path / "made").trials()} == {0}


class Pauses(At):
    """Has the first trial paused, and later resumed."""

    def __init__(self, root: Path, flag: Path) -> None:
        super().__init__(1, lambda trial, result: self.ask("pause", trial))
        self.root, self.flag, self.paused = root, flag, list[str]()

    def ask(self, verb: str, trial: Any) -> None:
        write(self.root, verb, (f"{trial.trial_id[:-5]}00000",))

    def on_trial_pause(self, trial):
        self.paused.append(trial.trial_id[-5:])
        self.ask("resume", trial)

    def on_trial_result(self, trial, result):
        super().on_trial_result(trial, result)
        if self.paused and trial.trial_id.endswith("00000"):
            self.flag.touch()


def test_a_trial_that_is_paused_goes_on_in_another_lane(tmp_path: Path) -> None:
    pauses, waits = Pauses(tmp_path / "made", tmp_path / "flag"), waiting_for(tmp_path / "flag")
    space = {"x": sweep.grid_search([0.0, 0.1, 0.2, 0.3])}  # the second keeps the sweep alive meanwhile
    analysis = run(tmp_path, waits, config=space, num_samples=1, stop={}, callbacks=[pauses])
    assert pauses.paused == ["00000"]
    assert {one.status for one in analysis.trials} == {"TERMINATED"}
    found = curves(tmp_path)
    number = len(found["00000"])
    assert [step for step, _ in found["00000"]] == list(range(1, number + 1))
    space = {"x": sweep.grid_search([0.0])}
    run(tmp_path / "alone", engine="local", config=space, num_samples=1, stop={"step": number})
    assert curves(tmp_path / "alone") == {"00000": found["00000"]}


# --- going on elsewhere ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((8, "lanes"), (1, "local")),
        pytest.param((8, "lanes"), (1, "agents"), marks=pytest.mark.slow),
        pytest.param((2, "lanes"), (8, "lanes"), marks=pytest.mark.slow),
        pytest.param((1, "local"), ("auto", "lanes"), marks=pytest.mark.slow),
    ],
)
def test_a_sweep_is_resumed_with_other_lanes_or_with_processes(tmp_path: Path, first: Any, then: Any) -> None:
    """Each trial that goes on asks for what the new ones do."""
    interrupt = At(2, lambda trial, result: os.kill(os.getpid(), signal.SIGINT))
    more: dict[str, Any] = {"stop": {"step": 60}, "num_samples": 3}
    begun = run(tmp_path, with_lanes(first[0]), engine=first[1], callbacks=[interrupt], **more)
    assert begun.interrupted
    over = {one.trial_id for one in begun.trials if one.status == "TERMINATED"}
    more["num_samples"], nodes = 4, {"nodes": None} if then[1] == "agents" else {}
    ended = run(tmp_path, with_lanes(then[0]), engine=then[1], resume=True, **more, **nodes)
    assert {one.status for one in ended.trials} == {"TERMINATED"}
    asked = [str(one.resources) for one in ended.trials if one.trial_id not in over]
    assert len(asked) > 1
    assert set(asked) == {"lane=1" if then[1] == "lanes" else "cpu=1"}
    last = {one.trial_id: one.resources for one in ExperimentReader(tmp_path / "made").history().attempts}
    assert {one.trial_id: one.resources for one in ended.trials} == last
    assert {tuple(step for step, _ in one) for one in curves(tmp_path).values()} == {tuple(range(1, 61))}
    run(tmp_path / "alone", engine="local", **more)
    assert curves(tmp_path) == curves(tmp_path / "alone")
    assert sweep.replay(tmp_path / "made").differences == []


def test_a_clone_whose_state_has_another_shape_ends_with_one_clear_error(tmp_path: Path) -> None:
    class Wide(Climbs):
        static = ("width",)

        def init(self, key, config):
            return {"at": np.float64(config["x"]), "sum": np.zeros(config["width"])}

    mutations = {"x": sweep.uniform(0, 1)}
    scheduler = sweep.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        quantile_fraction=0.5,
        hyperparam_mutations=mutations,
        custom_explore_fn=lambda config: {**config, "width": 2},
    )
    space = {**SPACE, "width": 3}
    analysis = run(
        tmp_path, Wide, config=space, num_samples=4, scheduler=scheduler, metric="loss", mode="min", stop={"step": 8}
    )
    failed = [one for one in analysis.trials if one.status == "ERROR"]
    assert failed
    assert {one.status for one in analysis.trials} == {"ERROR", "TERMINATED"}
    for one in failed:
        assert "the checkpoint holds an array of shape (3,) under sum" in str(one.error)
        assert "this trial's state needs one of shape (2,)" in str(one.error)


# --- other sweeps ----------------------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path, monkeypatch):
    (tmp_path / "claims").mkdir()
    monkeypatch.setenv("SWEEP_CLAIMS", str(tmp_path / "claims"))
    claims = Claims(tmp_path / "claims", (NODE,), "other")
    yield claims
    claims.close()


ALL = Resources((Bundle(cpu=8),))


def test_lanes_wait_for_what_another_sweep_holds_and_an_idle_worker_ends_for_it(tmp_path: Path, other: Claims) -> None:
    engine = LanesEngine(EngineContext(directory=tmp_path / "made", trainable=prepare(Climbs), nodes=[NODE]))
    assert other.take("theirs", CPU, Placement((BundlePlacement("local"),)))
    try:
        engine.claims()
        engine.execute(Start(evolve(trial(), config={"x": 0.5})))
        told = collect(engine, lambda seen: any(isinstance(event, Waiting) for event in seen))
        assert told[-1].reason.startswith("waits for a process with cpu=8; cpu=1 is held by experiment 'other'")
        deadline = engine.now() + 1.0
        while engine.now() < deadline:  # the reason is told once
            assert not any(isinstance(event, Waiting) for event in engine.next_events(deadline))
        other.give_back("theirs")

        def answer(report):
            kind = Stop if report.seq == 3 else Continue
            return kind(report.trial_id, report.attempt, report.seq)

        events = shapes(collect(engine, has_released(1), answer=answer))
        assert [shape[0] for shape in events] == ["started", *["reported"] * 3, "exited", "released"]

        other.awaited = ALL
        deadline = engine.now() + 20.0
        while not other.take("theirs", ALL, Placement((BundlePlacement("local"),))):
            other.look()
            assert engine.now() < deadline, "the idle worker was not ended"
            engine.next_events(engine.now() + 0.1)
    finally:
        engine.close()


# --- bad input -------------------------------------------------------------------------------------------------------


def train(config):
    sweep.report(loss=1.0)


class NoStep(sweep.VectorTrainable):
    def init(self, key, config):
        return {}


@pytest.mark.parametrize(
    ("trainable", "arguments", "error", "said"),
    [
        (NoStep, {}, TrainableError, r"NoStep has no step; define step\(self, state, config, batch\)."),
        (Climbs, {"config": {"x": sweep.choice([2**40])}}, TrainableError, r"is 1099511627776; expected .* of 32 bits"),
        (with_lanes(8, static=("wide",)), {}, TrainableError, r"static names 'wide', and the search space has 'x', 'l"),
        (with_lanes(8, static="x"), {}, TrainableError, r"static is 'x'; expected names"),
        (with_lanes(0), {}, TrainableError, r"num_lanes is 0; expected a whole number of at least 1 or 'auto'"),
        (with_lanes("all"), {}, TrainableError, r"num_lanes is 'all'; expected a whole number"),
        (with_lanes(8, steps_per_report=True), {}, TrainableError, r"steps_per_report is True; expected a whole"),
        (with_lanes(8, framework="mxnet"), {}, TrainableError, r"framework is 'mxnet'; expected 'jax' or 'torch'"),
        (with_lanes(8, resources_per_worker={"cpu": 9}), {}, ResourceError, r"resources_per_worker: .*cpu=9"),
        (Climbs, {"resources_per_trial": {"cpu": 1}}, ResourceError, r"resources_per_worker=\{'gpu': 1\}, or run each"),
        (train, {"engine": "lanes"}, ConfigError, r"engine='lanes' runs a sweep.VectorTrainable, and train is none"),
    ],
)
def test_bad_input_is_one_clear_error_before_anything_starts(
    tmp_path: Path, trainable: Any, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        run(tmp_path, trainable, **arguments)
    assert not (tmp_path / "made" / "sweep.db").exists()


def test_a_metric_that_is_no_scalar_is_named(tmp_path: Path) -> None:
    class Vectors(Climbs):
        def step(self, state, config, batch, key, index):
            state, metrics = super().step(state, config, batch, key, index)
            return state, {**metrics, "all": state["sum"]}

    with pytest.raises(sweep.errors.UserCodeError, match=r"Vectors.step returned the metric 'all' of shape \(3,\)"):
        Vectors.run_one({"x": 0.5}, 1)
    analysis = run(tmp_path, Vectors, num_samples=2)
    assert {one.status for one in analysis.trials} == {"ERROR"}
    assert "expected a scalar. Take its mean" in str(analysis.trials[0].error)


# --- JAX -------------------------------------------------------------------------------------------------------------

jax = pytest.importorskip("jax")


class Noisy(sweep.VectorTrainable):
    """A noisy quadratic in JAX, which counts how often it is traced."""

    num_traced = 0

    def init(self, key, config):
        return {"x": jax.random.normal(key, (3,))}

    def step(self, state, config, batch, key):
        type(self).num_traced += 1
        x = state["x"] * (1 - config["lr"]) + 0.01 * jax.random.normal(key, (3,))
        return {"x": x}, {"loss": (x**2).sum()}


def test_in_jax_a_lane_equals_alone_and_one_that_is_taken_again_compiles_nothing() -> None:
    from sweep.lanes.jax_program import JaxProgram

    lanes = Pool(Noisy(), JaxProgram, {}, 4)
    seats = [lanes.enter({"lr": 0.1 * number}, seed=number) for number in range(4)]
    advanced(lanes)
    before = Noisy.num_traced
    found = {}
    for seed in (7, 8):
        seats[1].leave()
        seats[1] = lanes.enter({"lr": 0.05}, seed=seed)
        found = advanced(lanes)
    losses = [found[seat]["loss"] for seat in seats]
    assert Noisy.num_traced == before
    assert losses[1] == pytest.approx(Noisy.run_one({"lr": 0.05}, 1, seed=8)[-1]["loss"], rel=1e-5)
    assert losses[3] == pytest.approx(Noisy.run_one({"lr": 0.1 * 3}, 3, seed=3)[-1]["loss"], rel=1e-5)


def test_in_jax_what_begins_trials_is_compiled_once_for_any_number_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.lanes.jax_program import JaxProgram

    traced, init = [], Noisy.init
    monkeypatch.setattr(Noisy, "init", lambda self, key, config: traced.append(1) or init(self, key, config))
    lanes = Pool(Noisy(), JaxProgram, {}, 16)
    for seed in range(3):
        for _ in range(4**seed):
            seat = lanes.enter({"lr": 0.1}, seed=seed)
        assert seat.group.settle() == {}
    assert len(traced) == 1
    first, *_, last = [one.arrays()["['x']"].tolist() for one in seat.group.trials]
    alone = Pool(Noisy(), JaxProgram, {}, 1).enter({"lr": 0.1}, seed=2)
    assert alone.arrays()["['x']"].tolist() == last != first


class Calm(Noisy):
    """Draws nothing, and so is compiled fast."""

    def init(self, config):
        return {"x": jax.numpy.ones(2)}

    def step(self, state, lr):
        return {"x": state["x"] * lr}, {"sum": state["x"].sum() * lr}


def test_in_jax_where_the_memory_of_a_gpu_runs_out_trials_wait_or_lanes_are_halved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sweep.lanes.jax_program import JaxProgram

    def scarce(name: str, most: int, said: str) -> None:
        function = getattr(JaxProgram, name)

        def failing(self, states, *arguments):
            if len(states["['x']"]) > most:
                raise jax.errors.JaxRuntimeError(said)
            return function(self, states, *arguments)

        monkeypatch.setattr(JaxProgram, name, failing)

    lanes = Pool(Calm(), JaxProgram, {}, 8)
    seats = [lanes.enter({"lr": 0.5 * number}, seed=0) for number in range(8)]
    scarce("place", 4, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.")
    scarce("advance", 2, "INTERNAL: Failed to instantiate a CUDA graph: CUDA_ERROR_OUT_OF_MEMORY: out of memory")
    assert set(seats[0].group.settle()) == set(seats[4:])
    found = seats[0].group.advance()
    assert found == {seat: {"sum": float(number)} for number, seat in enumerate(seats[:4])}
    assert seats[0].group.most == 2


class Shapes(Noisy):
    def init(self, key, config):
        return {"x": jax.numpy.zeros(config["width"])}


class Branches(Noisy):
    def step(self, state, config, batch):
        return state, {"loss": 0.0 if config["lr"] > 0.5 else 1.0}


class Remembers(Noisy):
    seen = None

    def step(self, state, config, batch):
        before, self.seen = self.seen, state["x"].sum()
        return state, {"loss": 0.0 if before is None else before}


def test_in_jax_a_step_that_keeps_something_of_one_call_for_another_is_named() -> None:
    from sweep.lanes.jax_program import JaxProgram

    lanes = Pool(Remembers(), JaxProgram, {}, 4)
    lanes.enter({"lr": 0.1}, seed=0)
    advanced(lanes)
    lanes.enter({"lr": 0.1}, seed=1)  # more lanes: it is traced again
    with pytest.raises(
        TrainableError, match=r"Remembers\.step is no pure function: something keeps a value of one call"
    ):
        advanced(lanes)


@pytest.mark.parametrize(
    ("trainable", "said"),
    [
        (Shapes, r"config\['width'\] differs between lanes .*, such as a shape\. Declare it: static = \('width',\)"),
        (
            Branches,
            r"config\['lr'\] differs between lanes .*, and Python branches on it\. Declare it: static = \('lr',",
        ),
    ],
)
def test_in_jax_the_hyperparameter_that_cannot_differ_between_lanes_is_named(trainable: Any, said: str) -> None:
    from sweep.lanes.jax_program import JaxProgram

    lanes = Pool(trainable(), JaxProgram, {}, 4)
    lanes.enter({"lr": 0.1, "width": 4}, seed=0)
    with pytest.raises(TrainableError, match=said):
        advanced(lanes)


DEVICES = """
import jax
from sweep.lanes.batch import Pool
from sweep.lanes.jax_program import JaxProgram
from test_lanes import Noisy

lanes = Pool(Noisy(), JaxProgram, {}, 8)
seats = [lanes.enter({"lr": 0.1 * number}, seed=number) for number in range(3)]
(group,) = lanes.groups.values()
group.settle()
losses = group.advance()
(batch,) = group.batches
assert len(jax.local_devices()) == 8 and len(batch.seats) == 8
assert len(jax.tree.leaves(batch.states)[0].sharding.device_set) == 8
alone = Noisy.run_one({"lr": 0.2}, 1, seed=2)[-1]["loss"]
assert abs(losses[seats[2]]["loss"] - alone) < 1e-5 * abs(alone), (losses, alone)
"""


@pytest.mark.slow
def test_in_jax_lanes_are_laid_out_over_all_devices_of_a_process() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    path = os.pathsep.join(map(str, (Path(__file__).parent, *sys.path)))
    command = [sys.executable, "-c", DEVICES]
    done = subprocess.run(command, env={**os.environ, **flags, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
