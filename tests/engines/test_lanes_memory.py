"""Lanes for which memory does not suffice: halved at a step, declined at the beginning, and nothing is lost."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import sweep
from sweep.errors import CheckpointError
from sweep.lanes.batch import NoRoom, Pool
from sweep.lanes.functions import config_of
from sweep.lanes.program import Program


class Scarce(Program):
    """Arrays of numpy, with memory for so many lanes; what the user writes is of all lanes at once."""

    most_begin: ClassVar[int] = 1000
    most_step: ClassVar[int] = 1000

    def begin(self, seeds, numbers, mask):
        self._take_memory(len(seeds), self.most_begin)
        return self.init(config_of(numbers, {}), key=seeds)[0]

    def advance(self, states, numbers, seeds, counts):
        self._take_memory(len(seeds), self.most_step)
        return self.step(config_of(numbers, {}), state=states)[0]

    def choose(self, mask, new, old):
        return {name: np.where(mask, array, old[name]) for name, array in new.items()}

    def to_host(self, states):
        return dict(states)

    def from_host(self, arrays, like):
        return dict(arrays)

    def leaves(self, tree):
        return []

    def _take_memory(self, number, most):
        if number > most:
            raise MemoryError(f"{number} lanes")


class NoneToBegin(Scarce):
    most_begin = 5


class NoneToStep(Scarce):
    most_step = 3


class Sums(sweep.VectorTrainable):
    framework: Any = Scarce
    num_lanes = 16

    def init(self, key, config):
        return {"sum": config["x"] * 100.0}

    def step(self, state, x):
        total = state["sum"] + x
        return {"sum": total}, {"sum": total}


def entered(program, number):
    pool = Pool(Sums(), program, {}, 16)
    seats = [pool.enter({"x": x}, x) for x in range(number)]
    return seats, seats[0].group


def test_a_step_without_memory_is_made_in_parts_of_half_the_lanes_and_loses_nothing():
    seats, group = entered(Scarce, 13)
    assert group.settle() == {}
    assert group.advance() == {seat: {"sum": 101.0 * x} for x, seat in enumerate(seats)}
    group.program.most_step = 3
    for count in (2, 3):
        assert group.advance() == {seat: {"sum": (100.0 + count) * x} for x, seat in enumerate(seats)}
        assert [seat.count for seat in seats] == [count] * 13
        assert [float(seat.arrays()["sum"]) for seat in seats] == [(100.0 + count) * x for x in range(13)]
    assert group.most == 2
    assert {len(batch.seats) for batch in group.batches} == {2}


def test_those_that_find_no_memory_at_the_beginning_are_declined():
    seats, group = entered(NoneToBegin, 13)
    declined = group.settle()
    assert {type(error) for error in declined.values()} == {NoRoom}
    assert set(declined) == set(seats[4:])
    assert group.advance() == {seat: {"sum": 101.0 * x} for x, seat in enumerate(seats[:4])}


def test_a_checkpoint_that_does_not_fit_is_an_error_where_others_find_no_memory_too():
    seats, group = entered(NoneToBegin, 13)
    seats[1].restored = {"sum": np.zeros(3)}
    wrong = group.settle()
    assert {seat: type(error) for seat, error in wrong.items()} == {
        seats[1]: CheckpointError,
        **dict.fromkeys(seats[4:], NoRoom),
    }


def test_those_that_run_go_on_where_others_find_no_memory_to_begin():
    seats, group = entered(NoneToBegin, 4)
    assert group.settle() == {}
    group.advance()
    late = [group.enter(x, seats[0].numbers) for x in range(3)]
    assert set(group.settle()) == set(late)
    assert group.advance() == {seat: {"sum": 102.0 * x} for x, seat in enumerate(seats)}


def test_one_lane_for_which_there_is_no_memory_is_an_error():
    _, group = entered(type("Tiny", (Scarce,), {"most_begin": 0}), 3)
    with pytest.raises(MemoryError, match="1 lanes"):
        group.settle()
    _, group = entered(type("Tiny", (Scarce,), {"most_step": 0}), 3)
    assert group.settle() == {}
    with pytest.raises(MemoryError, match="1 lanes"):
        group.advance()


@pytest.mark.parametrize(("program", "most"), [(NoneToStep, 2), pytest.param(NoneToBegin, 4, marks=pytest.mark.slow)])
def test_all_trials_of_a_sweep_finish_with_fewer_lanes_and_it_says_so(program, most, tmp_path, caplog, capfd):
    analysis = sweep.run(
        type("Few", (Sums,), {"framework": program}),
        config={"x": sweep.grid_search(list(range(24)))},
        stop={"training_iteration": 4},
        engine="lanes",
        nodes=[sweep.Node("local", cpus=1)],
        storage_path=str(tmp_path),
        verbose=1,
        log_to_file=True,
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert sorted(trial.last_result["sum"] for trial in analysis.trials) == [104.0 * x for x in range(24)]
    assert {trial.last_result["training_iteration"] for trial in analysis.trials} == {4}
    assert {trial.num_failures for trial in analysis.trials} == {0}
    said = caplog.text + "".join(capfd.readouterr())
    assert "log_to_file is left out: lanes share a process, whose output is in " in said
    assert f"the memory of a process suffices for no more than {most} trials at a time, instead of 16" in said
