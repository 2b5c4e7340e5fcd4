"""The environment of every rank of a training group, computed from its placement: pure, so every rule has a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweep.accelerators.tpu import identity_variables, slice_variables
from sweep.core.resources import BundlePlacement, Device, Node, Placement, Resources
from sweep.errors import ConfigError
from sweep.worker import environment
from sweep.worker.horovod_environment import horovod_variables
from sweep.worker.wire import GroupJob, Job, Rank, RankJob

__all__ = ["GroupSpec", "RankPlan", "group_job", "is_sharing_devices", "plan_ranks", "used_backend"]

RANK_VARIABLE = "SWEEP_RANK"
_HOST = "127.0.0.1"
_LOOPBACK = "lo"


@dataclass(frozen=True)
class GroupSpec:
    """What a group is, besides its placement.

    Attributes:
        framework: "torch", "jax", "tensorflow", "horovod" or "" (the ranks find each other by themselves).
        backend: of torch, as the user chose it; empty: nccl with GPUs, gloo without, or where ranks share GPUs.
        visibility: "share": every rank sees the GPUs of all ranks on its node, and `cuda:LOCAL_RANK` is its own;
            "isolate": it sees its own only, and `LOCAL_RANK` is 0 for it, so that the same holds.
        has_head: the first bundle of the request belongs to no rank.
        workers_per_slice: ranks on each TPU slice; 0: there are no slices.
        env: variables of the user's for every rank; they win over those that are only defaults.
        checkpoint: directory to start from when the trial has no checkpoint of its own; empty: from nothing.
        start_s, barrier_s, hang_s: see `core.group.Limits`.
    """

    framework: str = ""
    backend: str = ""
    visibility: str = "isolate"
    has_head: bool = False
    workers_per_slice: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    start_s: float = 300.0
    barrier_s: float = 300.0
    hang_s: float | None = None

    @property
    def num_ports(self) -> int:
        """Loopback ports that the ranks need; -1: one for each."""
        return {"torch": 1, "jax": 1, "horovod": 1, "tensorflow": -1}.get(self.framework, 0)

    @property
    def port_kind(self) -> str:
        """How the ports are kept for them, see `worker.rendezvous`."""
        return {"torch": "listening", "horovod": "listening", "tensorflow": "named"}.get(self.framework, "shared")


@dataclass(frozen=True)
class RankPlan:
    """One rank: who it is, what its environment is, and how many threads numeric libraries get."""

    rank: Rank
    variables: Mapping[str, str | None]
    num_threads: int


@dataclass(frozen=True)
class _Member:
    """A bundle that became a rank."""

    index: int  # of the bundle in the request
    place: BundlePlacement
    devices: tuple[Device, ...]

    @property
    def gpus(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind == "gpu")


def plan_ranks(
    resources: Resources,
    placement: Placement,
    spec: GroupSpec,
    *,
    nodes: Sequence[Node],
    environ: Mapping[str, str],
    trial_id: str,
    attempt: int,
    ports: Sequence[int] = (),
) -> tuple[RankPlan, ...]:
    """Return who each rank is and what it sees, in the order of the ranks.

    Ranks of one node are contiguous and ordered by their first GPU, so that `cuda:LOCAL_RANK` is a rank's own device
    when each has one, and `cuda:LOCAL_RANK*k` the first of its own when each has `k`. Ranks of one TPU slice are
    contiguous.

    Args:
        resources, placement: of the trial; the bundles after a head are the ranks'.
        nodes: the inventory.
        environ: the driver's own environment; what it sets is not overwritten by defaults.
        ports: on loopback: one for torch, jax and Horovod, one per rank for TensorFlow.

    Raises:
        ConfigError: NCCL was chosen and two ranks share a GPU.
    """
    members = _ordered(resources, placement, spec, nodes)
    user = {**environ, **spec.env}
    is_kept = user.get(environment.KEEP_DEVICES_VARIABLE) == "1"  # nothing is hidden: ranks see what the driver sees
    is_shared = is_kept or spec.visibility == "share"
    size = len(members)
    node_ids = list(dict.fromkeys(member.place.node for member in members))
    is_horovod = spec.framework == "horovod"
    local_sizes = [sum(member.place.node == node for member in members) for node in node_ids]
    backend = used_backend(resources, placement, spec)
    plans = []
    for number, member in enumerate(members):
        locals_ = [other for other in members if other.place.node == member.place.node]
        local_rank = locals_.index(member)
        here = [node for node in nodes if node.id == member.place.node]
        seen = _seen_gpus(locals_, here if is_kept else ()) if is_shared else list(member.gpus)
        bundle = resources.bundles[member.index]
        chips = [device for device in member.devices if device.kind == "tpu"]
        rank = Rank(
            rank=number,
            size=size,
            local_rank=local_rank,
            local_size=len(locals_),
            node_rank=node_ids.index(member.place.node),
            num_nodes=len(node_ids),
            devices=tuple(seen.index(device) for device in member.gpus),
            num_tpus=len(chips),
            port=ports[number if spec.framework == "tensorflow" else 0] if ports else 0,
            backend=backend,
        )
        threads = environment.num_threads(bundle, user)
        share = min((share for _, share in member.place.devices), default=1.0)
        soft = {**_rank_defaults(rank, member, backend, spec, user), **_slice_defaults(number, members, spec)}
        plans.append(
            RankPlan(
                rank,
                {
                    **spec.env,
                    **environment.thread_variables(threads, user),
                    **{name: value for name, value in soft.items() if name not in user},
                    **environment.visible_variables([*seen, *chips], here, user, share=share),
                    **_rank_variables(rank, spec, trial_id, attempt, is_shared, ports),
                    **(horovod_variables(rank, local_sizes, host=_HOST, interface=_LOOPBACK) if is_horovod else {}),
                },
                threads,
            )
        )
    return tuple(plans)


def group_job(
    job: Job, plans: Sequence[RankPlan], spec: GroupSpec, *, is_spawned: bool = False, log_limit_bytes: int
) -> GroupJob:
    """Return what a host is told of a group: what all ranks have in common, and each rank's own."""
    return GroupJob(
        job=job,
        ranks=tuple(RankJob(plan.rank, dict(plan.variables), plan.num_threads) for plan in plans),
        is_listening=spec.port_kind == "listening",
        is_spawned=is_spawned,
        log_limit_bytes=log_limit_bytes,
        start_s=spec.start_s,
        barrier_s=spec.barrier_s,
        hang_s=spec.hang_s,
    )


