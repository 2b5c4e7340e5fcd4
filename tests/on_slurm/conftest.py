"""Slurm on this machine: a controller and two nodes of two CPUs and two GPUs, device nodes without a device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sweep.accelerators import inventory
from sweep.engines.local.fork_server_client import own_path

DAEMONS = ("munged", "slurmctld", "slurmd")
CONF = """
ClusterName=try
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
KillWait=5
JobRequeue=1
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000 Gres=gpu:a100:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000 Gres=gpu:h100:2
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=2
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


@dataclass
class Slurm:
    """What was started; `call` runs one of its commands and returns what that prints."""

    root: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)  # in which it began, not that of a test that restarts it

    def start(self, *command: str) -> None:
        self.environ = self.environ or dict(os.environ)
        options = {"env": self.environ, "start_new_session": True}
        with (self.root / "log" / "daemons.log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, **options))

    def restart_controller(self, pause_s: float) -> None:
        """End the controller, and start it again after a pause."""
        [old] = [one for one in self.processes if one.args[0] == "slurmctld" and one.poll() is None]
        old.terminate()
        old.wait(30)
        time.sleep(pause_s)
        self.start(*old.args)

    def call(self, *command: str, **options) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def jobs(self) -> list[str]:
        return self.call("squeue", "-h", "-o", "%i %j %T %r").splitlines()

    def await_jobs(self, number: int, *, state: str = "", seconds: float = 30) -> list[str]:
        """Wait until there are so many jobs (in this state); returns their lines."""
        give_up = time.monotonic() + seconds
        while len(found := [line for line in self.jobs() if state in line]) != number:
            assert time.monotonic() < give_up, self.jobs()
            time.sleep(0.1)
        return found


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in held]


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    if missing := [name for name in DAEMONS if shutil.which(name) is None]:
        pytest.skip(f"there is no {missing[0]} here: apt-get install slurm-wlm munge")
    if os.getuid() != 0:
        pytest.skip("the daemons of Slurm need root")
    # Not below pytest's own directory, which others may not enter, and whose path is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory, pytest.MonkeyPatch.context() as patch:
        made = Slurm(Path(directory))
        root = made.root
        root.chmod(0o755)
        for name in ("state", "spool/n1", "spool/n2", "run", "log", "dev"):
            (root / name).mkdir(parents=True)
        (root / "munge.key").write_bytes(os.urandom(1024))
        (root / "munge.key").chmod(0o400)
        gres = ["AutoDetect=off"]
        try:
            for node, kind in (("n1", "a100"), ("n2", "h100")):
                for index in range(2):
                    os.mknod(root / "dev" / f"{node}-nvidia{index}", 0o20666, os.makedev(1, 3))
                gres.append(f"NodeName={node} Name=gpu Type={kind} File={root}/dev/{node}-nvidia[0-1]")
        except PermissionError as error:
            pytest.skip(f"no device nodes can be made here: {error}")
        host = socket.gethostname().split(".")[0]
        (root / "slurm.conf").write_text(CONF.format(root=root, host=host, ports=_free_ports(3)))
        (root / "gres.conf").write_text("\n".join(gres) + "\n")
        patch.setenv("SLURM_CONF", str(root / "slurm.conf"))
        for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF"]:
            patch.delenv(name)
        try:
            munge = [f"--{key}-file={root}/{place}" for key, place in _MUNGE.items()]
            made.start("munged", "--foreground", "--force", f"--socket={root}/run/munge.sock", *munge)
            _await(lambda: (root / "run" / "munge.sock").exists(), made)
            made.start("slurmctld", "-D", "-f", str(root / "slurm.conf"))
            for node in ("n1", "n2"):
                made.start("slurmd", "-D", "-N", node, "-f", str(root / "slurm.conf"))
            _await(lambda: _idle_nodes() == "2", made)
            yield made
        finally:
            for process in reversed(made.processes):
                process.terminate()
            for process in made.processes:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


_MUNGE = {"key": "munge.key", "pid": "run/munged.pid", "log": "log/munged.log", "seed": "run/munge.seed"}


def _idle_nodes() -> str:
    return subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True).stdout.strip()


def _await(is_there: Callable[[], bool], made: Slurm) -> None:
    give_up = time.monotonic() + 30
    while not is_there():
        logs = "".join(path.read_text(errors="replace")[-2000:] for path in (made.root / "log").iterdir())
        assert time.monotonic() < give_up, logs
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def _undeclared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sweep.engines.cluster.slurm._LOOK_S", 0.3)
    yield
    inventory.shutdown()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a script, which finds what these tests find, and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(f"import json, os, sys, time\nsys.path[:] = {own_path()!r}\nimport sweep\n{text}")
        return str(path)

    return write


@pytest.fixture
def left(slurm: Slurm) -> Callable[[Path], list[str]]:
    """Return a function that says what a sweep has left: jobs, and processes, which all hold a lock of their node."""

    def look(experiment: Path) -> list[str]:
        give_up = time.monotonic() + 20
        while (found := [*slurm.jobs(), *_held(experiment)]) and time.monotonic() < give_up:
            time.sleep(0.1)
        return found

    return look


def _held(experiment: Path) -> list[str]:
    found = []
    for path in (experiment / "code").glob("agent-*.lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"{path.name} is held")
    return found
