"""The contract of engines, held by the local engine in all its ways, by the inline one and by the simulator."""

from __future__ import annotations

from conformance.engines import NODE, EngineContract

from sweep.engines.inline import InlineEngine
from sweep.engines.local import LocalEngine
from sweep.engines.simulator import Point, Simulator
from sweep.worker.trainable import prepare


class TestLocal(EngineContract):
    def make(self, directory, behaviour, *, start_at=0.0):
        return LocalEngine(directory, prepare(behaviour.as_function()), nodes=[NODE], start_at=start_at)


class TestLocalReusing(EngineContract):
    def make(self, directory, behaviour, *, start_at=0.0):
        return LocalEngine(
            directory, prepare(behaviour.as_function()), nodes=[NODE], start_at=start_at, reuse_actors=True
        )


class TestInline(EngineContract):
    def make(self, directory, behaviour, *, start_at=0.0):
        return InlineEngine(directory, prepare(behaviour.as_function()), nodes=[NODE], start_at=start_at)

    def drive(self, engine, script):
        return engine.run(script)


class TestSimulator(EngineContract):
    has_virtual_time = True

    def make(self, directory, behaviour, *, start_at=0.0):
        def curve(config, done):
            for step in range(1, behaviour.num_reports + 1):
                yield Point(1.0, {"loss": float(step)})
            if behaviour.does_raise:
                raise ValueError("as it was told to")

        return Simulator(curve, [NODE], start_at=start_at)
