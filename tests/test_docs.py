"""The documentation is true: its code prints what it shows, its links lead somewhere, its lists are complete."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

import sweep
from searchers import SEARCHERS
from sweep.cli import main as cli
from sweep.schedulers import SCHEDULERS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DOCTESTED_ELSEWHERE = {"docs/reference/search-spaces.md", "docs/reference/searchers.md"}  # tests/searchers
NOTEBOOKS = {"docs/how-to/use-in-a-notebook.md"}
BARE_SITES = ("http://", "https://", "mailto:")
_FENCE = re.compile(r"^(\s*)(`{3,})(\w*)\s*$")
_END = "\x1eend of block "


@dataclass
class Block:
    """A fenced block of a page.

    Attributes:
        first, last: line numbers of its first line of code and of its closing fence, from 1.
        reason: why it is not run; empty when it is.
        output: what the page shows as its output; None when it shows nothing.
    """

    language: str
    first: int
    last: int
    text: str
    reason: str = ""
    output: str | None = None


@dataclass
class Page:
    """A page, its blocks, and its prose without them."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def in_language(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]

    @property
    def is_doctest(self) -> bool:
        return any(block.text.lstrip().startswith(">>>") for block in self.in_language("python"))

    @property
    def scripts(self) -> list[Block]:
        return [block for block in self.in_language("python") if not block.reason]


def read_page(path: Path) -> Page:
    """Split a page into blocks and prose. A `text` block right below a `python` block is the output of that."""
    page = Page(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    before = ""  # the last line of prose that was not blank, emptied by a block
    last_block: Block | None = None
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            page.prose.append(lines[number])
            if lines[number].strip():
                before, last_block = lines[number], None
            number += 1
            continue
        end = next(
            (n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[2]),
            None,
        )
        assert end is not None, f"{path}:{number + 1}: a block is not closed"
        indent = len(fence[1])
        text = "\n".join(line[indent:] for line in lines[number + 1 : end])
        reason = re.fullmatch(r"<!-- not run: (.+) -->", before.strip())
        block = Block(fence[3], number + 2, end + 1, text, reason[1] if reason else "")
        if block.language == "text" and last_block is not None and last_block.language == "python":
            last_block.output = text
        page.blocks.append(block)
        before, last_block = "", block
        number = end + 1
    return page


ALL = {page.name: page for page in map(read_page, PAGES)}
LONG = {"docs/how-to/train-in-groups.md"}  # torch and jax are started a dozen times
RUN = sorted(name for name, page in ALL.items() if page.scripts and not page.is_doctest and name not in NOTEBOOKS)


def as_script(page: Page) -> str:
    """Return the code of a page, every line at its own line number, so that a traceback names the page's lines."""
    lines = [""] * max(block.last for block in page.blocks)
    lines[0] = '__import__("sweep").init(num_cpus=2, num_gpus=0)'  # no name is bound: pages import what they use
    for block in page.scripts:
        lines[block.first - 1 : block.last - 1] = block.text.split("\n")
        lines[block.last - 1] = f"print({_END + str(block.first)!r}, flush=True)"
    return "\n".join(lines) + "\n"


def outputs_of(stdout: str) -> dict[int, str]:
    """Return what each block printed, by the number of its first line."""
    found = {}
    *parts, rest = re.split(re.escape(_END) + r"(\d+)\n", stdout)
    assert not rest, f"printed after the last block: {rest}"
    for printed, number in zip(parts[::2], parts[1::2], strict=True):
        found[int(number)] = printed.rstrip("\n")
    return found


def assert_shown(page: Page, outputs: dict[int, str]) -> None:
    """Check that each block printed what the page shows; `...` stands for anything, blanks at line ends for nothing."""
    checker = doctest.OutputChecker()
    for block in page.scripts:
        got = outputs[block.first]
        if block.output is None:
            assert not got, f"{page.name}:{block.first} prints what the page does not show:\n{got}"
            continue
        wanted, found = (re.sub(r"[ \t]+$", "", text, flags=re.M) + "\n" for text in (block.output, got))
        assert checker.check_output(wanted, found, doctest.ELLIPSIS), (
            f"{page.name}:{block.first}: the page shows\n{wanted}\nand the code prints\n{found}"
        )


def run_python(arguments: list[str], directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user would, in an empty directory, with sweeps stored below it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SWEEP_", "PYTEST_", "COLUMNS"))}
    environment |= {"SWEEP_CLAIMS": os.environ["SWEEP_CLAIMS"], "SWEEP_STORAGE": str(directory / "sweep_results")}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=110
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else pytest.mark.docs) for name in RUN]
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(name, tmp_path):
    page = ALL[name]
    script = tmp_path / f"{page.path.stem}.py"
    script.write_text(as_script(page), encoding="utf-8")
    ended = run_python([str(script)], tmp_path)
    assert ended.returncode == 0, f"{name}: {ended.stderr}"
    assert not ended.stderr, f"{name} wrote to standard error: {ended.stderr}"
    assert_shown(page, outputs_of(ended.stdout))


