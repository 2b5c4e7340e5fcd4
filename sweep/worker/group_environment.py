"""The environment of every rank of a training group, computed from its placement: pure, so every rule has a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep.accelerators.tpu import identity_variables, slice_variables
from sweep.core.resources import BundlePlacement, Device, Node, Placement, Resources
from sweep.errors import ConfigError
from sweep.worker import environment
from sweep.worker.wire import GroupJob, Job, Rank, RankJob

RANK_VARIABLE = "SWEEP_RANK"
LOOPBACK_ADDRESS = "127.0.0.1"
_LOOPBACK = "lo"

_Variables = tuple[dict[str, str | None], dict[str, str]]  # a rank's own, and defaults


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
        hang_s: see `core.group.Limits`.
    """

    framework: str = ""
    backend: str = ""
    visibility: str = "isolate"
    has_head: bool = False
    workers_per_slice: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    hang_s: float | None = None

    @property
    def num_ports(self) -> int:
        """Ports that the ranks need on rank 0's node; -1: one for each, on its own."""
        return _FRAMEWORKS[self.framework].num_ports

    @property
    def port_kind(self) -> str:
        """How the ports are kept for them, see `worker.rendezvous`."""
        return _FRAMEWORKS[self.framework].port_kind


@dataclass(frozen=True)
class _Member:
    """A bundle that became a rank."""

    index: int  # of the bundle in the request
    place: BundlePlacement
    devices: tuple[Device, ...]

    @property
    def node(self) -> str:
        return self.place.node

    def of(self, kind: str) -> list[Device]:
        return [device for device in self.devices if device.kind == kind]


@dataclass(frozen=True)
class _GroupFacts:
    """What all ranks of a group have in common; `user` holds the variables that win over defaults."""

    spec: GroupSpec
    trial_id: str
    attempt: int
    ports: Sequence[int]  # one, or one for each rank
    user: Mapping[str, str]
    members: Sequence[_Member]  # in the order of the ranks
    addresses: Mapping[str, str]  # of nodes
    interface: str

    @property
    def local_sizes(self) -> Counter[str]:
        """Ranks on each node, in the order in which the nodes come."""
        return Counter(member.node for member in self.members)

    @property
    def is_multi_node(self) -> bool:
        """Whether the ranks lie on several nodes."""
        return len(self.local_sizes) > 1

    def address(self, rank: int = 0) -> str:
        """Return the address at which the others reach a rank."""
        return (self.addresses.get(self.members[rank].node) if self.is_multi_node else "") or LOOPBACK_ADDRESS

    @property
    def used_interface(self) -> str:
        """The interface by which the ranks of this machine are reached."""
        return self.interface if self.is_multi_node else _LOOPBACK


def plan_ranks(
    resources: Resources,
    placement: Placement,
    spec: GroupSpec,
    *,
    nodes: Sequence[Node],
    environ: Mapping[str, str],
    trial_id: str,
    attempt: int,
    ports: Sequence[int] | Mapping[str, Sequence[int]] = (),
    interface: str = _LOOPBACK,
) -> tuple[RankJob, ...]:
    """Return what each rank is and what it sees, in the order of the ranks.

    Ranks of one TPU slice are contiguous. Those of one node are contiguous and ordered by their first GPU, so that
    `cuda:LOCAL_RANK` is a rank's own device when each has one, and `cuda:LOCAL_RANK*k` the first of its own when each
    has `k`.

    Args:
        resources, placement: of the trial; the bundles after a head are the ranks'.
        nodes: the inventory, at least those that the group lies on.
        environ: that of the machine on which this is computed; what it sets is not overwritten by defaults. Plans of
            ranks elsewhere are to be computed there: only their numbers are the same.
        ports: one of rank 0's node for torch, jax and Horovod, one per rank for TensorFlow; by node where the ranks lie
            on several machines.
        interface: that bears the address of the node on which this is computed.

    Raises:
        ConfigError: NCCL was chosen and two ranks share a GPU.
    """
    user = {**environ, **spec.env}
    members = _ordered(resources, placement, spec, nodes)
    addresses = {node.id: node.address for node in nodes}
    own_ports = _by_rank(ports, members)
    group = _GroupFacts(spec, trial_id, attempt, own_ports, user, members, addresses, interface)
    backend = _used_backend(resources, placement, spec)
    is_kept = user.get(environment.KEEP_DEVICES_VARIABLE) == "1"  # nothing is hidden: ranks see what the driver sees
    is_shared = is_kept or spec.visibility == "share"
    node_ids = list(group.local_sizes)
    plans = []
    for number, member in enumerate(group.members):
        locals_ = [other for other in group.members if other.node == member.node]
        here = [node for node in nodes if node.id == member.node]
        shown = [device for node in here for device in node.devices if device.kind == "gpu"] if is_kept else []
        own_gpus = [gpu for other in (locals_ if is_shared else [member]) for gpu in other.of("gpu")]
        seen = list(dict.fromkeys([*shown, *own_gpus]))
        rank = Rank(
            rank=number,
            size=len(group.members),
            local_rank=locals_.index(member),
            local_size=len(locals_),
            node_rank=node_ids.index(member.node),
            num_nodes=len(node_ids),
            devices=tuple(seen.index(device) for device in member.of("gpu")),
            num_tpus=len(member.of("tpu")),
            port=own_ports[number if spec.num_ports < 0 else 0] if own_ports else 0,
            backend=backend,
            address=group.address(),
        )
        threads = environment.num_threads(resources.bundles[member.index], user)
        share = min((share for _, share in member.place.devices), default=1.0)
        own, defaults = _FRAMEWORKS[spec.framework].variables(rank, group)
        defaults |= _slice_defaults(number, group)
        variables = {
            **spec.env,
            **environment.thread_variables(threads, user),
            **{name: value for name, value in defaults.items() if name not in user},
            **environment.visible_variables([*seen, *member.of("tpu")], here, user, share=share),
            # The one device that an isolated rank sees is the first, whatever its local rank.
            **_rank_variables(rank, rank.local_rank if is_shared or not rank.devices else 0),
            **own,
        }
        plans.append(RankJob(rank, variables, threads, member.node))
    return tuple(plans)


