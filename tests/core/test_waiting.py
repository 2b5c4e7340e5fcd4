"""Who waits for resources, and what the oldest waiting trial may expect of the others."""

from __future__ import annotations

from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Device, Node, Resources
from sweep.core.waiting import PendingQueue

WHOLE = Resources((Bundle(gpu=2.0),))
SMALL = Resources((Bundle(gpu=1.0),))


def crowded(num_nodes: int) -> tuple[Packer, PendingQueue]:
    """Return nodes of two GPUs with a small trial on each, and a large trial that has seen many small ones pass."""
    packer, queue = (
        Packer([Node(f"n{i}", devices=(Device("g0"), Device("g1"))) for i in range(num_nodes)]),
        PendingQueue(),
    )
    for number in range(2 * num_nodes):
        packer.place(SMALL, (f"small_{number}", 1))
    for number in range(1, 2 * num_nodes, 2):
        packer.release((f"small_{number}", 1))
    queue.add("large", WHOLE)
    for number in range(16):
        queue.add(f"next_{number}", SMALL)
        assert queue.startable(packer) == ("large", [f"next_{number}"])
        queue.remove(f"next_{number}", SMALL)
        queue.overtook("large")
    queue.add("young", SMALL)
    return packer, queue


def test_a_node_is_kept_for_the_oldest_and_the_others_go_on_elsewhere():
    packer, queue = crowded(3)
    assert queue.startable(packer) == ("large", ["young"])
    elsewhere = [packer.place(SMALL, (f"other_{number}", 1)) for number in range(3)]
    assert [place is not None for place in elsewhere] == [True, True, False]
    assert queue.startable(packer) == ("large", [])
    (kept,) = {f"n{i}" for i in range(3)} - {place.bundles[0].node for place in elsewhere if place is not None}
    assert packer.release((f"small_{2 * int(kept[1:])}", 1))
    assert queue.startable(packer) == ("large", ["large"])
    found = packer.place(WHOLE, ("large", 1))
    assert found is not None
    assert found.bundles[0].node == kept


def test_nothing_starts_while_the_oldest_waits_for_the_only_node():
    packer, queue = crowded(1)
    assert queue.startable(packer) == ("large", ())
    assert packer.release(("small_0", 1))
    assert queue.startable(packer) == ("large", ["large", "young"])


def test_what_was_kept_is_open_to_all_when_the_oldest_is_gone():
    packer, queue = crowded(3)
    assert queue.startable(packer) == ("large", ["young"])
    queue.remove("large", WHOLE)
    assert queue.startable(packer) == ("young", ["young"])
    assert all(packer.place(SMALL, (f"other_{number}", 1)) is not None for number in range(3))