def is_sharing_devices(placement: Placement) -> bool:
    """Whether two bundles hold parts of one device."""
    held = [(bundle.node, device) for bundle in placement.bundles for device, _ in bundle.devices]
    return len(held) != len(set(held))


def used_backend(resources: Resources, placement: Placement, spec: GroupSpec) -> str:
    """Return torch's backend: the user's own, else nccl when every rank has GPUs of its own, else gloo.

    A request of shares that are to lie on one device means gloo wherever they came to lie: what a group talks by does
    not depend on what else was running.

    Raises:
        ConfigError: the user's own is NCCL and two ranks share a GPU, which NCCL refuses.
    """
    if spec.framework != "torch":
        return ""
    has_gpus = any(bundle.gpu for bundle in resources.bundles[spec.has_head :])
    is_sharing = is_sharing_devices(Placement(placement.bundles[spec.has_head :]))  # nobody talks to the head
    if not spec.backend:
        return "nccl" if has_gpus and not is_sharing and not resources.shared_devices else "gloo"
    if "nccl" in spec.backend and has_gpus and is_sharing:
        raise ConfigError(
            f"backend={spec.backend!r}, but workers of this group share a GPU, which NCCL refuses. Ask for whole GPUs, "
            "for fewer workers, or choose TorchConfig(backend='gloo')."
        )
    return spec.backend


