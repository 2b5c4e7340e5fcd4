"""Ranges within a command line."""

from __future__ import annotations

import pytest

from sweep.cli.programs import ranges_in
from sweep.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "template", "ranges"),
    [
        (["--lr", "{uniform(0,1)}"], ["--lr", "{lr}"], ["lr=uniform(0,1)"]),
        (["--batch-size={16,32}"], ["--batch-size={batch_size}"], ["batch_size=16,32"]),
        (["+model.lr={uniform(0,1)}"], ["+model.lr={model.lr}"], ["model.lr=uniform(0,1)"]),
        (["{a=uniform(0,1)}", "{b=1,2}"], ["{a}", "{b}"], ["a=uniform(0,1)", "b=1,2"]),
        (["run", "{1,2}", "{3,4}"], ["run", "{argument_1}", "{argument_2}"], ["argument_1=1,2", "argument_2=3,4"]),
        (["--z=w={1,2},c={3,4}"], ["--z=w={w},c={c}"], ["w=1,2", "c=3,4"]),
        (["--lr", "{1,2}", "--lr", "{3,4}"], ["--lr", "{lr}", "--lr", "{lr_}"], ["lr=1,2", "lr_=3,4"]),
        (["--lr", "{lr}", '{"a": 1, "b": 2}'], ["--lr", "{lr}", '{"a": 1, "b": 2}'], []),
    ],
)
def test_ranges_in_braces_are_named_after_what_stands_before_them(
    words: list[str], template: list[str], ranges: list[str]
) -> None:
    assert ranges_in(words) == (template, ranges)


def test_the_place_of_a_mistake_is_marked() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown function 'unifrm'.*\n    run --lr \{unifrm\(0,1\)\}\n             \^"
    ):
        ranges_in(["run", "--lr", "{unifrm(0,1)}"])
    with pytest.raises(ConfigError, match=r"not closed\n    run --lr \{uniform\(0,1\)\n             \^"):
        ranges_in(["run", "--lr", "{uniform(0,1)"])
