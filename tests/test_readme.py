"""The first page: what it shows comes from today's display, and what it lists is what the code knows."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from test_docs import ALL, Page, commands_of

import sweep
from searchers import SEARCHERS
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, BundlePlacement, Node, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.display.renderer import About, draw_block
from sweep.display.state import ViewState
from sweep.schedulers import SCHEDULERS

ROOT = Path(__file__).parents[1]
README = ALL["README.md"]
TEXT = README.path.read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "images" / "live_display.svg"
SAME_SEARCHER = {"variant_generator": "random", "optuna": "tpe"}


def section(title: str) -> str:
    """Return the text of a section."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def bullet(words: str) -> str:
    """Return the point of the status that holds these words."""
    (found,) = (one for one in section("Status").split("\n- ") if words in one)
    return found


def cell(row: str) -> str:
    """Return what the comparison says of us in a row."""
    (found,) = (line.split("|")[2] for line in TEXT.splitlines() if line.startswith(f"| {row} |"))
    return found


# --- the first screen ----------------------------------------------------------------------------------------------


def test_the_first_screen_is_a_sentence_why_how_to_install_it_and_one_short_example_with_its_output():
    text = TEXT.partition("\n![")[0]
    title, sentence, why, install, *_ = (part for part in text.split("\n\n") if part.strip())
    assert title.startswith("# ")
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")
    assert why.startswith("- ")
    assert "`pip install PATH`" in install
    first = [block for block in README.blocks if block.last <= text.count("\n") + 1]
    (example,) = (block for block in first if block.language == "python")
    assert len(example.text.splitlines()) <= 20
    assert example.output
    assert text.count("\n") < 45


def test_two_commands_try_it_and_one_line_says_how_a_script_of_ray_tune_runs():
    assert list(commands_of(Page(README.path, README.blocks))) == [["make", "run"], ["make", "test"]]
    assert "`ray` is replaced by `sweep` in their imports" in TEXT


# --- the picture ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_display", PICTURE.with_name("make_display.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines_of_the_picture() -> list[str]:
    """Return the lines that the picture shows, as they were on the terminal."""
    cell_width = 12.2  # of rich's pictures
    rows: dict[str, str] = {}
    for element in ElementTree.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text"):
        clip = element.get("clip-path")
        if clip is not None:
            column = round(float(element.get("x", "0")) / cell_width)
            rows[clip] = rows.get(clip, "").ljust(column) + (element.text or "").replace("\xa0", " ")
    return [line.rstrip() for line in rows.values()]


def shown_by_the_display() -> list[str]:
    """Return the block for a sweep like that of the picture: a gang, a share, one that waits, one that failed."""
    share, gang = Resources((Bundle(cpu=1, gpu=0.5),)), Resources((Bundle(cpu=1, gpu=1),) * 2)
    view = ViewState(Plan(metric="loss", mode="min", num_trials=24), 24, (Node(cpus=8),))

    def put(number: int, resources: Resources, **changes: object) -> None:
        trial = Trial(f"abcde_{number:05d}", {"lr": 0.1 / (number + 1), "width": 64}, resources)
        view.update(1.0, evolve(trial, **changes))

    held = Placement((BundlePlacement("local", (("0", 1.0),)),))
    result = TrialResult({"loss": 0.5, "training_iteration": 3})
    put(0, gang, status=Status.RUNNING, attempt=1, placement=held, last_result=result, best_result=result)
    put(1, share, status=Status.RUNNING, attempt=1, placement=held)
    put(2, gang, reason="waits for gpu=2")
    put(3, share, status=Status.ERROR, reason="FloatingPointError", failures=1)
    about = About("widths", "", "", "", "1", "the same call with name='widths', resume=True")
    return [line.plain for line in draw_block(view, about, 100, 24, 2.0)]


def test_the_picture_is_in_the_words_of_todays_display():
    words = {word for line in shown_by_the_display() for word in re.findall(r"[A-Za-z^]{2,}", line)}
    shown = set(re.findall(r"[A-Za-z^]{2,}", "\n".join(lines_of_the_picture())))
    assert not words - shown, "run: python docs/images/make_display.py"


def test_the_picture_shows_a_gang_a_shared_gpu_a_reason_to_wait_a_failure_and_the_best_and_fetches_nothing(script):
    lines = lines_of_the_picture()
    assert [one for one in script.WANTED if not re.search(one, "\n".join(lines), flags=re.M)] == []
    assert max(map(len, lines)) <= script.COLUMNS <= 100
    text = PICTURE.read_text(encoding="utf-8")
    assert "@font-face" not in text
    assert "url(" not in text.replace("url(#", "")
    assert "monospace" in text


# --- what it lists -------------------------------------------------------------------------------------------------


def test_the_status_names_every_scheduler_and_every_searcher_once():
    named = re.findall(r"`(\w+)`", bullet("Schedulers"))
    assert sorted(SCHEDULERS[name].__name__ for name in named) == sorted(
        {kind.__name__ for kind in SCHEDULERS.values()}
    )
    named = re.findall(r"`(\w+)`", bullet("Searchers"))
    assert sorted(named) == sorted(SEARCHERS.keys() - SAME_SEARCHER.keys())


def test_the_comparison_names_every_scheduler_that_judges_trials():
    cells = " ".join(map(cell, ("stops trials early", "changes configs while training", "several objectives")))
    named = set(re.findall(r"\w+", cells.lower().replace("median rule", "median_stopping_rule")))
    kinds = {SCHEDULERS[name] for name in named & SCHEDULERS.keys()}
    assert kinds == set(SCHEDULERS.values()) - {
        SCHEDULERS[name] for name in ("fifo", "pbt_replay", "resource_changing")
    }


def test_the_status_names_every_trainer_and_every_library_with_callbacks():
    trainers = {
        name
        for module in ("torch", "jax", "tensorflow", "horovod", "trainer")
        for name in re.findall(r"^class (\w+Trainer)\b", (ROOT / "sweep" / "train" / f"{module}.py").read_text(), re.M)
    }
    assert set(re.findall(r"`(\w+Trainer)`", bullet("Groups"))) == trainers
    files = {path.stem for path in (ROOT / "sweep" / "integration").glob("*.py")}
    assert set(re.findall(r"`(\w+)`", bullet("Callbacks"))) == files - {"__init__", "boosting", "horovod", "reporting"}


def test_the_status_names_every_engine():
    named = re.findall(r"\"(\w+)\"", bullet("One machine"))
    with pytest.raises(ValueError, match="engine is 'cluster'") as caught:
        sweep.run(print, engine="cluster")
    assert set(named) == set(re.findall(r"\w+", str(caught.value).partition("Known: ")[2]))


def test_the_version_is_that_of_the_package():
    assert f"Version {sweep.__version__}," in section("Status")
    assert f"Python {sys.version_info[0]}." in section("Status")
