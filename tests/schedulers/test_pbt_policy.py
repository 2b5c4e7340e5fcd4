"""The policy files of population based training: which starts are exploits, and what their lines say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Trial
from sweep.schedulers.pbt_policy import Exploit, PolicyLog, perturbed_tag, policy_file, read_policy

SOURCE = Trial("a_00001", {"lr": 0.1}, Resources())


def started(config, path="a_00001/checkpoint_000004", attempt=2, trial_id="a_00000"):
    ref = CheckpointRef(path, 4, 4) if path else None
    result = TrialResult({"training_iteration": 6})
    return Trial(trial_id, config, Resources(), attempt=attempt, started_from=ref, last_result=result)


def restored(log, *args, **changes):
    return log.restored(started(*args, **changes), {"a_00001": SOURCE, "a_00000": started({})})


def test_a_start_from_the_checkpoint_of_another_is_an_exploit():
    exploit = restored(PolicyLog(), {"lr": 0.12})
    assert exploit == Exploit("a_00000", "a_00001", 6, 4, {"lr": 0.1}, {"lr": 0.12})
    assert json.loads(exploit.line("0_lr=1", "1_lr=0.1")) == ["0_lr=1", "1_lr=0.1", 6, 4, {"lr": 0.1}, {"lr": 0.12}]


@pytest.mark.parametrize("path", [None, "a_00000/checkpoint_000004", "gone_00009/checkpoint_000001"])
def test_any_other_start_is_none(path):
    assert restored(PolicyLog(), {"lr": 0.12}, path) is None


def test_the_same_start_again_is_no_new_exploit_and_another_is():
    log = PolicyLog()
    assert restored(log, {"lr": 0.12}) is not None
    assert restored(log, {"lr": 0.12}, attempt=3) is None
    assert restored(log, {"lr": 0.14}) is not None
    assert restored(log, {"lr": 0.14}, "a_00001/checkpoint_000006") is not None
    assert restored(log, {"lr": 0.14}, "a_00001/checkpoint_000006") is None


def test_values_that_json_does_not_know_are_written_as_they_print():
    exploit = Exploit("a", "b", 1, 1, {}, {"x": np.int64(3), "f": np.float64(0.5), "o": {1}, "a": np.arange(2)})
    assert json.loads(exploit.line("0", "1"))[5] == {"x": 3, "f": 0.5, "o": "{1}", "a": "array([0, 1])"}


def test_a_line_that_was_cut_off_is_left_out_and_a_damaged_one_is_named():
    line = Exploit("a", "b", 1, 1, {}, {}).line("0", "1")
    assert read_policy(f"{line}\n{line[:9]}") == [("0", "1", 1, 1, {}, {})]
    assert read_policy("") == []
    with pytest.raises(ValueError, match=r"line 1 of a policy file is '\[1\]'"):
        read_policy(f"[1]\n{line}\n")


def test_names_are_those_of_tune():
    assert policy_file("a_00000") == "pbt_policy_a_00000.txt"
    assert perturbed_tag("3_lr=0.1", {"lr": 0.12, "net": {"w": 3}, "y": 1}, ["lr", "net/w"]) == (
        "3_lr=0.1@perturbed[lr=0.1200,w=3]"
    )
