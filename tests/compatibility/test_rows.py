"""The table of what a Tune user can do: complete, without doubles, and every test in it exists."""

from __future__ import annotations

from collections import Counter

from compatibility.rows import CORE_AND_COMMON, MARKS, PAGE, has_test, load

ROWS = load()


def test_every_row_is_decided_and_every_test_that_it_names_exists():
    assert [test for row in ROWS for test in row.tests if not has_test(test)] == []
    assert [identity for identity, number in Counter(row.id for row in ROWS).items() if number > 1] == []
    assert {row.section for row in ROWS} == CORE_AND_COMMON.keys()
    assert {row.mark for row in ROWS} == set(MARKS)
    assert not has_test("tests/compatibility/test_rows.py::test_nobody")


def test_all_that_is_in_most_scripts_and_in_many_has_a_row():
    counts = Counter((row.section, row.mark) for row in ROWS)
    assert {name: (counts[name, "core"], counts[name, "common"]) for name in CORE_AND_COMMON} == CORE_AND_COMMON


def test_the_page_says_how_many_there_are():
    states = Counter(row.state for row in ROWS)
    told = ", ".join(f"{states[state]} {state}" for state in ("covered", "different", "refused"))
    assert f"\n{len(ROWS)} rows: {told}." in PAGE.read_text(encoding="utf-8")


def test_every_complaint_and_every_trap_has_its_row():
    complaints = [row.id for row in ROWS if row.mark == "complaint"]
    assert complaints == [f"pain-{number:02d}" for number in range(1, 26)]
    assert sum(row.mark == "trap" for row in ROWS) == 16
    assert all(row.section == {"complaint": "pain", "trap": "trap"}.get(row.mark, row.section) for row in ROWS)


def test_a_different_meaning_names_its_reason_in_a_sentence():
    assert [row.id for row in ROWS if row.different and len(row.different) < 15] == []
    assert [row.id for row in ROWS if row.refused and len(row.refused) < 15] == []
