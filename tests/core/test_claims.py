"""What other sweeps of the machine hold: what starts all the same, what waits and says why, what is taken back."""

from __future__ import annotations

import json

import pytest
from core_world import World, cpus, tid

from sweep.core.claims import Claim
from sweep.core.messages import (
    Ask,
    ClaimsChanged,
    CloneTrial,
    Declined,
    ExitKind,
    NodesChanged,
    PauseTrial,
    ResizeTrial,
    StopTrial,
)
from sweep.core.packing import Packer
from sweep.core.resources import UNIT, Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.trial import Status
from sweep.record.codec import encode_event, event_of

GPU = Resources((Bundle(cpu=1, gpu=1),))
HALF = Resources((Bundle(gpu=0.5),))
TWO = Resources((Bundle(cpu=1, gpu=2),))
NODE = Node("local", cpus=8, devices=(Device("0"), Device("1")))


def digits(*devices: str, cpu: float = 0, share: float = 1, **more) -> Claim:
    return Claim(
        "digits",
        123,
        (
            *([("local", "cpu", "", int(cpu * UNIT))] if cpu else []),
            *(("local", "gpu", device, int(share * UNIT)) for device in devices),
        ),
        **more,
    )


def shared(*claims: Claim, **plan) -> World:
    world = World(**{"nodes": (NODE,), "num_trials": 4, "ask_ahead": 4, **plan})
    world.open()
    world.tell(ClaimsChanged(claims))
    return world


def devices_of(world: World, number: int) -> tuple[str, ...]:
    return world[number].placement.devices


def test_of_two_gpus_the_one_that_no_other_sweep_holds_is_used_at_once():
    world = shared(digits("0"))
    assert world.suggest(0, GPU) == ["start 0.1"]
    assert devices_of(world, 0) == ("1",)
    assert world.sweep.wanted is None


def test_a_sweep_of_which_others_hold_everything_waits_and_says_for_whom():
    world = shared(digits("0", "1"))
    for number in range(4):
        assert world.suggest(number, GPU) == []
    assert world.failure is None
    assert not world.sweep.done
    assert world[0].status is Status.PENDING
    assert world[0].reason == (
        "waits for gpu=1; 0 of 2 free; GPU 0 and GPU 1 are held by experiment 'digits' (pid 123)"
    )
    assert world.sweep.wanted == GPU
    assert world.tell(ClaimsChanged((digits("1"),))) == ["start 0.1"]
    assert world[0].reason == ""
    assert world.tell(ClaimsChanged(())) == ["start 1.1"]
    assert world.sweep.wanted is None, "what waits now waits for its own"
    assert "held by 00000, 00001" in world[2].reason
    assert "experiment" not in world[2].reason


