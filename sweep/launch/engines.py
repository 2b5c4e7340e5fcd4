"""Which engine a run asked for, and the machines that it runs on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sweep.accelerators import inventory
from sweep.core.config import SyncConfig
from sweep.core.resources import Node
from sweep.engines.base import Engine, EngineContext, EngineFactory
from sweep.errors import ConfigError
from sweep.launch.build import Built
from sweep.launch.notices import Notices
from sweep.launch.place import Place
from sweep.launch.spec import RunSpec, same_fields
from sweep.storage.nodes import Home


def with_engine(spec: RunSpec) -> RunSpec:
    """Return a spec that names an engine; what is declared decides where none was given.

    The saved spec is made before: a restored run follows the declaration of its own time."""
    engine = spec.engine if spec.engine is not None else inventory.default_engine()
    return replace(spec, engine=_ray_cluster(spec) if engine == "ray" else engine)


def _ray_cluster(spec: RunSpec) -> EngineFactory:
    """Return the cluster that `init` has named, or the one that this process has joined."""
    if spec.nodes is not None:
        raise ConfigError("engine='ray' and nodes= were both given: the nodes are the cluster's. Leave nodes= out.")
    from sweep.engines.cluster.ray import RayCluster, RayOptions

    return RayCluster(RayOptions(**inventory.cluster_options()), Notices(spec.verbosity).say)


def nodes_of(spec: RunSpec) -> tuple[Node, ...]:
    """Return the inventory of a run: that of its engine or cluster, the given one, or what is declared or detected."""
    nodes = getattr(spec.engine, "nodes", None)
    if nodes is not None:
        return tuple(nodes())
    return inventory.available() if spec.nodes is None else inventory.checked_nodes(spec.nodes, "run")


def engine_of(built: Built, place: Place, **more: Any) -> Engine:
    """Return the engine of a run, made now unless the run was given one; `more` are other fields of its context."""
    spec = built.spec
    if isinstance(spec.engine, Engine):
        return spec.engine
    own = {
        "directory": place.layout.root,
        "experiment_name": place.name,
        "nodes": built.packer.nodes,
        "seed": built.seed,
        "env": {**inventory.env_vars(), **(spec.env or {})},
        "is_chdir": bool(spec.chdir_to_trial_dir),
        "has_company": _has_company(built),
        "report_timeout_s": spec.failures.report_limit_s,
        "is_shared": inventory.is_shared(),
        "home": _home_of(built, place),
    }
    context = EngineContext(**{**same_fields(EngineContext, spec), **own, **more})
    match spec.engine:
        case "inline":
            from sweep.engines.inline import InlineEngine

            return InlineEngine(context)
        case "local":
            from sweep.engines.local.engine import LocalEngine

            return LocalEngine(context)
    assert callable(spec.engine)
    return spec.engine(context)


def _has_company(built: Built) -> bool:
    """Whether several trials may run at a time."""
    most = getattr(built.policies.searcher, "max_concurrent", None)
    if built.spec.engine == "inline" or 1 in (most, built.plan.num_trials):
        return False
    wanted = built.wanted
    return wanted is None or built.packer.could_ever_fit(replace(wanted, bundles=wanted.bundles * 2, strategy="PACK"))


def _home_of(built: Built, place: Place) -> Home | None:
    """Return the remote storage of a run; None: it is stored in a directory."""
    if not place.storage.is_remote:
        return None
    sync = built.spec.sync_config or SyncConfig()
    return Home(
        place.storage.experiment(place.name),
        place.storage.uri_of(place.name),
        sync_artifacts=sync.sync_artifacts,
        sync_artifacts_on_checkpoint=sync.sync_artifacts and sync.sync_artifacts_on_checkpoint,
    )