def test_pages_that_show_sessions_are_tested_elsewhere():
    assert {name for name, page in ALL.items() if page.is_doctest} == DOCTESTED_ELSEWHERE
    test = (ROOT / "tests" / "searchers" / "test_searchers_docs.py").read_text(encoding="utf-8")
    assert all(f'"{Path(name).name}"' in test for name in DOCTESTED_ELSEWHERE)


EXECUTE = """
import json, sys, nbclient, nbformat
cells = json.loads(sys.stdin.read())
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
def shown(output):
    return output["text"] if output["output_type"] == "stream" else output["data"].get("text/plain", "")
print("\\n" + json.dumps(["".join(shown(o) for o in cell["outputs"]).rstrip("\\n") for cell in notebook.cells]))
"""


@pytest.mark.docs
@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_the_cells_of_the_notebook_page_run_in_a_notebook(name, tmp_path):
    page = ALL[name]
    cells = ['__import__("sweep").init(num_cpus=2, num_gpus=0);', *(block.text for block in page.scripts)]
    environment = {**os.environ, "SWEEP_STORAGE": str(tmp_path / "sweep_results"), "IPYTHONDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", EXECUTE],
        input=json.dumps(cells),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ended.returncode == 0, ended.stderr
    _, *outputs = json.loads(ended.stdout.splitlines()[-1])
    assert_shown(page, {block.first: text for block, text in zip(page.scripts, outputs, strict=True)})


@pytest.mark.slow
def test_the_code_of_the_page_on_tensorboard_writes_what_tensorboard_reads(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is missing: pip install -e '.[integrations]'")
    page = ALL["docs/how-to/use-tensorboard.md"]
    script = tmp_path / "page.py"
    script.write_text("\n".join(block.text for block in page.in_language("python")), encoding="utf-8")
    ended = run_python([str(script)], tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = [path.read_bytes() for path in (tmp_path / "sweep_results").glob("*/*/events.out.tfevents.*")]
    assert len(found) == 5
    for words in ((b"eval/accuracy", 4), (b"_hparams_/session_start_info", 4), (b"note", 1)):
        assert sum(words[0] in content for content in found) == words[1]


RUN_WITH_LIBRARIES = (
    "docs/how-to/use-with-training-libraries.md",
    "docs/how-to/track-with-mlflow-or-wandb.md",
    "docs/how-to/use-tensorboard.md",
)


def test_few_blocks_are_not_run():
    pages = {name: page for name, page in ALL.items() if name not in RUN_WITH_LIBRARIES}
    reasons = [f"{name}: {block.reason}" for name, page in pages.items() for block in page.blocks if block.reason]
    assert len(reasons) <= 8, reasons


# --- what is linked to and named exists ----------------------------------------------------------------------------


def slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors_of(page: Page) -> set[str]:
    found: set[str] = set()
    for line in page.prose:
        heading = re.match(r"#{1,6} (.+)", line)
        if heading is not None:
            base = slug(heading[1])
            number = 0
            while (f"{base}-{number}" if number else base) in found:
                number += 1
            found.add(f"{base}-{number}" if number else base)
    return found


def links_of(page: Page) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", "\n".join(page.prose))
    yield from re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_link_of_a_page_leads_somewhere(name):
    page = ALL[name]
    for link in links_of(page):
        if link.startswith(BARE_SITES):
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        assert target.exists(), f"{name} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{name} links to {link}, outside the project"
        if anchor:
            known = anchors_of(ALL[target.relative_to(ROOT).as_posix()])
            assert anchor in known, f"{name} links to {link}; the anchors there are {sorted(known)}"


def test_every_page_can_be_reached_from_the_readme():
    reached: set[Path] = set()
    pages = {page.path for page in ALL.values()}
    todo = [ROOT / "README.md"]
    while todo:
        path = todo.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        for link in links_of(ALL[path.relative_to(ROOT).as_posix()]):
            if not link.startswith(BARE_SITES) and link.partition("#")[0]:
                target = (path.parent / link.partition("#")[0]).resolve()
                todo += sorted(pages.intersection(target.glob("*.md"))) if target.is_dir() else [target]
    assert not {page.name for page in ALL.values() if page.path not in reached}


def commands_of(page: Page) -> Iterator[list[str]]:
    """Give the `make` and `sweep` commands of the page's shell blocks, split into words."""
    for block in page.blocks:
        if block.language in ("bash", "console", "sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True) if _is_command(line, block) else []
                if words and words[0] in ("make", "sweep"):
                    yield words


def _is_command(line: str, block: Block) -> bool:
    return line.startswith("$ ") if block.language == "console" else bool(line.strip())


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.M))
    targets |= {f"test-{suite}" for suite in re.findall(r"^MARKED_(\w+)", makefile, flags=re.M)}
    named = {word for page in ALL.values() for words in commands_of(page) if words[0] == "make" for word in words[1:]}
    inline = re.findall(r"`make ([a-z-]+)`", "\n".join(line for page in ALL.values() for line in page.prose))
    assert named | set(inline) <= targets
    assert {"run", "test"} <= named


def test_every_sweep_command_that_is_shown_is_understood(monkeypatch):
    monkeypatch.setattr("sweep.cli.options.find_experiment", lambda name, storage: name)
    shown = [(page.name, words) for page in ALL.values() for words in commands_of(page) if words[0] == "sweep"]
    assert shown
    for name, words in shown:
        arguments = [word for word in words[1:] if word not in (">", "|")]
        if not arguments or arguments[0].startswith("-"):
            continue
        assert arguments[0] in cli.COMMANDS, f"{name}: there is no command {' '.join(words)}"
        command = cli.sweep.get_command(click.Context(cli.sweep), arguments[0])
        assert command is not None
        if ">" in words:
            arguments = words[1 : words.index(">")]
        command.make_context(arguments[0], list(arguments[1:]), resilient_parsing=False).close()


# --- lists that are complete ---------------------------------------------------------------------------------------


def signature_of(name: str) -> str:
    """Return the signature of a public name as the reference shows it: names and defaults, without annotations."""
    value = getattr(sweep, name)
    signature = inspect.signature(value)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    if inspect.isclass(value) and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    return f"{name}{signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)}"


def shown_names() -> list[str]:
    """Return what the reference shows of each public name, in order: the name, or its signature."""
    text = "\n".join(ALL["docs/reference/api.md"].prose).partition("\n## The parameters of `run`")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.M)


