"""The pages of schedulers and searchers: none is missing, and their docstrings say what they must."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

import searchers
from sweep import schedulers

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "site"))
from algorithm_pages import Docstring, algorithms, read_docstring, undocumented

FOUND = algorithms()

# What needs no source: no algorithm of its own, or that of the package which it asks.
WITHOUT_SOURCE = {
    "FIFOScheduler",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "GridSearch",
    "BasicVariantGenerator",
    "RandomSearch",
    "ConcurrencyLimiter",
    "Repeater",
    "Enqueued",
    "ForeignSearcher",
    "ElasticGroups",
}
# Parameters whose meaning is plain: metric and mode of searchers that do not learn, and what another docstring names.
NOT_EXPLAINED = {
    "GridSearch": ["metric", "mode"],
    "RandomSearch": ["metric", "mode"],
    "BasicVariantGenerator": ["points_to_evaluate", "max_concurrent", "constant_grid_search"],
}


@pytest.mark.parametrize("package", [schedulers, searchers], ids=["schedulers", "searchers"])
def test_every_public_scheduler_and_searcher_has_a_page(package):
    base = schedulers.Scheduler if package is schedulers else searchers.Searcher
    public = [getattr(package, name) for name in package.__all__]
    wanted = {one for one in public if inspect.isclass(one) and issubclass(one, base) and one is not base}
    assert wanted <= {one.kind for one in FOUND}
    assert len(wanted) >= 9


def test_every_name_of_a_scheduler_and_a_searcher_is_on_a_page():
    named = [name for one in FOUND for name in one.names]
    assert sorted(named) == sorted([*schedulers.SCHEDULERS, *searchers.SEARCHERS])


def test_every_algorithm_names_its_source_and_its_departures():
    assert {one.name for one in FOUND if not one.docstring.source} == WITHOUT_SOURCE
    assert not [one.name for one in FOUND if one.docstring.source and not one.docstring.departures]


def test_a_source_has_a_year_or_a_name_of_tune():
    sources = {one.name: one.docstring.source for one in FOUND if one.docstring.source}
    assert not [name for name, text in sources.items() if not re.search(r"\b(19|20)\d\d\b|Ray Tune's", text)]


def test_every_parameter_is_explained():
    assert {one.name: undocumented(one) for one in FOUND if undocumented(one)} == NOT_EXPLAINED


def test_no_argument_is_explained_that_is_not_there():
    for one in FOUND:
        listed = {name for names, _ in one.docstring.arguments for name in names.split(", ")}
        assert listed <= set(inspect.signature(one.kind).parameters), one.name


def test_every_error_that_is_named_exists():
    known = {*dir(searchers), *vars(__import__("sweep.errors", fromlist=["errors"]))}
    named = {name for one in FOUND for names, _ in one.docstring.errors for name in names.split(", ")}
    assert named <= known
    assert "ConfigError" in named


def test_a_docstring_is_split_into_its_parts():
    text = """Do it
    well.

    A paragraph
    of two lines.

    Another.

    Args:
        a, b: first
            go on; and so on.
        c: a number. d: two.
        e: given `x: y`; None: nothing. Then more.

    Attributes:
        f: what.

    Raises:
        ConfigError, SpaceError: never.

    Example:
        >>> if True:
        ...     1
        1

    Source: A 2020, algorithm 1
    and 2. Departures: none. And
    one more.
    """
    assert read_docstring(text) == Docstring(
        summary="Do it well.",
        text=("A paragraph of two lines.", "Another."),
        arguments=(
            ("a, b", "first go on; and so on."),
            ("c", "a number."),
            ("d", "two."),
            ("e", "given `x: y`; None: nothing. Then more."),
        ),
        attributes=(("f", "what."),),
        errors=(("ConfigError, SpaceError", "never."),),
        example=">>> if True:\n...     1\n1",
        source="A 2020, algorithm 1 and 2.",
        departures="none. And one more.",
    )


def test_a_docstring_of_one_line_is_a_summary():
    assert read_docstring("Do it.") == Docstring(summary="Do it.")


def test_an_entry_without_a_name_is_an_error():
    with pytest.raises(ValueError, match="expected `name: what it is`"):
        read_docstring("Do it.\n\nArgs:\n    of no name")
