"""The packer keeps an index of many nodes: it answers what one answers that has looked at nothing before."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packing_worlds import gpu_node_lists, gpu_requests, node_lists, requests, slice_node_lists, slice_requests

from sweep.core.claims import Claim
from sweep.core.packing import Packer
from sweep.core.resources import STRATEGIES, UNIT, Bundle, BundlePlacement, Device, Node, Placement, Resources


@st.composite
def inventories(draw):
    """Several nodes, of which some may have gone and others come, once or twice."""
    kind = draw(st.sampled_from(["any", "any", "slices", "gpus", "alike", "alike"]))
    if kind == "alike":  # as in a cluster: the order among equals counts
        cpus, gpus = draw(st.sampled_from([2, 4])), tuple(Device(f"g{i}") for i in range(draw(st.sampled_from([2, 4]))))
        nodes = [Node(f"n{i}", cpus, devices=gpus) for i in range(draw(st.integers(2, 6)))]
    else:
        of = {"any": node_lists(largest=6), "slices": slice_node_lists(), "gpus": gpu_node_lists()}
        nodes = draw(of[kind])
    pool = slice_requests() if kind == "slices" else gpu_requests() if kind == "gpus" else clustered()
    return nodes, draw(st.lists(pool | requests(), min_size=1, max_size=5))


@st.composite
def clustered(draw):
    """What trials of a cluster ask for: one size, or several times the same, perhaps behind a head."""
    gpu = draw(st.sampled_from([0, 0.25, 0.5, 1, 1, 2, 4]))
    part = Bundle(cpu=draw(st.sampled_from([0, 0.5, 1])) or (0 if gpu else 1), gpu=gpu)
    head = draw(st.sampled_from([(), (), (), (Bundle(),), (Bundle(cpu=1),)]))
    distinct, shared = draw(st.sampled_from([(False, False)] * 3 + [(True, False), (False, True)]))
    alone, strategy = draw(st.sampled_from([False, False, False, True])), draw(st.sampled_from(STRATEGIES))
    number = draw(st.sampled_from([1, 1, 2, 3, 4, 6]))
    return Resources((*head, *[part] * number), strategy, distinct, alone=alone, shared_devices=shared)


ACTS = [*["place"] * 4, *["release"] * 3, "nodes", "hold", *["keep"] * 2, *["others"] * 2]
scripts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0)), max_size=24)


def changed(nodes: list[Node], number: int) -> list[Node]:
    """Return another inventory: a node gone, one more, the others in another order, or a smaller node."""
    way, which = number % 4, number // 4 % len(nodes)
    if way == 0:
        return [node for index, node in enumerate(nodes) if index != which or len(nodes) == 1]
    if way == 1:
        taken = {node.id for node in nodes}
        name = next(f"n{i}" for i in itertools.count() if f"n{i}" not in taken)
        return [*nodes, Node(name, 4, devices=(Device("g0"), Device("g1")))]
    if way == 2:
        return nodes[which:] + nodes[:which]
    node = nodes[which]
    return [*nodes[:which], Node(node.id, node.cpus / 2, devices=node.devices[:1]), *nodes[which + 1 :]]


def claims_on(nodes: list[Node], number: int) -> list[Claim]:
    """Return what other sweeps hold and want on some nodes, and on one that is not there."""
    rng = random.Random(number)
    claims = []
    for pid in range(rng.choice([0, 1, 1, 2])):
        some = [node for node in nodes if rng.random() < 0.5]
        devices = [(node, device) for node in some for device in node.devices if rng.random() < 0.4]
        named = [*[node.id for node in some], "elsewhere"]
        of_types = [(node, device.type) for node, device in devices] or [(nodes[0], "")]
        wants = [(name, "cpu", "", rng.choice([UNIT // 2, UNIT])) for name in named if rng.random() < 0.3]
        for node, of_type in rng.choices(of_types, k=rng.choice([0, 0, 1, 2])):
            wants.append((node.id, rng.choice(["gpu", "gpu", "tpu"]), rng.choice(["", of_type]), rng.choice([1, 2])))
        claims.append(
            Claim(
                "other",
                pid,
                (
                    *((name, rng.choice(["cpu", "slot"]), "", rng.choice([UNIT // 2, UNIT])) for name in named),
                    *((node.id, device.kind, device.id, rng.choice([UNIT // 2, UNIT])) for node, device in devices),
                ),
                tuple(wants),
            )
        )
    return claims


def fresh(packer: Packer) -> Packer:
    """Return a packer that was told what there is and what is held only now."""
    again = Packer(packer.nodes)
    for holder, held in packer._held.items():
        again.hold(*held, holder)
    again.set_others(packer.others)
    again._capacity.keep(packer._capacity.kept, packer._capacity.kept_for)
    return again


def play(nodes: list[Node], asked: list[Resources], script: list[tuple[str, int]]) -> None:
    """Let one packer do everything, and others, which know nothing of before, one thing each; compare the answers."""
    packer = Packer(nodes)
    held: list[tuple[str, int]] = []
    for step, (act, number) in enumerate(script):
        resources, holder = asked[number % len(asked)], (f"t_{step:05d}", 1)
        match act:
            case "place":
                expected = fresh(packer).place(resources, holder)
                assert packer.fits_now(resources) is (expected is not None), (step, resources)
                assert packer.place(resources, holder) == expected, (step, resources)
                held += [holder] if expected is not None else []
            case "hold" if not resources.alone:  # as if it had been placed before its nodes shrank
                packer.hold(resources, Placement((BundlePlacement(nodes[0].id),) * len(resources.bundles)), holder)
                held.append(holder)
            case "release" if held:
                assert packer.release(held.pop(number % len(held)))
            case "nodes":
                nodes = changed(nodes, number)
                packer.set_nodes(nodes)
            case "keep":
                packer.keep_room(resources if number % 3 else None)
            case "others":
                packer.set_others(claims_on(nodes, number))
        for request in asked if step % 3 == 2 else ():
            for ask in (Packer.fits_now, Packer.could_ever_fit, Packer.waits_for_others, Packer.why_not):
                assert ask(packer, request) == ask(fresh(packer), request), (step, request)


ONE = Bundle(cpu=1.0, gpu=1.0)


@settings(max_examples=60, deadline=None)
@given(inventories(), scripts)
@example(  # a gang that is alone is closed to others as soon as it is placed, and no longer
    ([Node(f"n{i}", 4, devices=(Device("g0"),)) for i in range(3)], [Resources((ONE,) * 2, alone=True), Resources()]),
    [("place", 1), ("place", 0), ("place", 1), ("release", 1), ("place", 1)],
)
def test_every_answer_is_that_of_a_packer_that_knows_nothing_of_before(world, script):
    play(*world, script)


@pytest.mark.slow
@settings(max_examples=6000, deadline=None)
@given(inventories(), scripts)
def test_every_answer_is_that_of_a_packer_that_knows_nothing_of_before_for_long(world, script):
    play(*world, script)
