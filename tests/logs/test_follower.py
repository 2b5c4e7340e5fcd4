"""Log files as a follower of the record writes them: the same bytes as ever, however often it is interrupted."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed import ends_itself

import sweep
from sweep.core.history import Fact
from sweep.core.messages import Event, Exit, Exited, ExitKind, Hook, Reported, Started, Suggested
from sweep.core.results import flatten
from sweep.logs import follower
from sweep.logs.follower import Follower, LogJob, to_json

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


@pytest.mark.parametrize("rows", [500, 1])
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
    for more in ({}, {"seq": 5, "is_complete": False}, {"seq": 50}):
        job = LogJob(str(tmp_path / "pbt"), tmp_path / "pbt" / "sweep.db", ("policies",), **more, changed=("lr",))
        assert Follower(job, pytest.fail).follow(10**4) is True
        assert {path: path.read_bytes() for path in (tmp_path / "pbt").glob("pbt_*")} == files


# --- on facts made by hand -------------------------------------------------------------------------------------------


class Facts:
    """What a record would tell, in whatever pieces it is read."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.found: list[Fact] = []

    @property
    def seq(self) -> int:
        return len(self.found)

    def add(self, event: Event, caused: Any = None, metrics: Any = None) -> None:
        self.found.append(Fact(self.seq + 1, 0.0, 1_700_000_000.0 + self.seq, event, caused, metrics))

    def trial(self, **config: Any) -> str:
        trial_id = f"abcde_{sum(isinstance(fact.event, Suggested) for fact in self.found):05d}"
        self.add(Suggested(trial_id, config), [["Start", trial_id, 1, None]])
        self.add(Started(trial_id, 1, 4242))
        return trial_id

    def report(self, trial_id: str, attempt: int = 1, caused: Any = None, **metrics: Any) -> None:
        self.add(Reported(trial_id, attempt, 1, metrics), caused, metrics)

    def end(self, trial_id: str, hook: Hook = Hook.COMPLETE) -> None:
        self.add(Exited(trial_id, 1, Exit(ExitKind.FINISHED)), [["Notify", hook.value, trial_id]])

    def read(self, record: Any, *, after: int, before: int, with_results: bool, **_: Any) -> Iterator[Fact]:
        for fact in self.found[after : before - 1]:
            if with_results:
                yield fact
            elif fact.metrics is None or fact.caused is not None:
                yield replace(fact, metrics=None)

    def follow(self, *kinds: str, upto: int | None = None, **more: Any) -> list[str]:
        said: list[str] = []
        one = Follower(LogJob(str(self.root), self.root, kinds or ("json", "csv", "errors"), **more), said.append)
        assert one.follow(self.seq if upto is None else upto) is True
        return said

    def files(self) -> list[Path]:
        return [path for name in NAMES for path in self.root.glob(f"*/{name}")]

    def contents(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.files()}

    def remove(self) -> None:
        for path in self.files():
            path.unlink()

    def lines(self, trial_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / trial_id / "result.json").read_text().splitlines()]


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    found = Facts(tmp_path / "made")
    monkeypatch.setattr(follower, "connect_for_reading", lambda database: io.BytesIO())
    monkeypatch.setattr(follower, "read_facts", found.read)
    return found


def fill(facts: Facts) -> None:
    """Three trials that take turns: late columns, a failure and a retry, a report that is told a second time; and one
    that has not reported."""
    trials = [facts.trial(lr=number) for number in range(3)]
    for step in range(4):
        for trial in trials:
            facts.report(trial, loss=step, **({"acc": 0.5, "note": 'two "x"\nlines'} if step == 2 else {}))
    facts.add(
        Exited(trials[1], 1, Exit(ExitKind.FAILED, error="E: x", traceback="Traceback: E: x")),
        [
            ["Notify", "trial_recover", trials[1], 1, "starts again after: E: x"],
            ["Start", trials[1], 2, None, {"lr": "other"}, {}, None],
        ],
    )
    facts.add(Started(trials[1], 1, 4242))  # is told late, of the attempt before
    facts.add(Started(trials[1], 2, 4243))
    facts.report(trials[1], 2, [["Continue", trials[1], 5]], loss=3)  # judged before: observers do not hear of it
    facts.report(trials[1], 2, loss=4)
    facts.add(Exited(trials[1], 2, Exit(ExitKind.KILLED)), [["Notify", "trial_error", trials[1], 2, "E: y"]])
    facts.end(trials[0])
    facts.trial(lr=4)


