"""The contract of engines, held by the local engine in all its ways, by the inline one and by the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_processes import AgentProcesses
from conformance.engines import NODE, EngineContract
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from sweep.core.messages import Start
from sweep.core.resources import BundlePlacement, Node, Placement, Resources
from sweep.core.trial import evolve
from sweep.engines.cluster.agents import Agents
from sweep.engines.inline import InlineEngine
from sweep.engines.local.engine import LocalEngine
from sweep.engines.simulator import Point, Simulator
from sweep.storage.filesystems import RemoteDirectory
from sweep.storage.nodes import Home
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.worker.trainable import prepare

OTHER = Node(id="other", cpus=8.0)


class TestLocal(EngineContract):
    def factory(self, behaviour):
        return LocalEngine


class TestLocalReusing(EngineContract):
    def factory(self, behaviour):
        return lambda context: LocalEngine(replace(context, reuse_actors=True))


class _Gang(LocalEngine):
    """Grants every trial a second bundle: each becomes a group of two ranks."""

    def execute(self, command):
        if isinstance(command, Start):
            (bundle,), (place,) = command.trial.resources.bundles, command.trial.placement.bundles
            two = evolve(command.trial, resources=Resources((bundle,) * 2), placement=Placement((place,) * 2))
            command = Start(two)
        super().execute(command)


class TestLocalGroup(EngineContract):
    def factory(self, behaviour):
        trainer = DataParallelTrainer(behaviour.as_function(), scaling_config=ScalingConfig(num_workers=2))
        return lambda context: _Gang(replace(context, trainable=prepare(trainer)))


@pytest.mark.agents
class TestAgents(EngineContract):
    def factory(self, behaviour):
        return lambda context: AgentProcesses(context.nodes)(context)


@pytest.mark.agents
class TestAgentsApart(EngineContract):
    """Agents that do not see the driver's directory: files go through remote storage."""

    @pytest.fixture(autouse=True)
    def bucket(self, tmp_path_factory, monkeypatch):
        self.root = tmp_path_factory.mktemp("bucket")
        monkeypatch.setenv("SWEEP_CACHE", str(self.root / "cache"))
        monkeypatch.setenv("SWEEP_SHARED_STORAGE", "0")

    def factory(self, behaviour):
        bucket = DirFileSystem(str(self.root), LocalFileSystem())

        def make(context):
            home = Home(RemoteDirectory(bucket, f"b/{context.directory.name}"))
            return AgentProcesses(context.nodes)(replace(context, home=home))

        return make


class _SpanningGang(Agents):
    """Grants every trial a bundle on a second node: each becomes a group of a rank on each."""

    def execute(self, command):
        if isinstance(command, Start):
            (bundle,), (place,) = command.trial.resources.bundles, command.trial.placement.bundles
            places = (place, BundlePlacement(OTHER.id))
            two = evolve(command.trial, resources=Resources((bundle,) * 2), placement=Placement(places))
            command = Start(two)
        super().execute(command)

    def nodes(self):
        return [node for node in super().nodes() if node != OTHER]


@pytest.mark.agents
@pytest.mark.slow
class TestSpanningGroup(EngineContract):
    def factory(self, behaviour):
        trainer = DataParallelTrainer(behaviour.as_function(), scaling_config=ScalingConfig(num_workers=2))
        nodes = (NODE, OTHER)

        def make(context):
            return _SpanningGang(replace(context, nodes=nodes, trainable=prepare(trainer)), AgentProcesses(nodes))

        return make


class TestInline(EngineContract):
    def factory(self, behaviour):
        return InlineEngine


class TestSimulator(EngineContract):
    has_virtual_time = True

    def factory(self, behaviour):
        def curve(config, done):
            for step in range(1, behaviour.num_reports + 1):
                yield Point(1.0, {"loss": float(step)})
            if behaviour.does_raise:
                raise ValueError("as it was told to")

        return Simulator.factory(curve)
