"""The contract of engines, held by the local engine in all its ways and by the inline one."""

from __future__ import annotations

from conformance.engines import NODE, EngineContract

from sweep.engines.inline import InlineEngine
from sweep.engines.local import LocalEngine
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
