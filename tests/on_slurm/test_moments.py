"""What Slurm does to a job at moments that dice choose: no report is lost, nothing that has ended runs again, no epoch
that was reported is repeated where there was notice, the record agrees with itself, and nothing is left.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from agents_chaos import DRIVE, TRAIN, check, prepared
from orphans import MARK, wait_until_gone

from sweep.core.messages import Exited, ExitKind
from sweep.record.facts import read_facts

pytestmark = [pytest.mark.slurm, pytest.mark.chaos]

NUM_MOMENTS = 10
NOTICED = ("preempted", "time limit")
LOST = (ExitKind.LOST, ExitKind.NODE_LOST)
KINDS = ("cancelled", *NOTICED, "requeued", "node down", "controller restarted")

SCRIPT = (
    TRAIN.replace("time.sleep(0.05)", 'time.sleep(config["pace_s"])')
    + DRIVE.replace("sweep.choice([0, 1])", '1, "pace_s": float(sys.argv[3])')
    + """
from sweep.engines.cluster import slurm

if __name__ == "__main__":
    slurm._LOOK_S, slurm._HOLD_S = 0.3, 4
    sweep.init(engine="slurm", **json.loads(sys.argv[4]))
    drive(sys.argv[1], int(sys.argv[2]), False, "slurm", 2)
"""
)


class Run:
    """A sweep of two trials at a time: outside any job, or in the documented job script."""

    def __init__(self, slurm, script: str, root: Path, is_inside: bool, draw: random.Random, *size: object) -> None:
        (root / "tmp").mkdir(parents=True)
        self.experiment = prepared(root)
        self.slurm, self.root, self.is_inside, self.draw = slurm, root, is_inside, draw
        self.environ = {**os.environ, MARK: str(root), "TMPDIR": str(root / "tmp")}
        options = {} if is_inside else {"sbatch": "-c 1 --requeue --signal=USR1@60", "max_nodes": 2}
        command = [sys.executable, script, str(root), *map(str, size), json.dumps(options)]
        self.driver: subprocess.Popen[bytes] | None = None
        if is_inside:
            page = (Path(__file__).parents[2] / "docs" / "how-to" / "use-slurm.md").read_text()
            [text] = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", page, flags=re.DOTALL)
            text, number = re.subn(r"(?m)^sweep run .* &$", lambda _: " ".join(map(_quoted, command)) + " &", text)
            assert number == 1
            (root / "job.sh").write_text(text)
            self.submit()
        else:
            with (root / "said").open("wb") as said:
                self.driver = subprocess.Popen(command, env=self.environ, stdout=said, stderr=said)

    def close(self) -> None:
        """End it where it did not."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        if jobs := self.jobs():
            self.slurm.call("scancel", *jobs)

    def submit(self) -> None:
        """Have the job queued, again where it is over."""
        options = ("--nodes=2", "--cpus-per-task=1", "--gres=gpu:0", f"--output={self.root}/said")
        self.job = self.slurm.call("sbatch", "--parsable", *options, "job.sh", cwd=self.root, env=self.environ).strip()

    def jobs(self, state: str = "") -> list[str]:
        """Return its jobs in the queue, in this state."""
        told = [line.split(" ", 2) for line in self.slurm.jobs()]
        mine = [(job, about) for job, name, about in told if (job == self.job if self.is_inside else name != "wrap")]
        return [job for job, about in mine if state in about]

    @property
    def is_over(self) -> bool:
        return not self.jobs() if self.driver is None else self.driver.poll() is not None

    def await_(self, is_so: Callable[[], object], seconds: float = 120) -> None:
        """Wait, and do what an administrator would: nodes that are down come back, and jobs that were queued again
        begin without the two minutes that Slurm gives them."""
        give_up = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < give_up, (self.slurm.jobs(), (self.root / "said").read_text()[-3000:])
            if down := self.slurm.call("sinfo", "-h", "-N", "-t", "down,drain", "-o", "%N").split():
                self.try_("scontrol", "update", f"nodename={','.join(down)}", "state=resume")
            for job in self.jobs("PENDING BeginTime"):
                time.sleep(2)  # a node takes no job again in the second in which that was ended there
                self.try_("scontrol", "update", f"jobid={job}", "StartTime=now")
            for job in self.jobs("PENDING launch failed requeued held"):  # a node that was down had not ended it yet
                self.try_("scontrol", "release", job)
            time.sleep(0.1)

    def try_(self, *command: str) -> bool:
        """Run a command of Slurm that may come too late; returns whether it did not."""
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0

    def notes(self) -> list[str]:
        """Return what its trials have noted."""
        path = self.root / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def act(self, kind: str) -> int:
        """Do it to one of the jobs that run, or to one that only waits, where that can be done; to all of them where
        it takes long. Returns to how many."""
        state = "" if kind in ("cancelled", "controller restarted") else "RUNNING"
        self.await_(lambda: self.jobs(state) or self.is_over)
        jobs = self.jobs(state)
        assert jobs, (self.root / "said").read_text()[-3000:]
        job = self.draw.choice(jobs)
        match kind:
            case "cancelled":
                assert self.try_("scancel", job)
                if self.is_inside:
                    self.await_(lambda: self.is_over)
                    self.submit()
            case "preempted":
                more = (
                    "--partition=high",
                    "--nodes=2",
                    "-c",
                    "2",
                    "--time=1",
                    "--output=/dev/null",
                    "--wrap=sleep 0.5",
                )
                other = self.slurm.call("sbatch", "--parsable", *more).strip()
                self.await_(lambda: not any(line.startswith(other) for line in self.slurm.jobs()))
            case "requeued":
                assert self.try_("scontrol", "requeue", job)
            case "time limit":
                # Slurm looks at limits every 30 s, and tells of one that comes within these and those asked for.
                for job in jobs:
                    self.try_("scontrol", "update", f"jobid={job}", "EndTime=now+60")
                self.await_(lambda: not set(jobs) & set(self.jobs("RUNNING")))
                return len(jobs)
            case "node down":
                node = self.draw.choice(["n1", "n2"])
                if not self.is_inside:
                    node = self.slurm.call("squeue", "-h", "-j", job, "-o", "%N").strip() or node
                self.slurm.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
                time.sleep(self.draw.uniform(0, 1))
            case "controller restarted":
                self.slurm.restart_controller(self.draw.uniform(0, 2))
        return 1


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@pytest.fixture
def grace(slurm):
    """Give the jobs that are preempted the time to save on a busy machine."""
    yield lambda seconds: slurm.call("scontrol", "update", "partitionname=low", f"GraceTime={seconds}")
    slurm.call("scontrol", "update", "partitionname=low", "GraceTime=2")


