"""The files that loggers write per trial, while the sweep runs and after a crash."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_experiment import MadeExperiment

from sweep.callbacks.dispatch import Dispatcher
from sweep.callbacks.log_text import params_text, to_json
from sweep.callbacks.loggers import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
    _Appender,
)
from sweep.callbacks.observed import ExperimentInfo
from sweep.core.messages import Hook, Notify
from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.errors import ConfigError

TRIAL = Trial("abcde_00000", {"lr": 0.1, "net": {"width": 16}}, Resources(), Status.RUNNING, attempt=1)


def ready(logger: Any, root: Path, **info: Any) -> Any:
    logger.setup(experiment_dir=str(root), plan=Plan(), num_trials=2, **info)
    return logger


def report(step: int = 1, **metrics: Any) -> TrialResult:
    return TrialResult({"training_iteration": step, **metrics})


def json_lines(root: Path, trial: str = TRIAL.id) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / trial / "result.json").read_text().splitlines()]


def csv_rows(root: Path, trial: str = TRIAL.id) -> list[dict[str, str]]:
    with (root / trial / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_json_has_a_line_per_result_nested_and_with_the_config(tmp_path: Path) -> None:
    logger = ready(JsonLoggerCallback(), tmp_path)
    logger.on_trial_start(TRIAL)
    logger.on_trial_result(TRIAL, report(1, loss=0.5, eval={"acc": 0.1}))
    logger.on_trial_result(TRIAL, report(2, loss=math.nan, big=math.inf))
    logger.on_trial_complete(TRIAL)
    first, second = json_lines(tmp_path)
    assert first == {"training_iteration": 1, "loss": 0.5, "eval": {"acc": 0.1}, "config": TRIAL.config}
    assert math.isnan(second["loss"])
    assert math.isinf(second["big"])
    params = (tmp_path / TRIAL.id / "params.json").read_text()
    assert json.loads(params) == TRIAL.config
    assert params.startswith('{\n  "lr"')
    logger.on_experiment_end([])


def test_json_writes_what_json_does_not_know_as_text_and_numpy_as_numbers(tmp_path: Path) -> None:
    logger = ready(JsonLoggerCallback(), tmp_path)
    trial = evolve(TRIAL, config={"cls": Path, 3: "three", ("a", 1): 2})
    logger.on_trial_start(trial)
    logger.on_trial_result(trial, report(loss=np.float32(0.5), n=np.int64(3), a=np.arange(2), o={1: Path("x")}))
    logger.on_experiment_end([])
    (line,) = json_lines(tmp_path)
    assert (line["loss"], line["n"], line["a"], line["o"]) == (0.5, 3, [0, 1], {"1": "x"})
    assert line["config"]["('a', 1)"] == 2
    assert "Path" in line["config"]["cls"]


def test_a_changed_config_is_in_the_lines_that_follow(tmp_path: Path) -> None:
    logger = ready(JsonLoggerCallback(), tmp_path)
    logger.on_trial_start(TRIAL)
    logger.on_trial_result(TRIAL, report(1))
    clone = evolve(TRIAL, config={"lr": 0.2})
    logger.on_trial_start(clone)
    logger.on_trial_result(clone, report(2))
    logger.on_experiment_end([])
    assert [line["config"]["lr"] for line in json_lines(tmp_path)] == [0.1, 0.2]
    assert json.loads((tmp_path / TRIAL.id / "params.json").read_text()) == {"lr": 0.2}


def test_csv_keeps_keys_that_appear_late(tmp_path: Path) -> None:
    logger = ready(CSVLoggerCallback(), tmp_path)
    logger.on_trial_start(TRIAL)
    logger.on_trial_result(TRIAL, report(1, loss=0.5, note='a "quoted", \n line'))
    logger.on_trial_result(TRIAL, report(2, loss=0.4, eval={"acc": 0.9}))
    logger.on_trial_result(TRIAL, report(3, loss=0.3))
    logger.on_trial_complete(TRIAL)
    rows = csv_rows(tmp_path)
    assert [*rows[0]] == ["training_iteration", "loss", "note", "eval/acc"]
    assert [row["eval/acc"] for row in rows] == ["", "0.9", ""]
    assert rows[0]["note"] == 'a "quoted", \n line'
    assert [row["loss"] for row in rows] == ["0.5", "0.4", "0.3"]
    logger.on_experiment_end([])


def test_a_trial_that_comes_back_after_a_pause_goes_on_in_its_files(tmp_path: Path) -> None:
    loggers = [ready(JsonLoggerCallback(), tmp_path), ready(CSVLoggerCallback(), tmp_path)]
    for logger in loggers:
        logger.on_trial_start(TRIAL)
        logger.on_trial_result(TRIAL, report(1, loss=0.5))
        logger.on_trial_pause(TRIAL)
        logger.on_trial_start(TRIAL)
        logger.on_trial_result(TRIAL, report(2, extra=1, loss=0.4))
        logger.on_experiment_end([])
    assert [line["training_iteration"] for line in json_lines(tmp_path)] == [1, 2]
    assert [row["extra"] for row in csv_rows(tmp_path)] == ["", "1"]


def open_files() -> list[str]:
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]


@pytest.mark.parametrize("make", [JsonLoggerCallback, CSVLoggerCallback])
def test_nothing_is_kept_of_trials_that_ended_and_no_file_stays_open(make: Any, tmp_path: Path) -> None:
    logger = ready(make(), tmp_path)
    trials = [evolve(TRIAL, id=f"abcde_{n:05d}") for n in range(200)]
    for trial in trials:
        logger.on_trial_start(trial)
        logger.on_trial_result(trial, report(1, loss=1.0))
    assert not [name for name in open_files() if str(tmp_path) in name]
    for trial in trials:
        logger.on_trial_result(trial, report(2, loss=0.5))
        logger.on_trial_complete(trial)
    assert len(logger._files) == 0
    assert not getattr(logger, "_configs", None)
    assert not getattr(logger, "_columns", None)
    logger.on_experiment_end([])
    read = json_lines if make is JsonLoggerCallback else csv_rows
    assert all(len(read(tmp_path, trial.id)) == 2 for trial in trials)


def test_what_was_written_is_flushed_without_another_write(tmp_path: Path) -> None:
    flushed = threading.Event()

    class Files(_Appender):
        def flush(self) -> None:
            super().flush()
            flushed.set()

    files = Files(flush_s=0.0)
    files.write(str(tmp_path / "new" / "x"), "line\n")
    assert flushed.wait(20)
    files.flush()
    assert (tmp_path / "new" / "x").read_text() == "line\n"
    files.close_all()
    assert not [thread for thread in threading.enumerate() if thread.name == "sweep-log-flush"]


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_the_kernel_allows_no_thread_lines_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    files = _Appender()
    for number in range(3):
        files.write(str(tmp_path / "x"), f"{number}\n")
        assert (tmp_path / "x").read_text().splitlines()[-1] == str(number)
    files.close_all()


def test_the_flushing_thread_lives_while_there_is_something_to_flush(tmp_path: Path) -> None:
    """A thread counts as a process where few are allowed."""
    files = _Appender(flush_s=0.0)
    for number in range(2):
        files.write(str(tmp_path / "x"), f"{number}\n")
        for thread in [one for one in threading.enumerate() if one.name == "sweep-log-flush"]:
            thread.join(20)
            assert not thread.is_alive()
        assert len((tmp_path / "x").read_text().splitlines()) == number + 1
    files.close_all()


def test_an_error_of_the_flushing_thread_is_raised_by_the_next_write(tmp_path: Path) -> None:
    failed = threading.Event()

    class Files(_Appender):
        def flush(self) -> None:
            failed.set()
            raise OSError(5, "Input/output error")

    files = Files(flush_s=0.0)
    files.write(str(tmp_path / "x"), "1")
    assert failed.wait(20)
    for thread in [one for one in threading.enumerate() if one.name == "sweep-log-flush"]:
        thread.join(0.1)  # it goes on as long as something waits
    with pytest.raises(OSError, match="Input/output"):
        files.write(str(tmp_path / "x"), "2")
    with pytest.raises(OSError, match="Input/output"):
        files.close_all()


def test_what_a_full_disk_does_not_take_is_kept_and_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [3]  # bytes: the disk takes a part of a write, and then nothing
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        number = real(descriptor, data[: room[0]])
        room[0] -= number
        return number

    files = _Appender(flush_s=1000.0)
    files.write(str(tmp_path / "x"), "first\n")
    monkeypatch.setattr(os, "write", write)
    files.flush()
    assert (tmp_path / "x").read_text() == "fir"
    files.write(str(tmp_path / "x"), "ü\n")
    files.close(str(tmp_path / "x"))  # the trial has ended: still nothing is lost
    assert len(files) == 1
    room[0] = 1000
    files.close_all()
    assert (tmp_path / "x").read_text() == "first\nü\n"


def test_a_disk_that_is_full_to_the_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    files = _Appender(flush_s=1000.0)
    files.write(str(tmp_path / "x"), "line\n")
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        files.close_all()


def test_the_directory_of_an_experiment_that_was_deleted_is_not_made_anew(tmp_path: Path) -> None:
    files = _Appender(flush_s=1000.0)
    files.write(str(tmp_path / "gone" / "trial" / "x"), "line\n")
    files.close_all()
    assert os.listdir(tmp_path) == []


# --- after a crash ---


def crashed(tmp_path: Path) -> tuple[MadeExperiment, list[str]]:
    """Three trials with three reports each; the last still runs, the second ended just before, the first long ago."""
    made = MadeExperiment(tmp_path)
    trials = [made.trial({"lr": n}) for n in range(3)]
    for number, trial in enumerate(trials):
        made.start(trial)
        for step in range(3):
            made.report(trial, {"loss": step, "eval": {"acc": 0.1 * step}}, at=1000.0 * (number > 0) + step)
    made.end(trials[0], at=5.0)
    made.end(trials[1], at=1005.0)
    made.commit()
    return made, trials


@pytest.mark.parametrize("damage", ["torn", "missing", "short", "zeroes", "whole"])
def test_files_are_completed_from_the_record(tmp_path: Path, damage: str) -> None:
    made, trials = crashed(tmp_path)
    for logger in (ready(JsonLoggerCallback(), made.root), ready(CSVLoggerCallback(), made.root)):
        name = logger._file_name
        for trial in trials:
            config = {"lr": "as it was"}
            value = evolve(TRIAL, id=trial, config=config)
            for step in range(3):
                logger.on_trial_result(value, report(step + 1, loss=step, eval={"acc": 0.1 * step}, old=1))
        logger.on_experiment_end([])
        for trial in trials[1:]:
            path = made.root / trial / name
            lines = path.read_bytes().splitlines(keepends=True)
            if damage == "missing":
                path.unlink()
            elif damage == "short":
                path.write_bytes(b"".join(lines[:-2]))
            elif damage == "torn":
                path.write_bytes(b"".join(lines[:-1]) + lines[-1][:10])
            elif damage == "zeroes":
                path.write_bytes(b"".join(lines[:-1]) + b"\0" * len(lines[-1]))
    later = [ready(kind(), made.root, resumed=True) for kind in (JsonLoggerCallback, CSVLoggerCallback)]
    running = evolve(TRIAL, id=trials[2], config={"lr": 2})
    made.report(trials[2], {"loss": 9, "eval": {"acc": 0.3}}, at=1010.0)  # a result of the new run, not yet told
    made.commit()
    for logger in later:
        logger.on_trial_start(running)
        logger.on_trial_result(running, report(4, loss=9, eval={"acc": 0.3}))
        logger.on_experiment_end([])
    for trial, last in zip(trials, [[], [], [9]], strict=True):
        rows = json_lines(made.root, trial)
        assert [row["loss"] for row in rows] == [0, 1, 2, *last]
        assert [row["training_iteration"] for row in rows] == [*range(1, len(rows) + 1)]
        assert [float(row["loss"]) for row in csv_rows(made.root, trial)] == [0, 1, 2, *last]
    if damage == "torn":  # what was whole is kept as it was
        kept = json_lines(made.root, trials[1])
        assert [row["config"]["lr"] for row in kept] == ["as it was", "as it was", 1]
    made.close()


def test_files_say_nothing_that_the_record_does_not_know_since_a_power_cut(tmp_path: Path) -> None:
    made, trials = crashed(tmp_path)
    nothing = made.trial({"lr": 4})
    made.start(nothing)
    made.commit()
    for kind in (JsonLoggerCallback, CSVLoggerCallback):
        logger = ready(kind(), made.root)
        for trial in (trials[2], nothing):
            for step in range(5):
                logger.on_trial_result(evolve(TRIAL, id=trial), report(step + 1, loss=step))
        logger.on_experiment_end([])
        again = ready(kind(), made.root, resumed=True)
        again.on_trial_start(evolve(TRIAL, id=nothing))
        again.on_trial_result(evolve(TRIAL, id=nothing), report(1, loss=7))
        again.on_experiment_end([])
    assert [row["loss"] for row in json_lines(made.root, trials[2])] == [0, 1, 2]
    assert [row["loss"] for row in json_lines(made.root, nothing)] == [7]
    assert [float(row["loss"]) for row in csv_rows(made.root, trials[2])] == [0, 1, 2]
    assert [float(row["loss"]) for row in csv_rows(made.root, nothing)] == [7]
    made.close()


def test_without_a_restart_the_record_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "no-database-here").mkdir()
    logger = ready(JsonLoggerCallback(), tmp_path / "no-database-here")
    logger.on_trial_start(TRIAL)
    logger.on_experiment_end([])


def test_a_logger_of_ones_own_overrides_the_log_methods(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Mine(LoggerCallback):
        def log_trial_start(self, trial: Trial) -> None:
            heard.append("start")

        def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
            heard.append((iteration, result["loss"]))

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            heard.append(("end", failed))

    logger = ready(Mine(), tmp_path)
    logger.on_trial_start(TRIAL)
    logger.on_trial_result(TRIAL, report(7, loss=1))
    logger.on_trial_error(TRIAL)
    logger.on_trial_complete(TRIAL)
    assert heard == ["start", (7, 1), ("end", True), ("end", False)]
    assert logger.layout.root == tmp_path


# --- TensorBoard ---


class _Writer:
    def __init__(self, directory: str, flush_secs: float) -> None:
        self.directory = Path(directory)
        self.told: list[tuple[Any, ...]] = []
        self.closed = False
        self.file_writer = self
        WRITERS.append(self)

    def add_summary(self, summary: Any) -> None:
        self.told.append(("hparams", *summary))

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return lambda tag, value, global_step: self.told.append((name, tag, global_step))


WRITERS: list[_Writer] = []


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    module, summary = types.ModuleType("tensorboardX"), types.ModuleType("tensorboardX.summary")
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    module.SummaryWriter = _Writer  # type: ignore[attr-defined]
    summary.hparams = lambda hparam_dict, metric_dict: [(hparam_dict, metric_dict)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    monkeypatch.setitem(sys.modules, "tensorboardX.summary", summary)
    WRITERS.clear()


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_gets_scalars_histograms_and_the_hyperparameters(tmp_path: Path) -> None:
    logger = ready(TBXLoggerCallback(), tmp_path)
    result = report(3, loss=0.5, eval={"acc": True}, hist=[1, 2], image=np.zeros((3, 2, 2)), word="x", pid=1)
    logger.on_trial_result(TRIAL, result)
    logger.on_trial_complete(evolve(TRIAL, last_result=result))
    (writer,) = WRITERS
    assert writer.directory == tmp_path / TRIAL.id
    assert writer.told == [
        ("add_scalar", "loss", 3),
        ("add_scalar", "eval/acc", 3),
        ("add_histogram", "hist", 3),
        ("add_image", "image", 3),
        ("hparams", {"lr": 0.1, "net/width": 16}, {"loss": 0.5, "eval/acc": True}),
    ]
    assert writer.closed
    assert not logger._writers


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_keeps_few_writers_open(tmp_path: Path) -> None:
    logger = ready(TBXLoggerCallback(), tmp_path)
    for number in range(80):
        logger.on_trial_result(evolve(TRIAL, id=f"abcde_{number:05d}"), report(1, loss=1.0))
    assert sum(not writer.closed for writer in WRITERS) == 64
    logger.on_experiment_end([])
    assert all(writer.closed for writer in WRITERS)


def test_a_missing_tensorboardx_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"Run: pip install tensorboardX$"):
        TBXLoggerCallback()


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("kind", [JsonLoggerCallback, CSVLoggerCallback])
def test_a_subclass_in_tunes_form_that_calls_super_as_there_writes_its_files(
    tmp_path: Path, kind: Any, is_named: bool
) -> None:
    class Own(kind):  # type: ignore[misc]
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            result["double"] = 2 * result["loss"]
            if is_named:
                super().on_trial_result(iteration=iteration, trials=trials, trial=trial, result=result, **info)
            else:
                super().on_trial_result(iteration, trials, trial, result, **info)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            super().on_trial_complete(iteration, trials, trial, **info)

    (tmp_path / TRIAL.id).mkdir()
    said: list[str] = []
    dispatcher = Dispatcher([Own()], said.append, about=ExperimentInfo(root=str(tmp_path)))
    dispatcher.setup(experiment_dir=str(tmp_path), plan=Plan(), num_trials=1)
    dispatcher.start()
    dispatcher.notify(
        [
            Notify(Hook.START, TRIAL),
            Notify(Hook.RESULT, TRIAL, report(1, loss=0.5)),
            Notify(Hook.COMPLETE, evolve(TRIAL, status=Status.TERMINATED)),
        ]
    )
    dispatcher.close([])
    assert said == []
    if kind is JsonLoggerCallback:
        (line,) = json_lines(tmp_path)
        assert (line["loss"], line["double"], line["config"]) == (0.5, 1.0, TRIAL.config)
        assert (tmp_path / TRIAL.id / "result.json").read_text().count('"config"') == 1
    else:
        assert [(row["loss"], row["double"]) for row in csv_rows(tmp_path)] == [("0.5", "1.0")]


def test_what_a_very_large_config_says_in_log_files_is_short_or_on_one_line():
    array = np.arange(100_000.0)
    assert json.loads(params_text({"x": array}))["x"] == str(array)
    assert json.loads(to_json({"x": array}))["x"] == str(array)
    assert params_text({"x": array[:3]}).count("\n") == 7
    keys = {f"key{number}": number for number in range(10_000)}
    assert params_text(keys).count("\n") == 1
    assert json.loads(params_text(keys)) == keys