@pytest.fixture
def whole(facts: Facts) -> dict[str, bytes]:
    """What all files say in the end."""
    fill(facts)
    assert facts.follow() == []
    found = facts.contents()
    facts.remove()
    return found


def test_json_has_a_line_per_result_nested_and_with_the_config(facts: Facts) -> None:
    trial = facts.trial(lr=0.1, net={"width": 16})
    facts.report(trial, training_iteration=1, loss=0.5, eval={"acc": 0.1})
    facts.report(trial, training_iteration=2, loss=math.nan, big=math.inf)
    facts.follow()
    first, second = facts.lines(trial)
    config = {"lr": 0.1, "net": {"width": 16}}
    assert first == {"training_iteration": 1, "loss": 0.5, "eval": {"acc": 0.1}, "config": config}
    assert math.isnan(second["loss"])
    assert math.isinf(second["big"])
    params = (facts.root / trial / "params.json").read_text()
    assert json.loads(params) == config
    assert params.startswith('{\n  "lr"')


def test_json_writes_what_json_does_not_know_as_text_and_numpy_as_numbers(facts: Facts) -> None:
    trial = facts.trial(cls=Path, inner={3: "three", ("a", 1): 2})
    facts.report(trial, loss=np.float32(0.5), n=np.int64(3), a=np.arange(2), o={1: Path("x")})
    facts.follow()
    (line,) = facts.lines(trial)
    assert (line["loss"], line["n"], line["a"], line["o"]) == (0.5, 3, [0, 1], {"1": "x"})
    assert line["config"]["inner"] == {"3": "three", "('a', 1)": 2}
    assert "Path" in line["config"]["cls"]


def test_csv_keeps_keys_that_appear_late(facts: Facts) -> None:
    trial = facts.trial()
    facts.report(trial, training_iteration=1, loss=0.5, note='a "quoted", \n line')
    facts.report(trial, training_iteration=2, loss=0.4, eval={"acc": 0.9})
    facts.report(trial, training_iteration=3, loss=0.3)
    facts.add(Exited(trial, 1, Exit(ExitKind.STOPPED)), [["Notify", "trial_pause", trial]])
    facts.follow()
    at = facts.seq
    facts.add(Started(trial, 1, 4242))
    facts.report(trial, training_iteration=4, late=1)
    facts.follow(seq=at)  # by another run, that finds the columns in the file
    with (facts.root / trial / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["training_iteration", "loss", "note", "eval/acc", "late"]
    assert [row["eval/acc"] for row in rows] == ["", "0.9", "", ""]
    assert rows[0]["note"] == 'a "quoted", \n line'
    assert [row["loss"] for row in rows] == ["0.5", "0.4", "0.3", ""]
    assert [row["late"] for row in rows] == ["", "", "", "1"]


def test_nothing_is_kept_of_trials_that_ended_and_no_file_stays_open(facts: Facts) -> None:
    for _ in range(200):
        trial = facts.trial()
        facts.report(trial, loss=1)
        facts.end(trial)
    one = Follower(LogJob(str(facts.root), facts.root, ("json", "csv", "errors")), pytest.fail)
    assert one.follow(facts.seq)
    assert not one._trials
    assert [*one._lines, *one._rows, *one._whole] == []
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if str(facts.root) in path]