def undergo(run: Run, kind: str) -> None:
    """Have it happen at a moment of the run, or at many of one that is long; wait for its end."""
    with closing(run):
        if kind == "time limit":
            done = 0
            while done < NUM_MOMENTS:
                time.sleep(run.draw.uniform(0, 5))
                done += run.act(kind)
        else:
            number = run.draw.randrange(36)  # of the 42 notes that an undisturbed run makes
            run.await_(lambda: len(run.notes()) >= number or run.is_over)
            run.act(kind)
        run.await_(lambda: run.is_over, seconds=300)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_whenever_it_happens_nothing_is_lost_and_nothing_is_left(slurm, script, tmp_path, left, grace, where, kind):
    is_inside, is_long = where == "inside", kind == "time limit"
    grace(6 if is_inside else 20)
    size = (6, 0.3) if not is_long else (48, 3) if is_inside else (30, 2)
    path = script(SCRIPT)
    for seed in range(1 if is_long else NUM_MOMENTS):
        run = Run(slurm, path, tmp_path / str(seed), is_inside, random.Random(f"{where} {kind} {seed}"), *size)
        undergo(run, kind)
        said = (run.root / "said").read_text()
        assert run.driver is None or run.driver.returncode == 0, said
        check(run.root, size[0])
        events = [fact.event for fact in read_facts(run.experiment / "sweep.db")]
        lost = [event for event in events if isinstance(event, Exited) and event.exit.kind in LOST]
        told = Counter(line for line in run.notes() if line.startswith("told"))
        if kind in (*NOTICED, "controller restarted"):
            assert lost == [], said
            assert {line: number for line, number in told.items() if number > 1} == {}, said
        print(f"{where}, {kind}, seed {seed}: {len(lost)} attempts lost, {told.total() - len(told)} epochs repeated")
        assert left(run.experiment) == []
        assert wait_until_gone(str(run.root)) == {}
        assert [path for path in run.root.rglob("*") if path.is_socket()] == []
