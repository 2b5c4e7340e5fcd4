"""Run the examples of the two reference pages and of the docstrings."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["search-spaces.md", "searchers.md"])
def test_the_examples_of_a_page_give_what_they_show(page):
    results = doctest.testfile(str(ROOT / "docs" / "reference" / page), module_relative=False, encoding="utf-8")
    assert results.failed == 0
    assert results.attempted > 5


@pytest.mark.parametrize("name", ["searchers.base", "searchers.registry", "searchers.errors", "searchers.grid"])
def test_the_examples_of_docstrings_give_what_they_show(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert results.attempted > 0
