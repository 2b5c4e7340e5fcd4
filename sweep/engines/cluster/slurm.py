"""Machines of Slurm: the nodes of the job that the driver runs in, or jobs of one node each that come and go.

    in a job    its nodes, from the beginning to the end
    otherwise   trials wait ──sbatch──> pending ──> running ──no trial runs there──> scancel

Either way an agent is a step that `srun --overlap` starts on a node of a job. It says what the job has there, then
takes its invitation from standard input, so that no command line and no file shows the key.
"""

from __future__ import annotations

import base64
import contextlib
import math
import os
import pickle
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sweep.accelerators import inventory
from sweep.core.resources import Node
from sweep.engines.cluster import agent
from sweep.engines.cluster.agents import Bundles, Cluster, unheld
from sweep.engines.cluster.handshake import Invitation, address_towards, this_machine
from sweep.engines.cluster.heartbeat import HEARTBEAT_TIMEOUT_S
from sweep.engines.cluster.slurm_jobs import call, last_line, limits_of, outer_environ, shape_of
from sweep.engines.local.fork_server_client import own_path
from sweep.errors import ConfigError, ExperimentError

_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel")
_LOOK_S = 3.0  # between two looks at the jobs
_MOST_NODES = 8  # at a time where nothing is said
_MOST_PAUSE_S = 60.0  # after jobs that ended before their agents came
# Of an agent's, those of its step: a trial is no task of it, though frameworks would take it for one.
_OF_A_STEP = re.compile(r"SLURM_(STEP|TASK|NTASKS|NPROCS|PROCID|LOCALID|GTIDS|LAUNCH|SRUN|CPU_BIND)|SRUN_|PMI")
_BOOT = "import sys; sys.path[:] = {path!r}; from sweep.engines.cluster.slurm import main; main()"
_MARK = "sweep-agent:"  # before what an agent says of its node
# What a job runs beside the agent: it ends when no agent has come, or none is left, as after the driver was killed.
_HOLD = (
    'while sleep {seconds}; do steps=$(squeue -hs -j "$SLURM_JOB_ID" -o %i) || continue; '
    'case "$steps" in *.[0-9]*) ;; *) exit ;; esac; done'
)
_HOLD_S = 60
# As squeue names the states of jobs; one in neither list is over.
_IN_QUEUE = frozenset("PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT".split())
_ON_NODE = frozenset("RUNNING SUSPENDED STOPPED SIGNALING RESIZING".split())


@dataclass(frozen=True)
class SlurmOptions:
    """What a sweep may use of a cluster of Slurm; see `sweep.init`."""

    max_nodes: int | None = None
    cpus_per_node: float | None = None
    sbatch: str | None = None
    notice_command: str = ""
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    idle_s: float = 30.0


@dataclass(eq=False)
class _Place:
    """A node of a job, from when the job is submitted."""

    job: str
    host: str = ""  # empty: it has none now
    name: str = ""  # of the node, once it has a host
    limits: tuple[str, ...] = ()  # what the job has there, as options of `srun`, which would not find out
    reason: str = "submitted"  # why it waits, as Slurm says
    node: Node | None = None  # as its agent says; None: that has not come yet
    process: subprocess.Popen[str] | None = None  # srun
    said: deque[str] = field(default_factory=lambda: deque(maxlen=3))  # its last lines
    is_invited: bool = False
    left: float = math.inf  # when it was to be given back, on the monotonic clock

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None