def test_the_reference_lists_every_public_name_once_and_nothing_else():
    assert sorted(shown.partition("(")[0] for shown in shown_names()) == sorted(sweep.__all__)


def test_the_reference_shows_the_signatures_as_they_are():
    shown = [text for text in shown_names() if "(" in text]
    assert shown == [signature_of(text.partition("(")[0]) for text in shown]
    assert len(shown) > 45


def test_the_reference_explains_every_parameter_of_run():
    text = "\n".join(ALL["docs/reference/api.md"].prose).partition("\n## The parameters of `run`")[2]
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, flags=re.M)
    parameters = inspect.signature(sweep.run).parameters.values()
    assert {name for cell in cells for name in re.findall(r"\w+", cell)} == {
        p.name for p in parameters if p.kind is not p.VAR_KEYWORD
    }


# --- pages that are looked things up in open with the lookup ---------------------------------------------------------


def opening(name: str) -> str:
    """Return what a page says before its first section."""
    return ALL[name].path.read_text(encoding="utf-8").partition("\n## ")[0]


def test_choose_opens_with_a_table_from_situations_to_a_searcher_and_a_scheduler():
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", opening("docs/choose.md"), flags=re.M)
    assert [cell.strip() for cell in rows[0]] == ["your situation", "searcher", "scheduler"]
    assert len(rows) > 10
    named = set(re.findall(r"`\"(\w+)\"`", " ".join(cell for row in rows for cell in row)))
    assert named <= {*SEARCHERS, *SCHEDULERS}


# --- the examples --------------------------------------------------------------------------------------------------


FEWER = """
import runpy, sys, sweep
whole = sweep.TuneConfig
sweep.TuneConfig = lambda **given: whole(**given | {"num_samples": 2})
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.docs
def test_the_sklearn_example_runs_with_fewer_samples(tmp_path):
    ended = run_python(["-c", FEWER, str(ROOT / "examples" / "sklearn_digits.py")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("best cross-validated accuracy"))
    assert float(line.split()[3]) > 0.94


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_ddp_digits", "jax_group_digits"])
def test_an_example_of_a_training_group_runs_to_its_end(name, tmp_path):
    ended = run_python([str(ROOT / "examples" / f"{name}.py")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"best accuracy 0\.9[3-9]", ended.stdout), ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_digits_asha", "jax_digits", "sklearn_digits", "vectorized_digits"])
def test_an_example_runs_to_its_end(name, tmp_path):
    ended = run_python([str(ROOT / "examples" / f"{name}.py")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"best (validation |cross-validated )?accuracy 0\.9[5-9]", ended.stdout), ended.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.*")), ids=lambda path: path.name)
def test_an_example_names_the_winner_that_the_display_shows(path):
    assert "scope=" not in path.read_text(encoding="utf-8"), "the display's is the best by the last reports"


def test_every_example_is_tested():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {
        "sklearn_digits",
        "torch_digits_asha",
        "jax_digits",
        "vectorized_digits",
        "torch_ddp_digits",
        "jax_group_digits",
        "ray_cluster",  # tests/on_ray/test_example.py
        "torch_digits_anywhere",  # tests/anywhere.py
    }