def test_what_is_written_of_failures_and_repeats(facts: Facts) -> None:
    fill(facts)
    facts.follow()
    lines = facts.lines("abcde_00001")
    assert [line["loss"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["config"]["lr"] for line in lines] == [1, 1, 1, 1, "other"]
    trial = facts.root / "abcde_00001"
    assert json.loads((trial / "params.json").read_text()) == {"lr": "other"}
    text = (trial / "error.txt").read_text()
    assert "Failure # 1 (occurred at 2023-11-1" in text
    assert "\nTraceback: E: x\n\nFailure # 2 (" in text
    assert text.endswith("\nE: y\n\n")
    assert not (facts.root / "abcde_00000" / "error.txt").exists()


@pytest.mark.parametrize("at", range(1, 26, 3))
def test_another_goes_on_where_one_has_stopped(facts: Facts, whole: dict[str, bytes], at: int) -> None:
    """By what it is told that the files say, and by what is in them."""
    for more in ({"seq": at}, {"seq": facts.seq, "is_complete": False}, {"seq": at + 1, "is_complete": False}):
        facts.remove()
        facts.follow(upto=at)
        assert facts.contents() != whole
        facts.follow(**more)
        assert facts.contents() == whole, more


@pytest.mark.parametrize("is_torn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_that_is_killed_at_any_change_of_a_file_leaves_what_is_completed(
    facts: Facts, whole: dict[str, bytes], is_torn: bool
) -> None:
    for at in itertools.count(1):
        facts.remove()
        reached = ends_itself(lambda: facts.follow() and None, facts.root, at, is_torn)
        facts.follow(seq=facts.seq, is_complete=False)
        assert facts.contents() == whole, at
        if not reached:
            break
    assert at > 8


@pytest.mark.parametrize("damage", [b"", b'{"loss": 1, "tor', b"0,1", b"\0\0\0\0\n", b'"open'])
def test_files_are_completed_from_the_record(facts: Facts, whole: dict[str, bytes], damage: bytes) -> None:
    """Damaged ones, too, and they say no more than it does."""
    facts.follow()
    for name in ("result.json", "progress.csv", "error.txt"):
        for number, path in enumerate(sorted(facts.root.glob(f"*/{name}"))):
            lines = path.read_bytes().splitlines(keepends=True)
            if number == 0:
                path.write_bytes(b"".join(lines[:-2]) + damage)
            elif number == 1:
                path.write_bytes(b"".join([*lines, lines[-1], lines[-1]]))
            else:
                path.unlink()
        (facts.root / "abcde_00003" / name).write_bytes(b"a,b\n1,2\n")  # whose reports a power cut took
    facts.follow(seq=facts.seq, is_complete=False)
    assert facts.contents() == whole


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room_and_said_once(
    facts: Facts, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    room, real = [0], Follower._write

    def write(self: Follower, path: str, text: str, **more: Any) -> None:
        if not room[0]:
            real(self, path, text[:5], **more)
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        real(self, path, text, **more)

    monkeypatch.setattr(Follower, "_write", write)
    monkeypatch.setattr(follower, "_ROUND", 3)
    said: list[str] = []
    one = Follower(LogJob(str(facts.root), facts.root, ("json", "csv", "errors")), said.append)
    tries = 0
    while not one.follow(facts.seq):
        tries += 1
        room[0] = 9 * tries
    assert facts.contents() == whole
    assert tries > 2
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert "written anew when there is room" in said[0]


def test_a_file_that_cannot_be_written_is_given_up_and_the_others_go_on(facts: Facts) -> None:
    fill(facts)
    (facts.root / "abcde_00000" / "result.json").mkdir(parents=True)
    for more in ({}, {"seq": facts.seq, "is_complete": False}):
        (said,) = facts.follow(**more)
        assert "abcde_00000/result.json cannot be written, and is given up: Is a directory" in said
        assert (facts.root / "abcde_00000" / "progress.csv").read_text().count("loss") == 1
        assert len(facts.lines("abcde_00001")) == 5


def test_only_what_is_asked_for_is_written(facts: Facts) -> None:
    fill(facts)
    facts.follow("errors")
    assert [name.partition("/")[2] for name in facts.contents()] == ["error.txt"]


def test_the_directory_of_an_experiment_that_was_deleted_is_not_made_anew(facts: Facts) -> None:
    fill(facts)
    facts.root.rmdir()
    assert facts.follow() == []
    assert not facts.root.exists()


def test_a_very_large_array_is_short_in_log_files() -> None:
    array = np.arange(100_000.0)
    assert json.loads(to_json({"x": array}))["x"] == str(array)