class SlurmCluster(Cluster):
    """The nodes of one job of Slurm, or of jobs that are submitted when trials wait, until `close`."""

    may_return = False  # what a lost node is called belongs to its job

    def __init__(self, options: SlurmOptions, say: Callable[[str], None]) -> None:
        """Start an agent on each node of the job that this process runs in; outside a job, and wherever options for
        `sbatch` are given, submit the first job instead.

        Raises:
            ConfigError: there is no Slurm here, or it refuses the job.
            ExperimentError: it does not answer, or no agent came from the nodes of the job.
        """
        self._options = options
        self._say = say
        self.heartbeat_timeout_s, self.notice_command = options.heartbeat_timeout_s, options.notice_command
        if missing := [command for command in _COMMANDS if shutil.which(command) is None]:
            raise ConfigError(
                f"engine='slurm' needs Slurm's commands, and there is no {missing[0]} on this machine. Expected one "
                "where jobs are submitted, or a job of Slurm. For this machine alone leave the engine out."
            )
        self._places: list[_Place] = []
        self._demand: tuple[Bundles, Bundles] | None = None  # what waits and what runs; None: nobody has said
        self._is_met = False  # a node was idle since: more are of no use
        self._num_failed = 0  # jobs that ended before their agents came, since one has come
        self._failure = ""  # of the last of these
        self._pause_until = 0.0
        self._most = options.max_nodes or _MOST_NODES
        self._name = f"sweep-{secrets.token_hex(4)}"  # of the jobs
        self._shape = Node()  # what a job has
        self._news = threading.Event()
        self._is_closed = False
        self._watcher: threading.Thread | None = None
        job = os.environ.get("SLURM_JOB_ID", "")
        try:
            if job and options.sbatch is None:
                self._begin_in(job)
            else:
                self._begin_with_jobs()
        except BaseException:
            self.close()
            raise

    def _begin_in(self, job: str) -> None:
        """Start an agent on each node of a job, and wait for them."""
        for host, limits in [*limits_of(job).items()][: self._options.max_nodes]:
            self._places.append(_Place(job, host, host, limits))
            self._start(self._places[-1])
        give_up = time.monotonic() + self.start_s
        while time.monotonic() < give_up and any(one.node is None and not one.has_ended for one in self._places):
            self._news.wait(0.1)
            self._news.clear()
        missing = [one for one in self._places if one.node is None]
        told = "; ".join(f"{one.host}: {self.problem(one.name) or 'srun still waits for it'}" for one in missing[:4])
        if len(missing) == len(self._places):
            raise ExperimentError(f"no agent came from any node of job {job} within {self.start_s:g} s ({told}).")
        if missing:
            self._say(f"{len(missing)} of {len(self._places)} nodes of job {job} sent no agent ({told})")

    def _begin_with_jobs(self) -> None:
        """Submit the first job, which Slurm may refuse, and says what each of them has."""
        self.idle_s = self._options.idle_s
        self._watcher = threading.Thread(target=self._watch, name="sweep-slurm", daemon=True)
        try:
            self._submit_one()
            self._shape = self._limited(shape_of(self._places[0].job))
        except (ExperimentError, ValueError) as error:
            raise ConfigError(
                f"{str(error).rstrip('.')}. Jobs of this sweep are submitted with: sbatch {self._options.sbatch or ''} "
                "--nodes=1 ...; give other options in sweep.init(engine='slurm', sbatch='...')."
            ) from error
        self._watcher.start()

    # --- what a run sees ---------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        is_near = self.host == Cluster.host  # all nodes are on this machine, and ranks are reached on loopback
        return [
            replace(self._limited(one.node), id=one.name, address="" if is_near else one.node.address)
            for one in list(self._places)
            if one.node is not None and one.left == math.inf
        ]

    @property
    def away(self) -> Sequence[Node]:
        """The jobs that have no node yet, with Slurm's reason, and those that may be submitted."""
        places = list(self._places)
        names = [f"job {one.job} of Slurm ({one.reason})" for one in places if one.node is None]
        if self._watcher is not None:
            why = f"; {self._failure}" if self._failure else ""
            number = sum(place.left == math.inf for place in places)  # for those given back others may come
            names += [f"a job of Slurm ({index}{why})" for index in range(number + 1, self._most + 1)]
        return [replace(self._shape, id=name) for name in names]

    def summon(self, node: str, invitation: Invitation) -> None:
        place = self._of(node)
        if place is None:
            return
        if place.is_invited or place.has_ended:  # the one before is lost, and may not know it
            self._start(place)
        assert place.process is not None
        assert place.process.stdin is not None
        place.is_invited = True
        with contextlib.suppress(BrokenPipeError), place.process.stdin:  # it is gone; `problem` says so
            place.process.stdin.write(invitation.to_json() + "\n")

    def problem(self, node: str) -> str:
        place = self._of(node)
        if place is None:
            return "its job is over"
        return f"its agent ended ({last_line(place.said)})" if place.has_ended else ""

    def request(self, waiting: Bundles, running: Bundles) -> None:
        self._demand, self._is_met = (waiting, running), False
        self._news.set()

    def dismiss(self, node: str) -> None:
        place = self._of(node)
        if place is not None:
            place.left, self._is_met = time.monotonic(), True

    def close(self) -> None:
        """End the agents, and cancel the jobs that were submitted."""
        self._is_closed = True
        self._news.set()
        if self._watcher is not None and self._watcher.is_alive():
            self._watcher.join()
        places, self._places = self._places, []
        for process in [place.process for place in places if place.process is not None]:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # an agent that has no invitation ends
        give_up = time.monotonic() + 2 * self.heartbeat_timeout_s
        for place in places:
            _end(place, max(0.1, give_up - time.monotonic()))
        if self._watcher is not None and (places or self._watcher.ident is not None):
            self._cancel(f"--name={self._name}")  # with one that somebody has queued again after it was given up

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _of(self, node: str) -> _Place | None:
        return next((one for one in list(self._places) if one.name == node), None)

    def _limited(self, node: Node) -> Node:
        """Return what the options leave of a node."""
        return replace(node, cpus=min(node.cpus, self._options.cpus_per_node or math.inf))

    def _watch(self) -> None:
        before: list[str] = []
        while not self._is_closed:
            with contextlib.suppress(ExperimentError):  # the controller is away; what runs goes on without it
                self._look()
                self._settle()
            if before != (before := [node.id for node in (*self.nodes(), *self.away)]):
                self.changed()
            self._news.wait(_LOOK_S)
            self._news.clear()

    def _look(self) -> None:
        """Take in what has become of the jobs."""
        told = call("squeue", "-h", "-t", "all", f"--name={self._name}", "-o", "%i|%T|%N|%r") if self._places else ""
        jobs = {job: words for job, *words in (line.split("|", 3) for line in told.splitlines())}
        for place in list(self._places):
            state, host, reason = jobs.get(place.job, ("gone", "", ""))
            if place.host and state in _IN_QUEUE | _ON_NODE and host != place.host:  # it was requeued
                _end(place)
                self._places[self._places.index(place)] = _Place(place.job, reason=reason)
            elif state in _IN_QUEUE:
                place.reason = reason
            elif state not in _ON_NODE:
                self._give_up(place, state if reason == "None" else f"{state}, {reason}")
            elif state == "RUNNING" and not place.host:
                if (limits := limits_of(place.job).get(host)) is not None:  # it may be over since
                    place.limits, place.host, place.reason = limits, host, "its agent starts"
                    place.name = f"{host}-job{place.job}"
                    self._start(place)
            elif place.process is not None and place.process.poll() == 0 and place.node is not None:
                self._give_up(place, "")  # it has left in time, or was dismissed
            elif place.node is None and place.has_ended:
                self._give_up(place, last_line(place.said))
            elif time.monotonic() > place.left + 2 * self.heartbeat_timeout_s:
                self._give_up(place, "")

    def _give_up(self, place: _Place, why: str) -> None:
        """Have done with a job; if no agent has come from it, the next one waits, the longer the oftener that was."""
        self._places.remove(place)
        _end(place)
        self._cancel(place.job)
        if place.node is None and why:
            self._fail(f"job {place.job} ended before its agent came: {why}")

    def _fail(self, why: str) -> None:
        self._failure = why
        self._pause_until = time.monotonic() + min(_MOST_PAUSE_S, 2.0**self._num_failed)
        self._num_failed += 1
        self._say(f"{why}; the sweep goes on trying")

    def _settle(self) -> None:
        """Submit jobs for what waits and fits into none that there are; take back those that nothing waits for."""
        if self._demand is None or self._is_met:
            return
        waiting, running = self._demand
        rest: Bundles = [*running, *waiting]
        for place in sorted(self._places, key=lambda one: (one.node is None, not one.host)):
            if not rest and not place.host:
                self._give_up(place, "")
            elif place.left == math.inf:
                rest = unheld(_amounts(self._limited(place.node) if place.node else self._shape), rest)
        while len(self._places) < self._most and time.monotonic() > self._pause_until:
            before, rest = rest, unheld(_amounts(self._shape), rest)
            if rest == before:
                break
            try:
                self._submit_one()
            except ExperimentError as error:
                self._fail(str(error).rstrip("."))

    def _submit_one(self) -> None:
        """Submit a job of one node; what the user says of it comes last but for that, and counts."""
        try:
            words = shlex.split(self._options.sbatch or "")
        except ValueError as error:
            raise ExperimentError(f"sbatch is {self._options.sbatch!r}, which cannot be split: {error}") from error
        ours = ("--parsable", f"--job-name={self._name}", "--output=/dev/null", "--no-requeue")
        hold = f"--wrap={_HOLD.format(seconds=_HOLD_S)}"
        told = call("sbatch", *ours, *words, "--nodes=1", "--ntasks=1", hold)
        self._places.append(_Place(told.strip().partition(";")[0]))

    def _cancel(self, which: str) -> None:
        with contextlib.suppress(ExperimentError):  # it is over, or ends by itself when its agent has
            call("scancel", which)

    # --- agents ------------------------------------------------------------------------------------------------------

    def _start(self, place: _Place) -> None:
        """Start an agent; it has all that the job has on its node."""
        _end(place)
        place.said.clear()
        place.is_invited = False
        place.process = process = subprocess.Popen(
            [
                *("srun", f"--jobid={place.job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={place.host}"),
                *(*place.limits, "--cpu-bind=none", sys.executable, "-c", _BOOT.format(path=own_path())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C in the terminal is for the driver, which tells
            env=outer_environ(),
        )
        threading.Thread(target=self._hear, args=(place, process), name="sweep-srun", daemon=True).start()

    def _hear(self, place: _Place, process: subprocess.Popen[str]) -> None:
        """Take in what an agent says of its node, and keep its last words."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if not line.startswith(_MARK):
                    place.said.append(line.strip())
                    continue
                machine, drivers, node = pickle.loads(base64.b64decode(line.removeprefix(_MARK)))
                if machine != this_machine():
                    self.host = drivers  # until then all were reached by loopback
                place.node, self._num_failed, self._failure = node, 0, ""
                self._news.set()
        process.wait()
        self._news.set()


def main() -> None:
    """Be an agent in a step of a job: say what the job has on this node; an invitation comes on standard input."""
    drivers = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", Cluster.host)
    has_gpus = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"} & os.environ.keys()
    if not has_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # those that can be seen are of others
    [node] = inventory.detected()
    note = node.gpu_note if has_gpus else "The job of Slurm has none there"
    facts = this_machine(), drivers, replace(node, address=address_towards(drivers), gpu_note=note)
    print(_MARK + base64.b64encode(pickle.dumps(facts)).decode(), flush=True)
    agent.main({name: value for name, value in os.environ.items() if not _OF_A_STEP.match(name)})


def _end(place: _Place, patience_s: float = 0.0) -> None:
    """End the `srun` of a place, which ends its step, if it does not end by itself."""
    if place.process is not None:
        for end in (place.process.terminate, place.process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                place.process.wait(patience_s)
            if place.process.returncode is not None:
                break
            end()
            patience_s = 5.0
        place.process.wait()
        assert place.process.stdin is not None
        place.process.stdin.close()


def _amounts(node: Node) -> dict[str, float]:
    """Return what a node has, in Ray's names; memory that is not known of is enough."""
    return {"CPU": node.cpus, "GPU": float(len(node.devices)), "memory": float(node.memory or math.inf)}
