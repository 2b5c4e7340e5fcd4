"""What a Tune user can do, row by row, and where it is tested: run this file to write docs/reference/tune-rows.md."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("tune_rows.toml")
PAGE = ROOT / "docs" / "reference" / "tune-rows.md"

# The sections, with how many rows of each are core (in most scripts) and common (in many): all of these are listed.
SECTIONS: dict[str, tuple[str, int, int]] = {
    "1": ("Entry points and their parameters", 24, 36),
    "2": ("Search-space functions and variants", 11, 17),
    "3": ("Domains", 1, 5),
    "4": ("Search algorithms", 10, 16),
    "5": ("Schedulers", 2, 6),
    "6": ("Stopping", 1, 6),
    "7": ("Trainables", 6, 7),
    "8": ("Results", 7, 8),
    "9": ("Trials", 3, 3),
    "10": ("Callbacks and loggers", 3, 4),
    "11": ("Progress output", 2, 5),
    "12": ("Checkpoints, failures, resume", 1, 4),
    "13": ("Reading results", 14, 9),
    "14": ("Directories", 0, 1),
    "15": ("Resources", 2, 3),
    "16": ("Training groups", 5, 10),
    "17": ("Environment and signals", 1, 9),
    "18": ("Command line", 0, 1),
    "19": ("Utilities and integrations", 1, 6),
    "trap": ("What surprises Tune's users by design", 0, 0),
    "pain": ("What Tune's users complain about most", 0, 0),
}
MARKS = {"C": "core", "M": "common", "R": "rare", "T": "trap", "P": "complaint"}
KEYS = {"id", "mark", "what", "tests", "different", "refused", "todo"}
STATES = ("covered", "different", "refused", "to do")


@dataclass(frozen=True)
class Row:
    """One thing that a Tune user can do, and how it was decided here.

    Attributes:
        id: section, a dash, a name: `13.3-best_trial`.
        mark: a key of `MARKS`.
        what: the row in few words.
        tests: `file::name` of tests that prove it; of a refusal, those that prove what the error says.
        different: why it deliberately means something else here; empty when it does not.
        refused: why it cannot be had here: asking for it is an error; empty when it can.
        is_todo: nobody has named a test for it yet.
    """

    id: str
    mark: str
    what: str
    tests: tuple[str, ...] = ()
    different: str = ""
    refused: str = ""
    is_todo: bool = False

    @property
    def section(self) -> str:
        """The number of the section it belongs to, `13` for `13.3-best_trial`."""
        return self.id.partition("-")[0].partition(".")[0]

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.is_todo:
            return "to do"
        return "refused" if self.refused else "different" if self.different else "covered"


def load(path: Path = DATA) -> list[Row]:
    """Return the rows of the data file, in its order; what is wrong with them is for `problems` to say."""
    rows = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["row"]:
        unknown = entry.keys() - KEYS
        if unknown:
            raise ValueError(f"{entry.get('id')}: unknown keys {sorted(unknown)}; known are {sorted(KEYS)}")
        rows.append(
            Row(
                id=entry["id"],
                mark=entry["mark"],
                what=entry["what"],
                tests=tuple(entry.get("tests", ())),
                different=entry.get("different", ""),
                refused=entry.get("refused", ""),
                is_todo=entry.get("todo", False),
            )
        )
    return rows


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the tests that a file defines, those of its classes as `Class::test`; empty for a file that is not there.

    A test that a class inherits is named where it is defined, in the file of its contract.
    """
    if not file.is_file():
        return frozenset()
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            names |= {f"{node.name}::{name}" for name in methods if name.startswith("test_")}
    return frozenset(names)


def has_test(test: str, root: Path = ROOT) -> bool:
    """Whether a test named `tests/x/test_y.py::test_z` exists."""
    file, _, name = test.partition("::")
    return name in names_in(root / file)