def nodes_of(placement: Placement, spec: GroupSpec) -> tuple[str, ...]:
    """Return the nodes that the ranks of a group lie on; the first is that of rank 0."""
    return tuple(dict.fromkeys(place.node for place in placement.bundles[spec.has_head :]))


def _by_rank(ports: Sequence[int] | Mapping[str, Sequence[int]], members: Sequence[_Member]) -> Sequence[int]:
    if not isinstance(ports, Mapping):
        return ports
    left = {node: list(numbers) for node, numbers in ports.items()}
    return [left[member.node].pop(0) for member in members if left.get(member.node)]


def group_job(
    job: Job,
    plans: Sequence[RankJob],
    spec: GroupSpec,
    *,
    is_spawned: bool = False,
    log_limit_bytes: int,
    node: str = "",
) -> GroupJob:
    """Return the message that starts a group on a node, or, where this machine is all nodes, everywhere."""
    return GroupJob(
        job=job,
        ranks=tuple(plan for plan in plans if node in ("", plan.node)),
        is_listening=spec.port_kind == "listening",
        is_spawned=is_spawned,
        log_limit_bytes=log_limit_bytes,
        hang_s=spec.hang_s,
        elsewhere=tuple((plan.rank.rank, plan.node) for plan in plans if node not in ("", plan.node)),
    )


def _used_backend(resources: Resources, placement: Placement, spec: GroupSpec) -> str:
    """Return torch's backend: the user's own, else nccl when every rank has GPUs of its own, else gloo. A request of
    shares that are to lie on one device means gloo wherever they came to lie, whatever else was running."""
    if spec.framework != "torch":
        return ""
    has_gpus = any(bundle.gpu for bundle in resources.bundles[spec.has_head :])
    ranks = placement.bundles[spec.has_head :]  # the head runs nothing
    held = [(bundle.node, device) for bundle in ranks for device, _ in bundle.devices]
    is_sharing = len(held) != len(set(held))
    if not spec.backend:
        return "nccl" if has_gpus and not is_sharing and not resources.shared_devices else "gloo"
    if "nccl" in spec.backend and has_gpus and is_sharing:
        raise ConfigError(
            f"backend={spec.backend!r}, but workers of this group share a GPU, which NCCL refuses. Ask for whole GPUs, "
            "for fewer workers, or choose TorchConfig(backend='gloo')."
        )
    return spec.backend


def _ordered(resources: Resources, placement: Placement, spec: GroupSpec, nodes: Sequence[Node]) -> tuple[_Member, ...]:
    first = int(spec.has_head)
    positions = {(node.id, device.id): i for node in nodes for i, device in enumerate(node.devices)}
    members = [
        _Member(index, place, environment.held_devices([place], nodes))
        for index, place in enumerate(placement.bundles[first:], first)
    ]
    order = list(dict.fromkeys(member.node for member in members))

    def key(member: _Member) -> tuple[int, int, int, int]:
        run = (member.index - first) // spec.workers_per_slice if spec.workers_per_slice else 0
        own = [positions.get((member.node, device), 0) for device, _ in member.place.devices]
        return (run, order.index(member.node), min(own, default=0), member.index)

    return tuple(sorted(members, key=key))