def _ordered(resources: Resources, placement: Placement, spec: GroupSpec, nodes: Sequence[Node]) -> tuple[_Member, ...]:
    first = 1 if spec.has_head else 0
    positions = {(node.id, device.id): i for node in nodes for i, device in enumerate(node.devices)}
    members = [
        _Member(index, place, environment.held_devices([place], nodes))
        for index, place in enumerate(placement.bundles)
        if index >= first
    ]
    order = list(dict.fromkeys(member.place.node for member in members))

    def key(member: _Member) -> tuple[int, int, int, int]:
        run = (member.index - first) // spec.workers_per_slice if spec.workers_per_slice else 0
        own = [positions.get((member.place.node, device), 0) for device, _ in member.place.devices]
        return (run, order.index(member.place.node), min(own, default=0), member.index)

    return tuple(sorted(members, key=key))


def _seen_gpus(members: Sequence[_Member], nodes: Sequence[Node]) -> list[Device]:
    """Return all GPUs of some nodes and then those of some ranks, each once."""
    found = [device for node in nodes for device in node.devices if device.kind == "gpu"]
    return list(dict.fromkeys([*found, *(device for member in members for device in member.gpus)]))


def _rank_variables(
    rank: Rank, spec: GroupSpec, trial_id: str, attempt: int, is_shared: bool, ports: Sequence[int]
) -> dict[str, str | None]:
    """Return who the rank is, under the names that torchrun uses; other launchers and libraries read them."""
    is_virtual = bool(rank.devices) and not is_shared
    variables: dict[str, str | None] = {
        RANK_VARIABLE: str(rank.rank),
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(rank.size),
        "LOCAL_RANK": "0" if is_virtual else str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_size),
        "NODE_RANK": str(rank.node_rank),
        "GROUP_RANK": str(rank.node_rank),
        "GROUP_WORLD_SIZE": str(rank.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank.rank),
        "ROLE_WORLD_SIZE": str(rank.size),
    }
    if spec.framework == "torch":
        variables |= {
            "MASTER_ADDR": _HOST,
            "MASTER_PORT": str(rank.port),
            "TORCHELASTIC_RUN_ID": trial_id,
            "TORCHELASTIC_RESTART_COUNT": str(max(0, attempt - 1)),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
    elif spec.framework == "tensorflow":
        cluster = {"worker": [f"{_HOST}:{port}" for port in ports]}
        variables["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank.rank}})
    return variables


def _rank_defaults(
    rank: Rank, member: _Member, backend: str, spec: GroupSpec, user: Mapping[str, str]
) -> dict[str, str]:
    """Return variables that the user's own win over."""
    if spec.framework == "torch":
        device = f"cuda:{rank.devices[0]}" if rank.devices else "cpu"
        defaults = {"ACCELERATE_TORCH_DEVICE": device}
        if rank.num_nodes == 1:
            # On one machine nothing needs to be heard outside it.
            defaults |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), _LOOPBACK)
        if "nccl" in backend and "TORCH_NCCL_BLOCKING_WAIT" not in user:  # the user's other way to notice a failure
            defaults["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
        return defaults
    if spec.framework == "jax":
        gpus = "rocm" if any(device.vendor == "amd" for device in member.gpus) else "cuda"
        return {"JAX_PLATFORMS": "tpu" if rank.num_tpus else gpus if rank.devices else "cpu"}
    if spec.framework == "horovod" and rank.num_nodes == 1:
        return {"NCCL_SOCKET_IFNAME": _LOOPBACK}
    return {}


def _slice_defaults(number: int, members: Sequence[_Member], spec: GroupSpec) -> dict[str, str]:
    """Return the variables of a worker on TPU slices: its slice among several, its host among those of the slice."""
    if not spec.workers_per_slice:
        return {}
    run = number // spec.workers_per_slice
    variables = slice_variables(
        slice_id=run, num_slices=len(members) // spec.workers_per_slice, coordinator=members[0].place.node
    )
    own = members[number].place.node
    in_run = members[run * spec.workers_per_slice : (run + 1) * spec.workers_per_slice]
    hosts = list(dict.fromkeys(member.place.node for member in in_run))
    if len(hosts) > 1:
        variables |= identity_variables(hosts.index(own), hosts)
    return variables
