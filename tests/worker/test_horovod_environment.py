"""Who a Horovod rank is where the nodes of its group hold different numbers of ranks."""

from __future__ import annotations

from sweep.worker.horovod_environment import horovod_variables
from sweep.worker.wire import Rank


def test_ranks_with_one_local_rank_are_counted_across_the_nodes_that_have_it():
    sizes = (2, 1, 3)
    ranks = [
        Rank(0, 6, local_rank=local, local_size=size, node_rank=node, num_nodes=3, port=5)
        for node, size in enumerate(sizes)
        for local in range(size)
    ]
    told = [horovod_variables(rank, sizes, host="127.0.0.1", interface="lo") for rank in ranks]
    assert [(one["HOROVOD_LOCAL_RANK"], one["HOROVOD_LOCAL_SIZE"]) for one in told] == [
        ("0", "2"),
        ("1", "2"),
        ("0", "1"),
        ("0", "3"),
        ("1", "3"),
        ("2", "3"),
    ]
    assert [(one["HOROVOD_CROSS_RANK"], one["HOROVOD_CROSS_SIZE"]) for one in told] == [
        ("0", "3"),
        ("0", "2"),
        ("1", "3"),
        ("2", "3"),
        ("1", "2"),
        ("0", "1"),
    ]
    names = ["localhost-0", "localhost-0", "localhost-1", *["localhost-2"] * 3]
    assert [one["HOROVOD_HOSTNAME"] for one in told] == names
