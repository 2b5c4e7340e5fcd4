"""Log files as a follower of the record writes them: the same bytes as ever, however often it is interrupted."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed import ends_itself
from made_experiment import MadeExperiment

import sweep
from sweep.core.results import flatten
from sweep.scribe import follower
from sweep.scribe.follower import Follower
from sweep.worker.wire import Follow

NAMES = ("params.json", "result.json", "progress.csv", "error.txt")


class Reference(sweep.Callback):
    """Hears everything in the driver, and knows what the files should say of it, written plainly."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.configs: dict[str, str] = {}

    def on_trial_start(self, trial: Any) -> None:
        self.configs[trial.id] = json.dumps(plainly(trial.config), indent=2, sort_keys=True) + "\n"

    def on_trial_result(self, trial: Any, result: Any) -> None:
        line = json.dumps({**result, "config": plainly(trial.config)}) + "\n"
        self.lines.setdefault(trial.id, []).append(line)
        self.rows.setdefault(trial.id, []).append(flatten(dict(result)))

    def check(self, root: Path) -> None:
        assert self.lines
        for trial_id, lines in self.lines.items():
            assert (root / trial_id / "result.json").read_text() == "".join(lines)
            table, rows = io.StringIO(), self.rows[trial_id]
            columns = dict.fromkeys(itertools.chain.from_iterable(rows))
            writer = csv.DictWriter(table, list(columns), restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            with (root / trial_id / "progress.csv").open(newline="") as file:
                assert file.read() == table.getvalue()
            assert (root / trial_id / "params.json").read_text() == self.configs[trial_id]


def plainly(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): plainly(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plainly(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def odd(config: dict[str, Any]) -> None:
    sweep.report(loss=math.nan, text='a "b", c', net={"a": {"b": 1}, "c": [1, 2]}, flag=True, none=None)
    sweep.report({"loss": math.inf, "ü": "é\n,ö", "late": -0.0, "eval": {"x": 1e-300}})
    sweep.report(loss=-math.inf, n=2**53 + 1, late="", text="")
    sweep.report(loss=1.5, timestamp=3, done=False)


@pytest.mark.parametrize("rows", [2000, 1])
def test_files_have_the_same_bytes_as_what_is_written_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(follower, "_ROUND", rows)
    config = {
        "lr": sweep.grid_search([0.1, math.nan]),
        "path": Path("a/b"),
        "class": Path,
        "tuple": (1, (2, "x")),
        "array": np.arange(3),
        "scalar": np.float32(0.1),
        "keys": {3: "three", "ü": [None, True]},
    }
    heard = Reference()
    sweep.run(odd, config=config, engine="inline", storage_path=tmp_path, name="odd", callbacks=[heard], verbose=0)
    heard.check(tmp_path / "odd")


def test_each_line_has_the_config_of_its_time(tmp_path: Path) -> None:
    heard = Reference()

    def train(config: dict[str, Any]) -> None:
        at, done = 0.0, 0
        if (checkpoint := sweep.get_checkpoint()) is not None:
            at, done = json.loads((Path(checkpoint.path) / "at").read_text())
        for step in range(done + 1, 9):
            at += config["lr"]
            (tmp_path / "at").mkdir(exist_ok=True)
            (tmp_path / "at" / "at").write_text(json.dumps([at, step]))
            sweep.report(score=at, checkpoint=sweep.Checkpoint(tmp_path / "at"))

    scheduler = sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"lr": sweep.uniform(0.001, 0.1)}
    )
    sweep.run(
        train,
        config={"lr": sweep.grid_search([0.1, 0.01, 0.001, 0.002])},
        scheduler=scheduler,
        metric="score",
        mode="max",
        seed=3,
        engine="inline",
        storage_path=tmp_path,
        name="pbt",
        callbacks=[heard],
        verbose=0,
    )
    heard.check(tmp_path / "pbt")
    configs = [{json.loads(line)["config"]["lr"] for line in lines} for lines in heard.lines.values()]
    assert any(len(found) > 1 for found in configs)
    # All of it is in the record: policy files that are lost are written again, line by line.
    files = {path: path.read_bytes() for path in (tmp_path / "pbt").glob("pbt_*")}
    assert len(files) > 1
    for path in files:
        path.unlink()
    follow(tmp_path / "pbt", ("policies",), changed=("lr",))
    assert {path: path.read_bytes() for path in (tmp_path / "pbt").glob("pbt_*")} == files
    follow(tmp_path / "pbt", ("policies",), changed=("lr",))
    assert {path: path.read_bytes() for path in (tmp_path / "pbt").glob("pbt_*")} == files


# --- on a record made by hand ---


def made(tmp_path: Path, *, with_silent: bool = False) -> MadeExperiment:
    """Three trials that take turns: late columns, a failure and a retry, a report that is told a second time; and one
    that has not reported."""
    found = MadeExperiment(tmp_path)
    trials = [found.trial({"lr": number}) for number in range(3)]
    for trial in trials:
        found.start(trial)
    for step in range(4):
        for trial in trials:
            found.report(trial, {"loss": step} | ({"acc": 0.5, "note": "two\nlines"} if step == 2 else {}), at=step)
    found.event(
        "Exited",
        trials[1],
        {"exit": {"kind": "FAILED", "error": "E: x", "traceback": "Traceback: E: x"}},
        5.0,
        [
            ["Notify", "trial_recover", trials[1], 1, "starts again after: E: x"],
            ["Start", trials[1], 2, None, {"lr": "other"}, {}],
        ],
    )
    found.event("Started", trials[1], 1, 5.5)
    found.db.execute("UPDATE event SET attempt = 2 WHERE seq = ?", (found.seq,))
    again = found.report(trials[1], {"loss": 3}, at=6, attempt=2)  # judged before: observers do not hear of it
    found.db.execute("UPDATE event SET commands = ? WHERE seq = ?", (json.dumps([["Continue", trials[1], 5]]), again))
    found.report(trials[1], {"loss": 4}, at=7, attempt=2)
    end = [["Notify", "trial_error", trials[1], 2, "E: y"]]
    found.event("Exited", trials[1], {"exit": {"kind": "KILLED"}}, 8.0, end)
    found.end(trials[0], at=9.0)
    if with_silent:
        found.start(found.trial({"lr": 4}))
    found.upgrade()
    return found


def follow(root: Path, files: tuple[str, ...] = ("json", "csv", "errors"), **more: Any) -> list[str]:
    said: list[str] = []
    one = Follower(Follow(str(root), str(root / "sweep.db"), files, **more), said.append)
    assert one.follow() is True
    one.close()
    return said


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for name in NAMES for path in root.glob(f"*/{name}")}


