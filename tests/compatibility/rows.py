"""What a Tune user can do, row by row, and where it is tested: read from docs/reference/tune-rows.md."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "tune-rows.md"


@dataclass(frozen=True)
class Row:
    """One thing that a Tune user can do, and how it was decided here.

    Attributes:
        id: section, a dash, a name: `13.3-best_trial`.
        tests: `tests/file::name` of tests that prove it; of a refusal, those that prove what the error says.
        different: why it deliberately means something else here; empty when it does not.
        refused: why it cannot be had here: asking for it is an error; empty when it can.
    """

    id: str
    mark: str
    what: str
    tests: tuple[str, ...]
    different: str
    refused: str

    @property
    def state(self) -> str:
        return "refused" if self.refused else "different" if self.different else "covered"


def load() -> list[Row]:
    """Return the rows of the page, in its order."""
    lines = re.findall(r"^\| ([\w.]+-\S+) \| (\w+) \| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    rows = []
    for identity, mark, what, here in lines:
        tests = tuple(f"tests/{test}" for test in re.findall(r"`(\S+\.py::[^`]+)`", here))
        told = re.sub(r"(; )?`\S+\.py::[^`]+`", "", here)
        reasons = [told.removeprefix(f"{word}: ") if told.startswith(word) else "" for word in ("different", "refused")]
        assert tests or any(reasons), f"{identity} must have tests, or say what is different or refused"
        rows.append(Row(identity, mark, what, tests, *reasons))
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


def has_test(test: str) -> bool:
    """Whether a test named `tests/x/test_y.py::test_z` exists."""
    file, _, name = test.partition("::")
    return name in names_in(ROOT / file)