def test_the_reason_names_who_holds_it_by_now():
    world = shared(digits("0", "1"))
    world.suggest(0, GPU)
    world.tell(ClaimsChanged((Claim("letters", 7, (("local", "gpu", "0", UNIT), ("local", "gpu", "1", UNIT // 2))),)))
    assert world[0].reason.endswith("GPU 0 and 0.5 of GPU 1 are held by experiment 'letters' (pid 7)")


def test_a_resumed_sweep_does_not_name_who_held_it_before():
    before = shared(digits("0", "1"), num_trials=2, ask_ahead=2)
    before.suggest(0, TWO)
    before.suggest(1, TWO)
    assert "digits" in before[0].reason
    world = World(nodes=(NODE,), trials=list(before.sweep.trials.values()), num_trials=2)
    assert world.open() == ["start 0.1"]
    assert world[1].reason == "waits for gpu=2; 0 of 2 free, the rest held by 00000"


def test_own_trials_and_other_sweeps_are_both_named():
    world = shared(digits("0"))
    world.suggest(0, GPU)
    world.suggest(1, GPU)
    assert world[1].reason == (
        "waits for gpu=1; 0 of 2 free, some held by 00000; GPU 0 is held by experiment 'digits' (pid 123)"
    )


def test_shares_of_two_sweeps_lie_on_one_device():
    world = shared(digits("0", share=0.5), digits("1"))
    assert world.suggest(0, HALF) == ["start 0.1"]
    assert devices_of(world, 0) == ("0",)
    assert world.suggest(1, HALF) == []


def test_a_request_that_never_fits_beside_others_waits_and_is_not_called_impossible():
    world = shared(digits("0"), num_trials=1)
    assert world.suggest(0, TWO) == []
    assert world[0].status is Status.PENDING
    assert world.tell(ClaimsChanged(())) == ["start 0.1"]


def test_what_a_longer_waiting_sweep_wants_is_left_to_it_and_the_rest_is_used():
    wants = (("local", "cpu", "", 6 * UNIT), ("local", "gpu", "", 1))
    world = shared(digits(wants=wants), num_trials=8, ask_ahead=8)
    assert [line for number in range(3) for line in world.suggest(number, GPU)] == ["start 0.1"]
    assert "experiment 'digits' (pid 123) has waited longer for gpu=1" in world[1].reason
    assert world.suggest(3) == ["start 3.1"], "8 CPUs less 6 and 1"
    assert world.suggest(4) == []
    assert world.sweep.wanted == GPU
    world.ended(0, ExitKind.FINISHED)
    assert world[1].status is Status.STARTING, "two GPUs are free, and one is promised"
    assert world.tell(ClaimsChanged(())) == ["start 2.1", "start 4.1"]


def test_a_gpu_that_is_given_back_goes_to_the_sweep_that_waits_for_two():
    world = shared(digits("0"), num_trials=2, ask_ahead=2)
    world.suggest(0, GPU)
    world.suggest(1, GPU)
    world.tell(ClaimsChanged((digits("0", wants=(("local", "gpu", "", 2),)),)))
    assert "start 1.1" not in world.ended(0, ExitKind.FINISHED)
    assert world.tell(ClaimsChanged((digits("0", "1"),))) == []
    assert world.tell(ClaimsChanged(())) == ["start 1.1"]


def test_tpu_chips_are_all_kept_for_a_block_that_another_waits_for():
    node = Node("local", cpus=8, devices=tuple(Device(f"tpu{i}", "tpu") for i in range(8)))
    packer = Packer((node,))
    packer.set_others([Claim("digits", 123, wants=(("local", "tpu", "", 4),))])
    assert packer.place(Resources((Bundle(tpu=1),)), ("a", 1)) is None
    assert packer.place(Resources((Bundle(cpu=1),)), ("b", 1)) is not None
    packer.set_others([])
    assert packer.place(Resources((Bundle(tpu=8),)), ("c", 1)) is not None, "what was kept back is whole again"


def test_of_types_only_the_one_that_is_waited_for_is_kept():
    node = Node("local", 8, devices=(Device("0", type="A100"), Device("1", type="L4")))
    packer = Packer((node,))
    packer.set_others([Claim("digits", 123, wants=(("local", "gpu", "A100", 1),))])
    assert packer.place(GPU, ("a", 1)).devices == ("1",)


NODES = tuple(Node(name, cpus=4, devices=(Device("0"),)) for name in ("a", "b", "c"))


def held_on(*nodes: str, cpu: float = 0, **more) -> Claim:
    return Claim(
        "digits",
        123,
        (
            *((node, "cpu", "", int(cpu * UNIT)) for node in nodes if cpu),
            *((node, "gpu", "0", UNIT) for node in nodes),
        ),
        **more,
    )


def test_of_several_nodes_those_are_used_that_other_sweeps_leave_and_the_wait_names_the_others():
    packer = Packer(NODES)
    packer.set_others([held_on("a"), held_on("b", wants=(("c", "cpu", "", 2 * UNIT),))])
    assert packer.place(GPU, ("t_1", 1)).bundles[0].node == "c"
    assert not packer.fits_now(GPU)
    assert packer.waits_for_others(GPU)
    assert "waits for gpu=1; 0 of 3 free, some held by 1; GPU a:0 is held by experiment 'digits'" in packer.why_not(GPU)
    assert packer.place(cpus(2), ("t_2", 1)).bundles[0].node != "c", "what is left there is promised"
    packer.set_others([])
    assert packer.fits_now(GPU)
    assert not packer.waits_for_others(GPU)


def test_nodes_that_come_back_are_without_what_others_hold_there():
    packer = Packer(NODES[:1], away=NODES[1:])
    packer.set_others([held_on("a", "b")])
    assert not packer.fits_now(GPU)
    packer.set_nodes(NODES)
    assert packer.place(GPU, ("t_1", 1)).bundles[0].node == "c"
    packer.set_others([])
    assert [packer.place(GPU, (f"t_{number}", 1)).bundles[0].node for number in (2, 3)] == ["a", "b"]


def test_a_trial_that_waits_for_nodes_to_come_does_not_wait_for_other_sweeps():
    world = shared(num_trials=2, ask_ahead=2)
    away = (Node("b", cpus=8, devices=(Device("0"), Device("1"), Device("2"))),)
    world.tell(NodesChanged((NODE,), away), ClaimsChanged((digits("0", "1"),)))
    world.suggest(0, Resources((Bundle(gpu=3),)))
    assert world.sweep.wanted is None
    assert world[0].reason.startswith("waits for")
    assert "digits" not in world[0].reason
    world.suggest(1, GPU)
    assert world.sweep.wanted == GPU


def test_of_the_nodes_that_are_kept_for_the_oldest_trial_none_is_another_sweep_s():
    packer = Packer(NODES)
    packer.set_others([held_on("a", cpu=1)])
    for number, cpu in enumerate((1, 2)):  # on b and c, c is emptier than b
        packer.hold(cpus(cpu), Placement((BundlePlacement("cb"[number]),)), (f"t_{number}", 1))
    whole = Resources((Bundle(cpu=4),))
    assert packer.keep_room(whole)
    assert packer._capacity.kept == {"c"}
    packer.set_others([held_on("b", "c", cpu=1)])
    assert packer.keep_room(whole)
    assert packer._capacity.kept == {"a"}


# --- a start for which another sweep was faster -----------------------------------------------------------------------


def test_a_declined_start_is_taken_back_and_the_trial_waits_in_its_old_place():
    world = shared(num_trials=3, ask_ahead=3)
    world.suggest(0, GPU)
    world.suggest(1, GPU)
    world.suggest(2, GPU)
    ticket = world[0].ticket
    assert world.tell(ClaimsChanged((digits("0", "1"),)), Declined(tid(0), 1), Declined(tid(1), 1)) == []
    for number in (0, 1, 2):
        assert world[number].status is Status.PENDING
        assert (world[number].attempt, world[number].losses, world[number].failures) == (0, 0, 0)
        assert world[number].placement is None
    assert world[0].ticket == ticket
    assert not world.packer.holders
    assert world.tell(ClaimsChanged((digits("1"),))) == ["start 0.1"]
    assert world.tell(ClaimsChanged(())) == ["start 1.1"]


def test_a_declined_start_goes_at_once_where_there_is_room():
    world = shared(num_trials=1)
    world.suggest(0, GPU)
    assert devices_of(world, 0) == ("0",)
    assert world.tell(ClaimsChanged((digits("0"),)), Declined(tid(0), 1)) == ["start 0.1"]
    assert devices_of(world, 0) == ("1",)
    world.started(0)
    assert world[0].status is Status.RUNNING


def test_a_second_attempt_that_is_declined_is_still_the_second():
    world = shared(num_trials=1, max_failures=1)
    world.run(0, GPU)
    assert "start 0.2" in world.ended(0, ExitKind.FAILED, "boom")
    world.tell(ClaimsChanged((digits("0", "1"),)), Declined(tid(0), 2))
    assert (world[0].attempt, world[0].failures) == (1, 1)
    assert world.tell(ClaimsChanged(())) == ["start 0.2"]


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        (StopTrial(tid(1)), Status.TERMINATED),
        (PauseTrial(tid(1)), Status.PENDING),
        (CloneTrial(tid(1), tid(0), {"x": 9}), Status.PENDING),
        (ResizeTrial(tid(1), cpus(2)), Status.STARTING),
    ],
)
def test_what_was_decided_of_a_start_that_is_declined_comes_to_be(decision, status):
    world = shared(num_trials=2, ask_ahead=2)
    world.run(0, GPU)
    world.report(0, checkpoint="c")
    world.suggest(1, GPU)
    world.report(0, decisions=[decision])
    world.tell(ClaimsChanged((digits("1"),)), Declined(tid(1), 1))
    assert world[1].status is status
    assert {holder for holder, _ in world.packer.holders} == {tid(0)} | (
        {tid(1)} if status is Status.STARTING else set()
    )
    if isinstance(decision, CloneTrial):
        assert world[1].config == {"x": 9}
        assert world[1].checkpoint.path == "c"


def test_a_start_that_is_declined_after_an_interrupt_can_be_resumed():
    world = shared(num_trials=1)
    world.suggest(0, GPU)
    assert world.ask(Ask.INTERRUPT) == ["kill 0.1"]
    world.tell(ClaimsChanged((digits("0"),)), Declined(tid(0), 1))
    assert world[0].status is Status.PENDING
    assert world.sweep.done
    assert world.sweep.wanted is None


def test_a_word_of_an_attempt_that_is_over_or_never_was_changes_nothing():
    world = shared(num_trials=1, max_failures=1)
    world.run(0, GPU)
    world.ended(0, ExitKind.FAILED)
    assert world.tell(Declined(tid(0), 1), Declined("nobody_00099", 1)) == []
    assert world[0].status is Status.STARTING


# --- asking ----------------------------------------------------------------------------------------------------------


def test_a_searcher_that_is_asked_one_by_one_is_asked_when_others_give_back():
    world = shared(digits(cpu=7), num_trials=4, ask_ahead=1)
    world.run(0)
    assert world.sweep.wanted == cpus(1)
    assert world.tell(ClaimsChanged(())) == ["suggest 1"]


def test_a_sweep_that_is_to_end_looks_out_for_nothing():
    world = shared(digits("0", "1"), num_trials=1)
    world.suggest(0, GPU)
    world.ask(Ask.DRAIN)
    assert world.sweep.wanted is None
    assert world.sweep.done


def test_a_new_inventory_leaves_to_others_what_they_hold():
    world = shared(digits("0", "1"), num_trials=1)
    world.suggest(0, GPU)
    more = Node("local", cpus=8, devices=(*NODE.devices, Device("2")))
    assert world.tell(NodesChanged((more,))) == ["start 0.1"]
    assert devices_of(world, 0) == ("2",)


# --- the record ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        ClaimsChanged(()),
        ClaimsChanged((digits("0", cpu=1.5, wants=(("local", "gpu", "A100", 2),)),)),
        Declined(tid(3), 2),
    ],
)
def test_facts_of_claims_come_back_from_the_record_as_they_were(event):
    data = json.loads(encode_event(event, 0.0, 0.0, None))
    assert event_of(data, getattr(event, "trial_id", None)) == event
