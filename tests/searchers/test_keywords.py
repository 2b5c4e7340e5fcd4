"""Unknown keywords: what the decorator leaves as it was, and what the message says."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from searchers.errors import SearchError, UnknownArgument
from searchers.keywords import WORDS, meant, refuse_unknown


@refuse_unknown({"width": "It is called size."})
class Plain:
    """A class with an `__init__`."""

    def __init__(self, size: int, *, colour: str = "red") -> None:
        self.size, self.colour = size, colour


@refuse_unknown()
@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A frozen value."""

    size: int = 1
    colour: str = "red"


class Inherits(Plain):
    """A subclass that adds nothing."""


class Own(Plain):
    """A subclass with keywords of its own, that hands on what it does not know."""

    def __init__(self, size: int, mine: int = 0, **others: str) -> None:
        super().__init__(size, **others)
        self.mine = mine


@refuse_unknown()
def plainly(size: int, *, colour: str = "red") -> tuple[int, str]:
    """Return both."""
    return size, colour


@refuse_unknown()
def anything(**given: int) -> dict[str, int]:
    """Take anything."""
    return given


def refusal(function, *arguments, **keywords) -> str:
    with pytest.raises(UnknownArgument) as caught:
        function(*arguments, **keywords)
    assert isinstance(caught.value, (SearchError, ValueError))
    assert isinstance(caught.value, TypeError)
    return str(caught.value)


def test_a_hint_wins_over_the_nearest_and_is_found_when_it_is_misspelt():
    assert refusal(Plain, width=1) == "Plain has no parameter 'width'. It is called size."
    assert refusal(Plain, widht=1) == "Plain has no parameter 'widht'. Did you mean 'width'? It is called size."


def test_the_words_of_other_libraries_count_where_our_name_for_them_is_a_parameter():
    assert meant("n_trials", ["max_concurrent_trials", "num_samples"]) == "Optuna's n_trials is num_samples here."
    assert meant("n_trials", ["colour"]) == "Known: colour."
    there = {"num_samples": "It is a field of TuneConfig."}
    assert meant("n_trials", ["colour"], there) == "Optuna's n_trials is num_samples here. It is a field of TuneConfig."
    assert not any(word in names for word, (_, names, _) in WORDS.items())


def test_signatures_names_pickles_copies_and_replace_are_what_they_were():
    assert str(inspect.signature(Plain)) == "(size: 'int', *, colour: 'str' = 'red') -> 'None'"
    assert str(inspect.signature(Value)) == "(size: 'int' = 1, colour: 'str' = 'red') -> None"
    assert str(inspect.signature(plainly)) == "(size: 'int', *, colour: 'str' = 'red') -> 'tuple[int, str]'"
    assert plainly.__doc__ == "Return both."
    assert Plain.__init__.__qualname__ == "Plain.__init__"
    for function in (plainly, anything):
        assert pickle.loads(pickle.dumps(function)) is function
    for value in (Value(3), dataclasses.replace(Value(), size=3), Value(size=3)):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == Value(3, "red")
    assert pickle.loads(pickle.dumps(Plain(2))).size == 2
    assert anything(xyz=1) == {"xyz": 1}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        Plain()


def test_a_subclass_may_take_keywords_of_its_own_and_what_it_hands_on_is_refused_in_the_name_of_the_class_that_did():
    own = Own(1, mine=2, colour="blue")
    assert (own.size, own.mine, own.colour) == (1, 2, "blue")
    assert refusal(Own, 1, colur="blue").startswith("Plain has no parameter 'colur'. Did you mean 'colour'?")
    assert refusal(Inherits, 1, colur="blue").startswith("Inherits has no parameter 'colur'.")
