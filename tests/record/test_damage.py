"""A record that was changed by anything but its driver is refused, or says what it said: bits, pages, blocks, ends."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as command
from sweep.errors import ExperimentError
from sweep.record import checksums
from sweep.record.checksums import HighWaterMark, high_water_mark
from sweep.record.reader import ExperimentReader
from sweep.record.resume import load
from sweep.record.snapshot import copy_record

PAGE = 4096
FILES = ("sweep.db", "sweep.db-wal", "sweep.db-shm", "sweep.mark")
KILLED = """
import os, signal, sys
import sweep

class Kill(sweep.Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        if trial.trial_id.endswith("00006"):
            os.kill(os.getpid(), signal.SIGKILL)

def train(config):
    for step in range(4):
        sweep.report({"loss": config["x"] / (step + 1), "note": f"at {step}"})

sweep.run(train, config={"x": sweep.uniform(0, 1)}, num_samples=8, metric="loss", mode="min", name="killed", verbose=0,
          storage_path=sys.argv[1], engine="inline", callbacks=[Kill()])
"""

GIVEN: dict[str, Any] = {"metric": "loss", "mode": "min", "name": "made", "engine": "inline", "verbose": 0}
Change = Callable[[random.Random, bytearray], None]


def flip_bits(draw: random.Random, data: bytearray) -> None:
    for _ in range(draw.choice([1, 1, 1, 8])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def swap_pages(draw: random.Random, data: bytearray) -> None:
    one, other = (PAGE * number for number in draw.choices(range(max(len(data) // PAGE, 1)), k=2))
    data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]


def zero_block(draw: random.Random, data: bytearray) -> None:
    begin = draw.randrange(len(data)) // 512 * 512
    end = min(begin + draw.choice([512, PAGE]), len(data))
    data[begin:end] = bytes(end - begin)


def cut(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


CHANGES: dict[str, Change] = {"bits": flip_bits, "pages": swap_pages, "zeros": zero_block, "cut": cut}


def train(config: dict[str, float]) -> None:
    for step in range(4):
        sweep.report({"loss": config["x"] / (step + 1), "note": f"at {step}"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("finished")
    sweep.run(train, **GIVEN, config={"x": sweep.uniform(0, 1)}, num_samples=8, storage_path=storage)
    return storage / "made"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("killed")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(storage)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (storage / "killed" / "sweep.db-wal").stat().st_size > 10 * PAGE
    return storage / "killed"


def said_by_python(root: Path) -> dict[str, str]:
    """Return all that the readers say of an experiment."""
    analysis, reader = sweep.ExperimentAnalysis(root), ExperimentReader(root)
    return {
        "frame": analysis.dataframe().to_json(),
        "reports": repr({trial_id: frame.to_json() for trial_id, frame in analysis.trial_dataframes.items()}),
        "configs": repr(analysis.get_all_configs()),
        "values": repr(list(reader.values("loss"))),
        "lives": repr(reader.history().lives()),
        "meta": repr(reader.meta),
        "trials": repr([(row, row.config, row.last_metrics, row.checkpoint) for row in reader.trials()]),
    }


def said_by_command(root: Path) -> dict[str, str]:
    """Return what commands print of an experiment."""
    found = {}
    for words in (["trials"], ["best"], ["replay"]):
        ended = CliRunner().invoke(command, [words[0], root.name, *words[1:], "--storage", str(root.parent)])
        if ended.exit_code and ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        if ended.exit_code:
            assert str(root) in ended.output
            raise ExperimentError(ended.output)
        found[words[0]] = ended.output
    return found


def said_by_resume(root: Path) -> dict[str, str]:
    """Return what a run would go on from."""
    loaded = load(root / "sweep.db")
    return {"trials": repr(loaded.trials), "seq": repr((loaded.seq, loaded.at)), "plan": repr(loaded.plan)}


READERS = {"python": said_by_python, "command": said_by_command, "resume": said_by_resume}


def damage(root: Path, into: Path, seed: int) -> str:
    """Copy a record and change it in a way that the seed draws; returns how."""
    draw = random.Random(seed)
    into.mkdir(exist_ok=True)
    for name in FILES:
        (into / name).unlink(missing_ok=True)
        if (root / name).exists():
            shutil.copyfile(root / name, into / name)
    log = into / "sweep.db-wal"
    if log.exists() and draw.random() < 0.5:
        (into / "sweep.db-shm").unlink()  # as after a boot: SQLite makes it anew from the log
    names = [into / "sweep.db"]
    if log.exists():
        names = draw.choice([[into / "sweep.db"], [log], [log, into / "sweep.db"]])
    how = draw.choice(list(CHANGES))
    for name in names:
        data = bytearray(name.read_bytes())
        if data:
            CHANGES[how](draw, data)
            name.write_bytes(data)
    return f"{how} in {' and '.join(name.name for name in names)}"


def is_refused(root: Path, reader: str, truth: dict[str, str], how: str) -> bool:
    """Read a record that was changed: it is refused, or says what it said."""
    checksums._checked.clear()
    try:
        said = READERS[reader](root)
    except ExperimentError:
        return True
    except BaseException as error:
        raise AssertionError(f"{how}: {reader}: {type(error).__name__} got out") from error
    wrong = [key for key in truth if said[key] != truth[key]]
    assert not wrong, f"{how}: {reader}: {wrong} are wrong"
    return False


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("state", ["finished", "killed"])
@pytest.mark.parametrize(
    ("seeds", "at_least"), [(range(9), 3), pytest.param(range(100, 270), 81, marks=pytest.mark.slow)]
)
def test_a_damaged_record_is_refused_or_says_what_it_said(
    state: str, reader: str, seeds: range, at_least: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root, into = request.getfixturevalue(state), tmp_path / "made"
    shutil.copytree(root, into)  # the truth, at the same place
    checksums._checked.clear()
    truth = READERS[reader](into)
    refused = 0
    for seed in seeds:
        how = damage(root, into, seed)
        refused += is_refused(into, reader, truth, f"seed {seed}: {how}")
    assert refused >= at_least


# --- a page of an older copy, which is whole in itself ---------------------------------------------------------------


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Copies of one record, taken while its sweep ran, after its end, and after it went on; the newest is the last."""
    storage, found = tmp_path_factory.mktemp("copies"), []

    def take() -> None:
        found.append(storage / f"{len(found)}.db")
        copy_record(storage / "made" / "sweep.db", found[-1])

    class Take(sweep.Callback):
        def on_trial_complete(self, trial: object, **info: object) -> None:
            self.seen = getattr(self, "seen", 0) + 1
            if self.seen % 5 == 0:
                take()

    for num_samples in (12, 20):
        sweep.run(
            train,
            **GIVEN,
            config={"x": sweep.uniform(0, 1), "text": "long" * 30},
            num_samples=num_samples,
            storage_path=storage,
            callbacks=[Take()],
            trial_name_creator=lambda trial: f"number {trial.trial_id}",
            resume="AUTO",
        )
        take()
    return found


@pytest.mark.parametrize("num_pages", [4, pytest.param(None, marks=pytest.mark.slow)])
def test_a_page_of_an_older_copy_is_refused_or_changes_nothing(
    copies: list[Path], tmp_path: Path, num_pages: int | None
) -> None:
    database = tmp_path / "sweep.db"
    whole = copies[-1].read_bytes()
    database.write_bytes(whole)
    truth = {reader: read(tmp_path) for reader, read in READERS.items()}
    found: list[bool] = []
    for copy in copies[:-1] if num_pages is None else copies[:1]:
        data = copy.read_bytes()
        pages = range(len(data) // PAGE)
        for page in pages if num_pages is None else random.Random(1).sample(pages, num_pages):
            begin, end = page * PAGE, (page + 1) * PAGE
            if data[begin:end] == whole[begin:end]:
                continue
            database.write_bytes(whole[:begin] + data[begin:end] + whole[end:])
            found += [is_refused(tmp_path, name, truth[name], f"page {page} of {copy}") for name in READERS]
    assert sum(found) > (2 if num_pages else 10 * found.count(False))  # a page may hold nothing which is read


@pytest.mark.parametrize("what", ["gone", "empty", "without its index"])
def test_a_record_without_its_log_is_no_fresh_start(killed: Path, tmp_path: Path, what: str) -> None:
    root = tmp_path / "killed"
    shutil.copytree(killed, root)
    log = root / "sweep.db-wal"
    if what == "gone":
        log.unlink()
        (root / "sweep.db-shm").unlink()
    else:
        log.write_bytes(b"")
        if what == "without its index":
            (root / "sweep.db-shm").unlink()
    for read in (ExperimentReader, lambda place: load(place / "sweep.db"), lambda place: again(place)):
        with pytest.raises(ExperimentError, match=r"was recorded: its write-ahead log.*delete .*sweep\.mark"):
            read(root)


def again(root: Path) -> None:
    sweep.run(train, **GIVEN | {"name": root.name}, storage_path=root.parent, resume="AUTO")


def test_a_record_that_is_gone_is_no_fresh_start(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "made"
    shutil.copytree(finished, root)
    (root / "sweep.db").unlink()
    with pytest.raises(ExperimentError, match=r"sweep\.mark"):
        again(root)


def test_after_another_boot_what_was_not_flushed_may_be_missing(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "killed"
    shutil.copytree(killed, root)
    known = high_water_mark(root / "sweep.db")
    assert known is not None
    last = ExperimentReader(root).snapshot().seq
    (root / "sweep.mark").write_bytes(HighWaterMark(last + 5, last, known.boot).encode())
    with pytest.raises(ExperimentError, match=f"ends with event {last}, and event {last + 5} was recorded"):
        ExperimentReader(root)
    monkeypatch.setattr(checksums, "boot", lambda: "another")
    assert ExperimentReader(root).snapshot().seq == last
    (root / "sweep.mark").write_bytes(HighWaterMark(last + 5, last + 1, known.boot).encode())
    with pytest.raises(ExperimentError, match=f"and event {last + 1} was recorded"):
        ExperimentReader(root)


def test_a_copy_of_the_file_alone_is_read(finished: Path, tmp_path: Path) -> None:
    shutil.copyfile(finished / "sweep.db", tmp_path / "sweep.db")
    assert len(ExperimentReader(tmp_path).trials()) == 8
    (tmp_path / "sweep.mark").write_text("no mark\n")
    assert len(ExperimentReader(tmp_path).trials()) == 8
    assert os.listdir(tmp_path).count("sweep.db-wal") == 0
