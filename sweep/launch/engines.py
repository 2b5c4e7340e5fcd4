"""Which engine a run asked for, and the machines that it runs on."""

from __future__ import annotations

from sweep.accelerators import inventory
from sweep.core.resources import Node
from sweep.engines.base import Engine, EngineFactory
from sweep.launch.spec import RunSpec

__all__ = ["factory_of", "nodes_of"]


def nodes_of(spec: RunSpec) -> tuple[Node, ...]:
    """Return the inventory of a run: that of its engine, the given one, or what is declared or detected here."""
    if isinstance(spec.engine, Engine):
        return tuple(spec.engine.nodes())
    return inventory.available() if spec.nodes is None else inventory.checked_nodes(spec.nodes, "run")


def factory_of(engine: str | EngineFactory) -> EngineFactory:
    """Return what makes the engine of that name; another package's own is made in the same way."""
    match engine:
        case "inline":
            from sweep.engines.inline import InlineEngine

            return InlineEngine
        case "local":
            from sweep.engines.local import LocalEngine

            return LocalEngine
    assert callable(engine)
    return engine
