"""What `horovodrun` would tell a rank, computed from where the ranks lie: pure."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.worker.wire import Rank

__all__ = ["horovod_variables"]


def horovod_variables(rank: Rank, local_sizes: Sequence[int], *, host: str, interface: str) -> dict[str, str | None]:
    """Return the variables from which `hvd.init()` learns who a rank is and where it meets the others.

    Every one replaces the user's own: they belong together, and a driver that stands in a `horovodrun` has those of
    another group. Nodes have names of their own, by which Horovod tells their ranks apart; all are this machine.

    Args:
        local_sizes: ranks on each node, in the order of the nodes.
        host, interface: where the group's server listens, and where its ranks talk.
    """
    # Horovod's third communicator: the ranks with one local rank, one on each node that has so many.
    peers = [node for node, size in enumerate(local_sizes) if size > rank.local_rank]
    return {
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(rank.size),
        "HOROVOD_LOCAL_RANK": str(rank.local_rank),
        "HOROVOD_LOCAL_SIZE": str(rank.local_size),
        "HOROVOD_CROSS_RANK": str(peers.index(rank.node_rank)),
        "HOROVOD_CROSS_SIZE": str(len(peers)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(rank.port),
        "HOROVOD_GLOO_IFACE": interface,
        "HOROVOD_HOSTNAME": "localhost" if len(local_sizes) == 1 else f"localhost-{rank.node_rank}",
        "HOROVOD_ELASTIC": None,  # it would ask the server for what only Horovod's own driver knows
    }