def remove(root: Path) -> None:
    for name in NAMES:
        for path in root.glob(f"*/{name}"):
            path.unlink()


def test_what_is_written_of_failures_and_repeats(tmp_path: Path) -> None:
    record = made(tmp_path)
    assert follow(record.root) == []
    trial = record.root / "abcde_00001"
    lines = [json.loads(line) for line in (trial / "result.json").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["config"]["lr"] for line in lines] == [1, 1, 1, 1, "other"]
    assert json.loads((trial / "params.json").read_text()) == {"lr": "other"}
    text = (trial / "error.txt").read_text()
    assert "Failure # 1 (occurred at 2023-11-1" in text
    assert "\nTraceback: E: x\n\nFailure # 2 (" in text
    assert text.endswith("\nE: y\n\n")
    assert not (record.root / "abcde_00000" / "error.txt").exists()


@pytest.mark.parametrize("at", [1, 5, 9, 13, 17, 20, 21])
def test_another_goes_on_where_one_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """With what it knows, and by what is in the files."""
    record = made(tmp_path)
    follow(record.root)
    whole = contents(record.root)
    for more in ({"start": at, "settle": at}, {"start": 0, "settle": record.seq}, {"start": 0, "settle": at + 1}):
        remove(record.root)
        job = Follow(str(record.root), str(record.root / "sweep.db"), ("json", "csv", "errors"))
        Follower(job, pytest.fail).follow(at)
        assert contents(record.root) != whole
        follow(record.root, **more)
        assert contents(record.root) == whole, more


@pytest.mark.parametrize("is_torn", [False, True])
def test_one_that_is_killed_at_any_change_of_a_file_leaves_what_is_completed(tmp_path: Path, is_torn: bool) -> None:
    record = made(tmp_path)
    follow(record.root)
    whole = contents(record.root)
    for at in itertools.count(1):
        remove(record.root)
        reached = ends_itself(lambda: follow(record.root) and None, record.root, at, is_torn)
        follow(record.root, settle=record.seq)
        assert contents(record.root) == whole, at
        if not reached:
            break
    assert at > 8


@pytest.mark.parametrize("damage", [b"", b'{"loss": 1, "tor', b"0,1", b"\0\0\0\0\n"])
def test_damaged_files_are_completed_and_say_no_more_than_the_record(tmp_path: Path, damage: bytes) -> None:
    record = made(tmp_path, with_silent=True)
    nothing = "abcde_00003"  # whose reports a power cut took
    follow(record.root)
    whole = contents(record.root)
    for name in ("result.json", "progress.csv"):
        for number, path in enumerate(sorted(record.root.glob(f"*/{name}"))):
            lines = path.read_bytes().splitlines(keepends=True)
            if number == 0:
                path.write_bytes(b"".join(lines[:-2]) + damage)
            elif number == 1:
                path.write_bytes(b"".join([*lines, lines[-1], lines[-1]]))
            else:
                path.unlink()
        (record.root / nothing / name).write_bytes(b"a,b\n1,2\n")
    follow(record.root, settle=record.seq)
    assert contents(record.root) == whole


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = made(tmp_path)
    follow(record.root)
    whole = contents(record.root)
    remove(record.root)
    room, real = [0], os.write

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        number = real(descriptor, data[: room[0]])
        room[0] -= number
        return number

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(follower, "_ROUND", 3)
    said: list[str] = []
    job = Follow(str(record.root), str(record.root / "sweep.db"), ("json", "csv", "errors"))
    one = Follower(job, said.append)
    tries = 0
    while not one.follow():
        assert one.is_short
        room[0], tries = 500, tries + 1
    assert contents(record.root) == whole
    assert tries > 3
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert "written when there is room" in said[0]


def test_a_file_that_cannot_be_written_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    record = made(tmp_path)
    (record.root / "abcde_00000" / "result.json").mkdir(parents=True)
    (said,) = follow(record.root)
    assert "abcde_00000/result.json cannot be written, and is given up: Is a directory" in said
    assert (record.root / "abcde_00000" / "progress.csv").read_text().count("loss") == 1
    assert len((record.root / "abcde_00001" / "result.json").read_text().splitlines()) == 5


def test_only_what_is_asked_for_is_written(tmp_path: Path) -> None:
    record = made(tmp_path)
    follow(record.root, ("errors",))
    assert [name.partition("/")[2] for name in contents(record.root)] == ["error.txt"]
