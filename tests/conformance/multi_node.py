"""How tests drive groups on two nodes, each with an agent that is a process of this machine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from agent_processes import AgentProcesses
from conformance.driving import Story
from conformance.engines import collect, context, has_released, trial

import sweep
from sweep.core.messages import Continue, Exited, Start
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.trial import evolve
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.train.trainer import Backend

GPUS = tuple(Device(f"GPU-{number}", visible=str(number)) for number in range(2))
NODES = tuple(Node(name, 8, devices=GPUS, address=f"127.0.0.{last}") for name, last in (("m", 2), ("n", 3)))
ONE_EACH = (("m", 0), ("n", 0))


@dataclass(frozen=True)
class Meeting(Backend):
    """The variables and the port of a torch group, without torch: rank 0 listens, the others call."""

    framework: ClassVar[str] = "torch"
    visibility: ClassVar[str] = "share"

    def start(self, rank):
        if rank.listener >= 0:
            with socket.socket(fileno=rank.listener) as listener:
                for _ in range(rank.size - 1):
                    listener.accept()[0].close()
        else:
            with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as peer:
                assert peer.getpeername()[0] == rank.address
                peer.recv(1)


def loop(config):
    """Do what the trial's config says."""
    rank, at = sweep.get_context().get_world_rank(), Path(config["at"])
    (at / f"pid-{os.getpid()}").touch()
    config["do"](rank, at)


class Driver:
    """Runs trials on two nodes, one after another."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.directory = directory
        self.cluster = AgentProcesses(NODES, heartbeat_timeout_s=5)
        trainer = DataParallelTrainer(loop, backend_config=Meeting(), scaling_config=ScalingConfig(num_workers=2))
        self.engine = self.cluster(context(directory, trainer, nodes=NODES, **fields))
        self._numbers = count()

    def trial(self, do, places=ONE_EACH, **changes):
        """Return a trial with a rank for each place, a node and one of its devices."""
        at = tuple(BundlePlacement(node, ((f"GPU-{device}", 1.0),)) for node, device in places)
        one = trial(
            next(self._numbers),
            resources=Resources((Bundle(cpu=1.0, gpu=1.0),) * len(at)),
            placement=Placement(at),
            **changes,
        )
        path = self.directory / one.id
        path.mkdir(exist_ok=True)
        return evolve(one, config={"train_loop_config": {"do": do, "at": str(path)}})

    def play(self, do, places=ONE_EACH, *, answer=None) -> Story:
        """Run a trial to its end."""
        one = self.trial(do, places)
        self.engine.execute(Start(one))
        answer = answer or (lambda report: Continue(report.trial_id, report.attempt, report.seq))
        return Story(collect(self.engine, has_released(1), answer=answer))

    def path(self, story: Story) -> Path:
        """Return the directory of a story's trial."""
        (ended,) = [event for event in story.events if isinstance(event, Exited)]
        return self.directory / ended.trial_id

    def ranks(self, trial_id: str = "*") -> list[int]:
        """Return the processes of a trial's ranks, or of all, also of those that are gone."""
        return [int(path.name.partition("-")[2]) for path in self.directory.glob(f"{trial_id}/pid-*")]