def problems(rows: Sequence[Row], root: Path = ROOT) -> list[str]:
    """Return what is wrong with the rows, a sentence each."""
    found = []
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            found.append(f"{row.id} is there twice")
        seen.add(row.id)
        if row.section not in SECTIONS:
            found.append(f"{row.id} is of no known section")
        if row.mark not in MARKS:
            found.append(f"{row.id} has the mark {row.mark!r}; known are {', '.join(MARKS)}")
        if not row.what:
            found.append(f"{row.id} does not say what it is")
        reasons = [bool(row.different), bool(row.refused), row.is_todo]
        if sum(reasons) > 1 or not (any(reasons) or row.tests):
            found.append(f"{row.id} must have tests alone, different or refused (with or without tests), or todo")
        found += [f"{row.id} names {test}, which does not exist" for test in row.tests if not has_test(test, root)]
    for section, (_, core, common) in SECTIONS.items():
        for mark, expected in (("C", core), ("M", common)):
            count = sum(row.section == section and row.mark == mark for row in rows)
            if count != expected:
                found.append(f"section {section} has {count} rows marked {mark}; expected {expected}")
    return found


def page(rows: Sequence[Row]) -> str:
    """Return docs/reference/tune-rows.md."""
    lines = [
        "# Tune, row by row",
        "",
        f"{_totals(rows)}. A refusal is no part of what works: it is counted for itself.",
        "",
        "To find a name of Tune's, search this page for it: `run(metric=)`, `ASHAScheduler`, `get_best_trial`. Or",
        "go to its section:",
        "",
        *_counts(rows),
        "",
        "| word | means |",
        "| --- | --- |",
        "| core, common, rare | the row is in most scripts, in many, in few; rare ones are grouped |",
        "| trap, complaint | what surprises Tune's users by design, and what they complain about |",
        "| a test alone | covered: it works as in Tune, and this test proves it |",
        "| different | it works and deliberately means something else, for the reason that is given |",
        "| refused | asking for it is an error that says what to write, for the reason that is given |",
        "",
        "Everything that a Ray Tune user can do and expects is a row. `python tests/compatibility/rows.py` writes this",
        "page from `tests/compatibility/tune_rows.toml`, and every test that it names exists.",
    ]
    for section, (title, _, _) in SECTIONS.items():
        of_section = [row for row in rows if row.section == section]
        number = f"{section}. " if section.isdigit() else ""
        lines += [
            "",
            f"## {number}{title}",
            "",
            f"{_totals(of_section)}.",
            "",
            "| row | mark | what | here |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_line(row) for row in of_section]
    return "\n".join(lines) + "\n"


def _counts(rows: Sequence[Row]) -> list[str]:
    lines = [f"| section | rows | {' | '.join(STATES)} |", "| --- | --- | --- | --- | --- | --- |"]
    for section, (title, _, _) in SECTIONS.items():
        number = f"{section}. " if section.isdigit() else ""
        link = f"[{number}{title}](#{_anchor(number + title)})"
        lines.append(_count_line(link, [row for row in rows if row.section == section]))
    for mark in ("C", "M", "R"):
        lines.append(_count_line(f"**{MARKS[mark]}, all sections**", [row for row in rows if row.mark == mark]))
    return [*lines, _count_line("**all**", rows)]


def _totals(rows: Sequence[Row]) -> str:
    """Return `326 rows: 222 covered, 98 different, 6 refused`."""
    counts = Counter(row.state for row in rows)
    told = [f"{counts[state]} {state}" for state in STATES if counts[state] or state != "to do"]
    return f"{len(rows)} rows: {', '.join(told)}"


def _anchor(heading: str) -> str:
    """Return what GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _count_line(title: str, rows: Sequence[Row]) -> str:
    counts = [sum(row.state == state for row in rows) for state in STATES]
    return f"| {title} | {len(rows)} | {' | '.join(map(str, counts))} |"


def _line(row: Row) -> str:
    parts = {
        "covered": [],
        "different": [f"different: {row.different}"],
        "refused": [f"refused: {row.refused}"],
        "to do": ["to do"],
    }[row.state]
    return f"| {row.id} | {MARKS[row.mark]} | {_cell(row.what)} | {_cell('; '.join([*parts, *_tests(row.tests)]))} |"


def _tests(tests: Iterable[str]) -> list[str]:
    return [f"`{test.removeprefix('tests/')}`" for test in tests]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    written = load()
    PAGE.write_text(page(written), encoding="utf-8")
    for problem in problems(written):
        print(problem)
