"""The power is cut at hundreds of moments of a sweep, at each level of durability."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from power import HAS_STRACE, Disk, calls, trace

import sweep
from sweep.checkpoints.manifest import verify
from sweep.launch.description import COMPLETE
from sweep.record.checksums import high_water_mark
from sweep.record.db import open_for_reading
from sweep.record.layout import MARK
from sweep.record.stored import StoredCheckpoints, references

pytestmark = pytest.mark.skipif(not HAS_STRACE, reason="strace is not installed")

NUM_TRIALS, NUM_CUTS, RESUME_EVERY = 16, 300, 25  # trials: as in the script

# Arguments: where to, durability; it says in `marks` what is committed and what was flushed.
SCRIPT = """
import os, shutil, sys, tempfile
import sweep
from sweep.record import journal

shutil._USE_CP_SENDFILE = False  # what is copied shows among the calls

place, durability = sys.argv[1:]
root = os.path.join(place, "disk")
marks = os.open(os.path.join(place, "marks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
journal._EVERY_S, journal._MANY = 0.05, 40
current = None
commit, flush = journal.Journal.commit, journal._flush

def committed(self, *arguments):
    global current
    commit(self, *arguments)
    current = self
    os.write(marks, f"committed {self.seq}\\n".encode())

def flushed(log):
    seq = 0 if current is None else current.seq
    flush(log)
    os.write(marks, f"flushed {seq}\\n".encode())

journal.Journal.commit, journal._flush = committed, flushed

def train(config):
    checkpoint = sweep.get_checkpoint()
    first = 1 if checkpoint is None else int(open(checkpoint.path + "/step").read()) + 1
    for step in range(first, 9):
        loss = (config["x"] - 0.4) ** 2 + 1 / step
        if step % 4:
            sweep.report(loss=loss, step=step)
            continue
        with tempfile.TemporaryDirectory(dir=place) as directory:
            with open(directory + "/step", "w") as file:
                file.write(str(step))
            with open(directory + "/ballast", "wb") as file:
                file.write(bytes(3000))
            sweep.report(loss=loss, step=step, checkpoint=sweep.Checkpoint(directory))

sweep.run(
    train, name="cut", storage_path=root, config={"x": sweep.uniform(0, 1)}, num_samples=16, metric="loss",
    mode="min", seed=3, verbose=0, resume=True, checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
    durability=durability, engine="inline",
)
os.write(marks, f"flushed {current.seq}\\n".encode())  # the end of run
"""


Rows = dict[str, list[tuple[object, ...]]]


def rows_of(database: Path) -> Rows:
    """Return what a record says after SQLite has mended it; nothing of one that was never made."""
    if not database.exists():
        return {"event": [], "result": []}
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not db.execute("SELECT 1 FROM sqlite_master").fetchall():
            return {"event": [], "result": []}
        return {name: db.execute(f"SELECT * FROM {name} ORDER BY seq").fetchall() for name in ("event", "result")}


def last_of(marks: list[str], word: str) -> int:
    return max((int(mark.split()[1]) for mark in marks if mark.startswith(word)), default=0)


def check_checkpoints(experiment: Path) -> int:
    """See to it that every checkpoint is there that the record keeps, or that a trial continues from."""
    stored = StoredCheckpoints()
    with closing(sqlite3.connect(experiment / "sweep.db")) as db:
        stored.follow(db)
        wanted = stored.kept.union(*references(db).values())
    for path in wanted:
        verify(experiment / path)
    return len(wanted)


def boot_anew(database: Path) -> None:
    """Make its mark one of the boot before, as it is after a power cut."""
    mark = high_water_mark(database)
    if mark is not None:
        database.with_suffix(MARK).write_bytes(mark._replace(boot="before").encode())


def resume(place: Path, script: Path, durability: str) -> None:
    """Go on with what a cut has left, and see that it ends as it should."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    boot_anew(place / "disk" / "cut" / "sweep.db")
    with closing(open_for_reading(place / "disk" / "cut" / "sweep.db")) as db:
        was_complete = db.execute("SELECT 1 FROM meta WHERE key = ?", (COMPLETE,)).fetchone() is not None
    code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, str(script), str(place), durability], environment)
    assert code == 0
    experiment = place / "disk" / "cut"
    analysis = sweep.ExperimentAnalysis(experiment)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * NUM_TRIALS
    assert sweep.replay(experiment).differences == []
    check_checkpoints(experiment)
    if was_complete:
        return  # files for people are not flushed, and looked at only when a run did not end
    for trial in analysis.trials:
        lines = (experiment / trial.trial_id / "result.json").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durability", ["normal", "full"])
def test_a_power_cut_takes_nothing_that_was_flushed_nor_what_the_record_refers_to(tmp_path, durability):
    script, traced = tmp_path / "train.py", tmp_path / "traced"
    script.write_text(SCRIPT)
    (traced / "disk").mkdir(parents=True)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    trace([sys.executable, str(script), str(traced), durability], tmp_path / "trace", environment)
    whole = rows_of(traced / "disk" / "cut" / "sweep.db")
    played = list(calls(tmp_path / "trace"))
    begin = next(number for number, call in enumerate(played) if any(str(traced) in path for path in call.names()))
    rng = random.Random(durability)
    cuts = {len(played), *rng.sample(range(begin, len(played)), NUM_CUTS - 1)}
    disk = Disk(traced / "disk")
    num_lost, num_kept, num_whole = [], 0, 0
    for number in range(len(played) + 1):
        if number in cuts:
            place = tmp_path / "after"
            disk.after_a_cut(place / "disk", rng)
            shutil.copytree(place, tmp_path / "copy")
            last, flushed, kept = check(tmp_path / "copy" / "disk" / "cut", disk.marks, whole)
            num_lost.append(last_of(disk.marks, "committed") - last)
            num_kept += kept
            num_whole += 1
            if flushed and num_whole % RESUME_EVERY == 0:
                resume(place, script, durability)
            shutil.rmtree(place)
            shutil.rmtree(tmp_path / "copy")
        if number < len(played):
            disk.play(played[number])
    assert num_whole == NUM_CUTS
    assert num_kept > NUM_CUTS  # there was something that might have been deleted too early
    if durability == "full":
        assert max(num_lost) <= 0
    else:
        assert max(num_lost) > 0  # or the cuts were harmless


def check(experiment: Path, marks: list[str], whole: Rows) -> tuple[int, int, int]:
    """See to it that the record is the beginning of the whole one, at least up to where it was flushed; return its last
    event, that one, and how many checkpoints it keeps."""
    found, flushed = rows_of(experiment / "sweep.db"), last_of(marks, "flushed")
    last = len(found["event"])
    assert found["event"] == whole["event"][:last]
    assert found["result"] == [row for row in whole["result"] if int(str(row[0])) <= last]
    assert last >= flushed
    mark = high_water_mark(experiment / "sweep.db")
    assert mark is None or mark.flushed <= last
    return last, flushed, check_checkpoints(experiment) if last else 0
