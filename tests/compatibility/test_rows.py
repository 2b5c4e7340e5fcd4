"""The table of what a Tune user can do: complete, without doubles, and every test in it exists."""

from __future__ import annotations

from collections import Counter

from compatibility.rows import PAGE, has_test, load

ROWS = load()


def test_every_row_is_decided_and_every_test_that_it_names_exists():
    assert [test for row in ROWS for test in row.tests if not has_test(test)] == []
    assert [identity for identity, number in Counter(row.id for row in ROWS).items() if number > 1] == []
    assert not has_test("tests/compatibility/test_rows.py::test_nobody")


def test_the_page_says_how_many_there_are():
    states = Counter(row.state for row in ROWS)
    told = ", ".join(f"{states[state]} {state}" for state in ("covered", "different", "refused"))
    assert f"\n{len(ROWS)} rows: {told}." in PAGE.read_text(encoding="utf-8")