def _slice_defaults(number: int, group: _GroupFacts) -> dict[str, str]:
    """Return the variables of a worker on TPU slices: its slice among several, its host among those of the slice."""
    size, members = group.spec.workers_per_slice, group.members
    if not size:
        return {}
    run = number // size
    variables = slice_variables(slice_id=run, num_slices=len(members) // size, coordinator=group.address())
    hosts = list(dict.fromkeys(member.node for member in members[run * size : (run + 1) * size]))
    if len(hosts) > 1:
        names = [group.addresses.get(host) or host for host in hosts]
        variables |= identity_variables(hosts.index(members[number].node), names)
    return variables


def _rank_variables(rank: Rank, local_rank: int) -> dict[str, str | None]:
    """Return a rank's numbers under the names that torchrun uses; other launchers and libraries read them."""
    return {
        **dict.fromkeys((RANK_VARIABLE, "RANK", "ROLE_RANK"), str(rank.rank)),
        **dict.fromkeys(("WORLD_SIZE", "ROLE_WORLD_SIZE"), str(rank.size)),
        **dict.fromkeys(("NODE_RANK", "GROUP_RANK"), str(rank.node_rank)),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_size),
        "GROUP_WORLD_SIZE": str(rank.num_nodes),
        "ROLE_NAME": "default",
    }


def _torch(rank: Rank, group: _GroupFacts) -> _Variables:
    defaults = {"ACCELERATE_TORCH_DEVICE": f"cuda:{rank.devices[0]}" if rank.devices else "cpu"}
    # On one machine nothing needs to listen outside it.
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    if group.used_interface:
        defaults |= dict.fromkeys(names, group.used_interface)
    # The other variable is another way to notice a failure, of the user's choice.
    if "nccl" in rank.backend and "TORCH_NCCL_BLOCKING_WAIT" not in group.user:
        defaults["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    return {
        "MASTER_ADDR": group.address(),
        "MASTER_PORT": str(rank.port),
        "TORCHELASTIC_RUN_ID": group.trial_id,
        "TORCHELASTIC_RESTART_COUNT": str(max(0, group.attempt - 1)),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }, defaults


def _jax(rank: Rank, group: _GroupFacts) -> _Variables:
    gpus = "rocm" if any(device.vendor == "amd" for device in group.members[rank.rank].of("gpu")) else "cuda"
    return {}, {"JAX_PLATFORMS": "tpu" if rank.num_tpus else gpus if rank.devices else "cpu"}


def _tensorflow(rank: Rank, group: _GroupFacts) -> _Variables:
    cluster = {"worker": [f"{group.address(number)}:{port}" for number, port in enumerate(group.ports)]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank.rank}})}, {}


def _horovod(rank: Rank, group: _GroupFacts) -> _Variables:
    """Return what `horovodrun` gives to a rank. Every one but the interface between machines replaces the user's own,
    which are those of another group. Horovod tells the ranks of nodes apart by the names of these."""
    # Horovod's third communicator: the ranks with one local rank, one on each node that has so many.
    peers = [node for node, size in enumerate(group.local_sizes.values()) if size > rank.local_rank]
    host, own_interface = "localhost", ""
    if group.is_multi_node:
        own_interface = group.user.get("HOROVOD_GLOO_IFACE", "")
        host = group.addresses.get(group.members[rank.rank].node) or f"localhost-{rank.node_rank}"
    return {
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(rank.size),
        "HOROVOD_LOCAL_RANK": str(rank.local_rank),
        "HOROVOD_LOCAL_SIZE": str(rank.local_size),
        "HOROVOD_CROSS_RANK": str(peers.index(rank.node_rank)),
        "HOROVOD_CROSS_SIZE": str(len(peers)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": group.address(),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(rank.port),
        "HOROVOD_GLOO_IFACE": own_interface or group.used_interface or None,
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_ELASTIC": None,  # it would ask the server for what only Horovod's own driver knows
    }, {"NCCL_SOCKET_IFNAME": group.used_interface} if group.used_interface else {}


class _Framework(NamedTuple):
    """How the ranks of a framework find each other; `variables`: a rank's own, and those that the user's win over."""

    num_ports: int = 0
    port_kind: str = "shared"
    variables: Callable[[Rank, _GroupFacts], _Variables] = lambda rank, group: ({}, {})


_FRAMEWORKS = {
    "": _Framework(),
    "torch": _Framework(1, "listening", _torch),
    "jax": _Framework(1, "shared", _jax),
    "tensorflow": _Framework(-1, "named", _tensorflow),
    "horovod": _Framework(1, "listening", _horovod),
}
