"""What is shipped and what installing it brings: extras, license, and the commands that messages name."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
FOR_DEVELOPERS = {"test", "dev", "docs"}
HEAVY = {"torch", "jax"}
# Where the module has another name than the package.
MODULES = {
    "nvidia-ml-py": "pynvml",
    "mlflow-skinny": "mlflow",
    "bayesian-optimization": "bayes_opt",
    "scikit-learn": "sklearn",
    "hydra-core": "hydra",
}
# What no module of ours imports, and why it is there.
NOT_IMPORTED = {
    "accelerate": "the Trainer of transformers needs it",
    "sqlalchemy": "the tests log to MLflow's own database",
    "alembic": "the tests log to MLflow's own database",
    "scipy": "two samplers of Optuna need it",
}
# Packages of others that bring torch along.
BRING_TORCH = {"torch", "lightning", "accelerate"}


def named(requirement: str) -> str:
    """Return the package of a requirement, without version, extras and marker."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0]


def packages_of(extra: str) -> set[str]:
    """Return the packages of an extra and of those that it includes."""
    packages = set()
    for requirement in EXTRAS[extra]:
        included = re.match(r"sweep-engine\[([\w,-]+)\]", requirement)
        if included is None:
            packages.add(named(requirement))
        else:
            packages |= {package for one in included[1].split(",") for package in packages_of(one)}
    return packages


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")


def texts_of(path: Path) -> Iterator[str]:
    """Give the literal strings of a module, those of f-strings with `{}` for what is filled in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield "".join(str(part) for part in parts)


def test_a_plain_install_finds_nvidias_gpus_and_brings_neither_torch_nor_jax():
    required = {named(requirement) for requirement in PROJECT["project"]["dependencies"]}
    assert not required & (HEAVY | BRING_TORCH)
    assert "nvidia-ml-py" in required
    assert EXTRAS["gpu"] == []  # it once brought that, and keeps its name


@cache
def all_code() -> str:
    folders = ("sweep", "searchers", "hydra_plugins", "examples")
    return "\n".join(path.read_text(encoding="utf-8") for path in sources(*folders))


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - FOR_DEVELOPERS))
def test_something_imports_what_an_extra_brings(extra):
    for package in packages_of(extra) - NOT_IMPORTED.keys():
        module = re.escape(MODULES.get(package, package))
        used = rf"^\s*(import|from) {module}\b|[\"']{module}(\.\w+)*[\"']"  # or by its name, at first use
        assert re.search(used, all_code(), flags=re.M), f"nothing imports {package}, which the extra {extra!r} brings"


def test_every_extra_that_the_code_or_a_page_names_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    texts = [(path, text) for path in sources("sweep", "searchers") for text in texts_of(path)]
    texts += [(path, path.read_text(encoding="utf-8")) for path in pages]
    unknown = []
    for path, text in texts:
        lists = re.findall(r"(?:sweep|sweep-engine|\.)\[([\w,-]+)\]['\" @]", text)
        words = [word for one in lists for word in one.split(",")]
        words += [one or other for one, other in re.findall(r"extra `(\w+)`|`(\w+)` extra", text)]
        unknown += [f"{path.relative_to(ROOT)}: {word}" for word in words if word not in EXTRAS]
    assert not unknown


def test_no_message_tells_to_install_this_project_from_an_index():
    """It is on none under a name that could be promised: what a message tells to type must work from a checkout."""
    told = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sources("sweep", "searchers")
        if "pip install" in path.read_text(encoding="utf-8")
        for text in texts_of(path)
        if re.search(r"pip install\s+(-\S+\s+)*['\"]?sweep", text)
    ]
    told += [
        f"{path.relative_to(ROOT)}: {line}"
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install\s+(-\S+\s+)*['\"]?sweep-engine(?!\S* @ )", line)
    ]
    assert not told


def test_the_license_stands_in_a_file_that_is_shipped():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license-files"] == ["LICENSE"]
    assert "LICENSE" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def rows_of_extras() -> dict[str, list[str]]:
    """Return the rows of the table of extras, by the extra."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return {row[0].strip("`"): row for row in rows if re.fullmatch(r"`\w+`", row[0])}


def test_the_page_on_installing_has_a_row_for_every_extra_with_its_size_and_marks_those_that_bring_torch():
    rows = rows_of_extras()
    assert set(rows) == EXTRAS.keys() - FOR_DEVELOPERS
    assert all(re.search(r"\d+(\.\d+)? [MG]B", row[-1]) for row in rows.values())
    assert {extra for extra, row in rows.items() if "torch" in row[-1]} == {
        extra for extra in rows if packages_of(extra) & BRING_TORCH
    }
