"""The policy files of population based training: which starts are exploits, and what their lines say."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from sweep.core.trial import CheckpointRef
from sweep.logs.policies import PolicyFiles
from sweep.schedulers.pbt_policy import perturbed_tag, policy_file, read_policy

ONE, OTHER = "a_00000", "a_00001"


class Told:
    """Policy files of two trials, the second with lr = 0.1; each start of the first is after 6 iterations."""

    def __init__(self):
        self.whole, self.lines = {}, defaultdict(list)
        self.files = PolicyFiles(self.whole, self.lines, ["lr"], ["lr"])
        self.files.start(OTHER, {"lr": 0.1}, None, 0)
        self.files.start(ONE, {"lr": 1}, None, 0)

    def start(self, config, path=f"{OTHER}/checkpoint_000004"):
        """Start the first trial; returns the lines of its file."""
        self.files.start(ONE, config, CheckpointRef(path, 4, 4) if path else None, 6)
        return [json.loads(line) for line in self.whole.get(policy_file(ONE), "").splitlines()]


def test_a_start_from_the_checkpoint_of_another_is_an_exploit():
    told = Told()
    assert told.start({"lr": 0.12}) == [["0_lr=1", "1_lr=0.1000", 6, 4, {"lr": 0.1}, {"lr": 0.12}]]
    told.start({"lr": 0.14})
    assert told.whole["pbt_global.txt"] + "".join(told.lines["pbt_global.txt"]) == told.whole[policy_file(ONE)]


@pytest.mark.parametrize("path", [None, f"{ONE}/checkpoint_000004", "gone_00009/checkpoint_000001"])
def test_any_other_start_is_none(path):
    assert Told().start({"lr": 0.12}, path) == []


def test_the_same_start_again_is_no_new_exploit_and_another_is():
    told = Told()
    later = f"{OTHER}/checkpoint_000006"
    starts = [({"lr": 0.12},), ({"lr": 0.12},), ({"lr": 0.14},), ({"lr": 0.14}, later), ({"lr": 0.14}, later)]
    assert [len(told.start(*start)) for start in starts] == [1, 1, 2, 3, 3]


def test_values_that_json_does_not_know_are_written_as_they_print():
    (line,) = Told().start({"x": np.int64(3), "f": np.float64(0.5), "o": {1}, "a": np.arange(2)})
    assert line[5] == {"x": 3, "f": 0.5, "o": "{1}", "a": [0, 1]}


def test_a_line_that_was_cut_off_is_left_out_and_a_damaged_one_is_named():
    line = json.dumps(["0", "1", 1, 1, {}, {}])
    assert read_policy(f"{line}\n{line[:9]}") == [("0", "1", 1, 1, {}, {})]
    assert read_policy("") == []
    with pytest.raises(ValueError, match=r"line 1 of a policy file is '\[1\]'"):
        read_policy(f"[1]\n{line}\n")


def test_names_are_those_of_tune():
    assert policy_file(ONE) == "pbt_policy_a_00000.txt"
    assert perturbed_tag("3_lr=0.1", {"lr": 0.12, "net": {"w": 3}, "y": 1}, ["lr", "net/w"]) == (
        "3_lr=0.1@perturbed[lr=0.1200,w=3]"
    )
