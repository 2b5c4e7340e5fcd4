"""The table of what a Tune user can do: complete, without doubles, every test in it exists, the page is up to date."""

from __future__ import annotations

from compatibility.rows import DATA, MARKS, PAGE, Row, has_test, load, page, problems

ROWS = load()


def test_every_row_is_decided_and_every_test_that_it_names_exists():
    assert problems(ROWS) == []


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == page(ROWS), "run: python tests/compatibility/rows.py"


def test_every_complaint_and_every_trap_has_its_row():
    complaints = [row.id for row in ROWS if row.mark == "P"]
    assert complaints == [f"pain-{number:02d}" for number in range(1, 26)]
    assert sum(row.mark == "T" for row in ROWS) == 16
    assert all(row.section == {"P": "pain", "T": "trap"}.get(row.mark, row.section) for row in ROWS)


def test_a_different_meaning_names_its_reason_in_a_sentence():
    assert [row.id for row in ROWS if row.different and len(row.different) < 15] == []
    assert [row.id for row in ROWS if row.refused and len(row.refused) < 15] == []


def test_what_is_wrong_with_a_table_is_said(tmp_path):
    (tmp_path / "test_x.py").write_text("def test_a(): ...\nclass TestIt:\n    def test_b(self): ...\n")
    good = Row("1.1-a", "C", "what", tests=("test_x.py::test_a", "test_x.py::TestIt::test_b"))
    rows = [
        good,
        Row("1.1-a", "C", "again", refused="not yet"),
        Row("99-b", "Z", "", different="because", tests=("test_x.py::test_b", "test_y.py::test_a")),
        Row("1.1-c", "R", "both", tests=("test_x.py::test_a",), different="x", refused="too"),
        Row("1.1-d", "R", "nothing"),
    ]
    found = problems(rows, tmp_path)
    assert [problem for problem in found if not problem.startswith("section")] == [
        "1.1-a is there twice",
        "99-b is of no known section",
        "99-b has the mark 'Z'; known are C, M, R, T, P",
        "99-b does not say what it is",
        "99-b names test_x.py::test_b, which does not exist",
        "99-b names test_y.py::test_a, which does not exist",
        "1.1-c must have tests alone, different or refused (with or without tests), or todo",
        "1.1-d must have tests alone, different or refused (with or without tests), or todo",
    ]
    assert "section 1 has 2 rows marked C; expected 24" in found
    assert "section 13 has 0 rows marked M; expected 9" in found


def test_the_page_shows_counts_decisions_and_tests():
    rows = [
        Row("1.1-a", "C", "a | b", tests=("tests/test_x.py::test_a",)),
        Row("1.1-b", "M", "b", different="it is better", tests=("tests/test_x.py::test_b",)),
        Row("6-c", "R", "c", refused="not yet", tests=("tests/test_x.py::test_c",)),
        Row("6-d", "R", "d", is_todo=True),
    ]
    text = page(rows)
    entry_points = "[1. Entry points and their parameters](#1-entry-points-and-their-parameters)"
    assert f"| {entry_points} | 2 | 1 | 1 | 0 | 0 |" in text
    assert "| [6. Stopping](#6-stopping) | 2 | 0 | 0 | 1 | 1 |" in text
    assert "| **rare, all sections** | 2 | 0 | 0 | 1 | 1 |" in text
    assert "| **all** | 4 | 1 | 1 | 1 | 1 |" in text
    assert text.splitlines()[2].startswith("4 rows: 1 covered, 1 different, 1 refused, 1 to do. ")
    assert "## 6. Stopping\n\n2 rows: 0 covered, 0 different, 1 refused, 1 to do.\n" in text
    assert "## 7. Trainables\n\n0 rows: 0 covered, 0 different, 0 refused.\n" in text
    assert "| 1.1-a | core | a \\| b | `test_x.py::test_a` |" in text
    assert "| 1.1-b | common | b | different: it is better; `test_x.py::test_b` |" in text
    assert "| 6-c | rare | c | refused: not yet; `test_x.py::test_c` |" in text


def test_the_page_opens_with_how_to_find_a_row_its_sections_and_the_meaning_of_the_words():
    opening = page(ROWS).partition("\n## ")[0].split("\n\n")
    counts = {state: sum(row.state == state for row in ROWS) for state in ("covered", "different", "refused")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    assert opening[1].startswith(f"{len(ROWS)} rows: {told}. A refusal is no part of what works")
    assert opening[2].startswith("To find a name of Tune's, search this page")
    assert opening[3].startswith("| section | rows |")
    assert opening[4].startswith("| word | means |")
    assert {word for word in (*MARKS.values(), "different", "refused") if word not in opening[4]} == set()


def test_a_test_is_looked_for_where_it_is_named():
    assert has_test("tests/compatibility/test_rows.py::test_a_test_is_looked_for_where_it_is_named")
    assert not has_test("tests/compatibility/test_rows.py::test_nobody")
    assert not has_test("tests/compatibility/test_nothing.py::test_a")
    assert DATA.name == "tune_rows.toml"
