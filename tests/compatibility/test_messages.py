"""What people of Ray Tune look for is there: the FAQ shows our messages as they are, the guide names what exists."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import re
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from accelerators.test_gpu import GIB, FakeGpu, FakeNvml, install
from click.testing import CliRunner
from compatibility.rows import load
from made_experiment import MadeExperiment

import sweep as tune
from sweep import api
from sweep.cli.main import sweep as command
from sweep.launch import registry, spec
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.worker import session
from sweep.worker.trainable import prepare

__all__ = ["install"]  # a fixture

ROOT = Path(__file__).parents[2]
FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8").partition("\n## Messages of Ray Tune\n")[2]
GUIDE = (ROOT / "docs" / "how-to" / "migrate-from-ray-tune.md").read_text(encoding="utf-8")
SILENT = "Trainable runner reuse requires reset_config() to be implemented and return True"


def entries() -> dict[str, str]:
    """Return what the FAQ shows under each message of Ray: the heading without backticks -> our text."""
    found = {}
    for entry in re.split(r"^### ", FAQ, flags=re.M)[1:]:
        heading, _, rest = entry.partition("\n")
        shown = re.search(r"^```text\n(.*?)\n```$", rest, flags=re.M | re.S)
        found[heading.replace("`", "")] = shown[1] if shown else ""
    return found


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    tune.init(num_cpus=2, num_gpus=0)
    yield
    tune.shutdown()


def train(config):
    tune.report({"loss": config.get("x", 0.0)})


def run(trainable: Any = train, **arguments: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, **{"verbose": 0, "engine": "inline", **arguments})


def refusal(call: Callable[[], Any]) -> str:
    """Return the text of the error that a call ends with; warnings are errors in these tests."""
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


# --- the FAQ: every message is provoked, and its text compared -------------------------------------------------------


def failed_trial() -> str:
    def impatient(config):
        raise RuntimeError("out of patience")

    return refusal(lambda: run(impatient))


def missing_metric() -> str:
    return refusal(lambda: run(metric="accuracy", mode="max"))


def bad_mode() -> str:
    return refusal(lambda: run(metric="loss", mode="minimize"))


def made_analysis() -> tune.ExperimentAnalysis:
    made = MadeExperiment(Path(os.environ["SWEEP_STORAGE"]), "made", metric=None, mode=None)
    for lr in (0.1, 0.2):
        trial = made.trial({"lr": lr})
        made.start(trial)
        made.report(trial, {"loss": lr})
        made.end(trial)
    made.close()
    return tune.ExperimentAnalysis(made.root)


def no_best_trial() -> str:
    analysis = made_analysis()
    warned = refusal(lambda: analysis.get_best_trial("accuracy", "max"))
    assert refusal(lambda: tune.ResultGrid(analysis).get_best_result("accuracy", "max")) == warned
    return warned


def no_metric() -> str:
    analysis = made_analysis()
    raised = refusal(lambda: tune.ResultGrid(analysis).get_best_result())
    assert refusal(lambda: analysis.best_config) == raised
    return raised


def grid_with_a_searcher() -> str:
    return refusal(
        lambda: run(config={"x": tune.grid_search([1, 2])}, search_alg=tune.OptunaSearch(), metric="loss", mode="min")
    )


def two_spaces() -> str:
    searcher = tune.OptunaSearch({"x": tune.uniform(0, 2)})
    return refusal(lambda: run(config={"x": tune.uniform(0, 1)}, search_alg=searcher, metric="loss", mode="min"))


def metric_twice() -> str:
    scheduler = tune.ASHAScheduler(metric="accuracy", mode="min")
    return refusal(lambda: run(scheduler=scheduler, metric="loss", mode="min"))


def larger_than_the_machine() -> str:
    return refusal(lambda: run(resources_per_trial={"cpu": 1, "gpu": 1}))


def two_arguments() -> str:
    def two(config, data):
        raise AssertionError("never called")

    return refusal(lambda: run(two))


def too_large() -> str:
    data = bytes(11_000_000)

    def trainable(config):
        return {"loss": len(data)}

    return refusal(lambda: prepare(trainable))


def with_a_lock() -> str:
    lock = threading.Lock()

    def locked(config):
        with lock:
            return {"loss": 1}

    return refusal(lambda: run(locked))


def group_in_a_small_trial() -> str:
    def driver(config):
        DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=9)).fit()

    analysis = run(driver, engine="local", raise_on_failed_trial=False, nodes=[tune.Node(cpus=4)])
    return str(analysis.trials[0].error)


def unknown_trainable() -> str:
    tune.register_trainable("net", train)
    return refusal(lambda: run("nett"))


def computed_values() -> str:
    spaces = [
        {"width": tune.sample_from(lambda config: 1 / 0)},
        {
            "depth": tune.sample_from(lambda config: config["width"]),
            "width": tune.sample_from(lambda config: config["depth"]),
        },
    ]
    return "\n".join(refusal(lambda space=space: run(config=space)) for space in spaces)


def former_names() -> str:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tune.RunConfig(local_dir="results")
    both = refusal(lambda: run(local_dir="results", storage_path="other"))
    return f"{said[0].category.__name__}: {said[0].message}\n{both}\n{refusal(lambda: run(queue_trials=True))}"


def report_alone() -> str:
    session._has_warned = False
    return refusal(lambda: tune.report({"loss": 1.0}))


def told_by_the_command_line(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments))
    return str(result.exception) if result.exception else result.output.strip()


def no_sweeps() -> str:
    return told_by_the_command_line("ls")


def unknown_column_and_file_type() -> str:
    made_analysis()
    return "\n".join(
        told_by_the_command_line("trials", "made", *option) for option in (["--sort", "accuracy"], ["-o", "trials.txt"])
    )


PROVOKED: dict[str, Callable[[], str]] = {
    "Trials did not complete": failed_trial,
    "Trial returned a result which did not include the specified metric(s)": missing_metric,
    "must be one of ['min', 'max']": bad_mode,
    "Could not find best trial. Did you pass the correct metric parameter?": no_best_trial,
    "To fetch the best result, pass a metric and mode": no_metric,
    "Grid search parameters cannot be automatically converted": grid_with_a_searcher,
    "the search algorithm was already instantiated with a search space": two_spaces,
    "already instantiated with their own metric and mode parameters": metric_twice,
    "No trial is running and no new trial has been started within the last 60 seconds": larger_than_the_machine,
    "Unknown argument found in the Trainable function": two_arguments,
    "The Trainable/training function is too large for grpc resource limit": too_large,
    "Try reproducing the issue by calling pickle.dumps(trainable)": with_a_lock,
    "No trial resources are available for launching": group_in_a_small_trial,
    "Unknown trainable": unknown_trainable,
    "Failed to evaluate expression, RecursiveDependencyError": computed_values,
    "max_failures must be 0 if fail_fast": lambda: refusal(lambda: run(fail_fast=True, max_failures=3)),
    "local_dir is deprecated": former_names,
    "Checkpoint.from_dict is deprecated": lambda: refusal(lambda: tune.Checkpoint.from_dict({})),
    "Session not detected": report_alone,
    "No experiments found!": no_sweeps,
    "not in: and Unsupported filetype": unknown_column_and_file_type,
}
OF_GPUS = {"GPU memory was not freed.", "No GPU ids found"}


def assert_shown(heading: str, text: str) -> None:
    shown = entries()[heading]
    assert doctest.OutputChecker().check_output(shown + "\n", text + "\n", doctest.ELLIPSIS), (
        f"docs/faq.md shows under {heading!r}\n{shown}\nand the message is\n{text}"
    )


@pytest.mark.parametrize("heading", PROVOKED)
def test_a_message_is_what_the_faq_shows(heading, monkeypatch):
    monkeypatch.setattr(registry, "_trainables", {})
    assert_shown(heading, PROVOKED[heading]())


def test_the_messages_of_wait_for_gpu_are_what_the_faq_shows(install, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install(FakeNvml(FakeGpu("GPU-a0", used=20 * GIB, processes=[(4_194_305, 20 * GIB)])))
    assert_shown("GPU memory was not freed.", refusal(tune.wait_for_gpu))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert_shown("No GPU ids found", refusal(tune.wait_for_gpu))


def test_a_class_without_reset_config_is_reused_without_an_error():
    class Plain(tune.Trainable):
        def step(self):
            return {"loss": self.config["x"], "done": True}

    space = {"x": tune.grid_search([1, 2, 3])}
    analysis = run(Plain, engine="local", config=space, reuse_actors=True, max_concurrent_trials=1)
    assert [(trial.status, trial.last_result["loss"]) for trial in analysis.trials] == [
        ("TERMINATED", loss) for loss in (1, 2, 3)
    ]
    assert len({trial.last_result["pid"] for trial in analysis.trials}) == 1


def test_every_message_in_the_faq_is_provoked_here():
    found = entries()
    assert set(found) == {*PROVOKED, *OF_GPUS, SILENT}
    assert [heading for heading, text in found.items() if not text] == [SILENT]


# --- the guide: what it names exists, and it names everything that is different --------------------------------------


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(title: str) -> list[list[str]]:
    """Return the cells of a section's tables, without heads and rules."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row, after in zip(rows, [*rows[1:], [""]], strict=True) if not (_is_rule(row) or _is_rule(after))]


def _is_rule(row: list[str]) -> bool:
    return all(re.fullmatch(r"-+", cell) for cell in row)


def has_name(module: str, name: str) -> bool:
    """Whether a module has a public name; one whose library is not installed is read, not imported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return hasattr(importlib.import_module(module), name)
    except ImportError as error:
        if "not installed" not in str(error):
            raise
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return name in _listed(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))


def _listed(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def resolves(path: str) -> bool:
    """Whether a dotted path is a module, or a name in one."""
    try:
        return isinstance(importlib.import_module(path), ModuleType)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] not in ("sweep", "searchers"):
            return True  # of a library that is there something is missing, such as the backend of Keras
        module, _, name = path.rpartition(".")
        return bool(module) and has_name(module, name)
    except ImportError as error:
        return "not installed" in str(error)


IMPORTS = [(names, here) for _, names, here in table("Imports") if here.startswith("`")]


@pytest.mark.parametrize(
    ("names", "here"), IMPORTS, ids=[f"{i}-{here.split('`')[1]}" for i, (_, here) in enumerate(IMPORTS)]
)
def test_every_name_of_the_guide_can_be_imported_from_where_it_says(names, here):
    place = here.split("`")[1]
    assert resolves(place)
    if isinstance(_module_or_none(place), ModuleType):
        missing = [name for name in re.findall(r"`(\w+)`", names) if not has_name(place, name)]
        assert not missing, f"{place} has no {missing}"


def _module_or_none(path: str) -> ModuleType | None:
    try:
        return importlib.import_module(path)
    except ImportError:
        return None


def test_what_the_guide_says_is_not_there_is_not_there():
    gone = {
        name
        for _, names, here in table("Imports")
        if here.startswith("not available")
        for name in re.findall(r"`(\w+)`", names)
    }
    facade = tune.tune
    places = (tune, tune.search, tune.schedulers, tune.logger, facade, facade.search, facade.utils, facade.integration)
    assert len(gone) > 20
    assert not {name for name in gone for place in places if hasattr(place, name)}


NEW = {
    "BOHBSearch",
    "Cluster",
    "Curves",
    "Device",
    "Attached",
    "attach",
    "confirm",
    "GridSearch",
    "MOASHAScheduler",
    "Node",
    "Program",
    "PASHAScheduler",
    "Point",
    "run_agent",
    "RandomSearch",
    "Resources",
    "Scheduler",
    "SweepError",
    "SweepInterrupted",
    "TrialsFailed",
    "__version__",
    "air",
    "errors",
    "from_optuna",
    "last_analysis",
    "limit_gpu_memory",
    "logger",
    "replay",
    "rerun",
    "schedulers",
    "search",
    "simulate",
    "stopper",
    "train",
    "tune",
    "VectorTrainable",
    "vectorized",
}  # public names that Ray Tune has not, and modules


def test_the_guide_tells_where_every_public_name_of_sweep_comes_from():
    told = {name for _, names, _ in table("Imports") for name in re.findall(r"`(\w+)`", names)}
    assert set(tune.__all__) - told <= NEW, "public names that Ray Tune has not are to be listed in NEW"


def test_the_names_of_searchers_and_schedulers_are_those_that_there_are():
    rows = table("Names of searchers and schedulers")
    there = [left for left, here in rows if here == "the same"] + [here for _, here in rows if here.startswith("new: ")]
    named = set(re.findall(r'`"(\w+)"`', " ".join(there)))
    assert named == {*tune.search.SEARCHERS, *tune.schedulers.SCHEDULERS}
    gone = {name for left, here in rows if here == "not available" for name in re.findall(r'"(\w+)"', left)}
    assert not gone & named


def test_every_parameter_that_tune_once_had_is_in_the_guide():
    told = set(re.findall(r"`(\w+)`", " ".join(left for left, _ in table("Parameters"))))
    assert {*api._FORMER, *spec.FORMER_FORMS} - told == set()
    new = set(re.findall(r"`(\w+)`", section("Parameters").partition("\nNew are ")[2].partition(":")[0]))
    assert new <= inspect.signature(tune.run).parameters.keys()


def test_every_variable_that_is_read_is_in_the_guide():
    told = set(re.findall(r"\b(?:SWEEP|RAY)_[A-Z_]+\b", section("Environment variables")))
    source = (ROOT / "sweep/launch/spec.py").read_text(encoding="utf-8")
    read = {f"SWEEP_{name}" for name in re.findall(r'^[A-Z_]+ = "([A-Z_]+)"', source, re.MULTILINE)} | {
        "SWEEP_STORAGE",
        "SWEEP_CALLBACKS",
        "SWEEP_KEEP_VISIBLE_DEVICES",
        "RAY_TUNE_CALLBACKS",
    }
    assert read <= told


ROWS = {row.id: row for row in load()}
TRAPS = table("What surprises Tune's users by design")
COMPLAINTS = table("What Tune's users complain about most")
OTHERS = table("Other differences, row by row")


def named_tests(cell: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", cell)


def test_traps_and_complaints_are_numbered_as_in_the_table_of_rows_and_name_a_test_of_theirs():
    for letter, mark, listed in (("T", "trap", TRAPS), ("P", "complaint", COMPLAINTS)):
        of_kind = [row for row in ROWS.values() if row.mark == mark]
        assert [number for number, *_ in listed] == [f"{letter}{n}" for n in range(1, len(of_kind) + 1)]
        for row, (number, *_, tests) in zip(of_kind, listed, strict=True):
            named = {test.rpartition("::")[2] for test in row.tests}
            assert not row.tests or named & set(named_tests(tests)), f"{number} names none of the tests of {row.id}"


def test_everything_that_is_different_is_in_the_guide():
    different = {row.id for row in ROWS.values() if row.different and row.mark not in ("trap", "complaint")}
    listed = [identity for identity, *_ in OTHERS]
    assert different - set(listed) == set(), "add these rows to docs/how-to/migrate-from-ray-tune.md"
    assert set(listed) - ROWS.keys() == set()
    assert len(listed) == len(set(listed))
    numbers = {number for number, *_ in (*TRAPS, *COMPLAINTS)}
    assert {number for *_, see in OTHERS for number in see.split(", ") if see} <= numbers


def test_everything_that_is_refused_is_in_the_guide_with_its_reason():
    listed = {identity: why for identity, _, why in table("What is refused") if identity}
    assert listed.keys() == {row.id for row in ROWS.values() if row.refused}
    assert [identity for identity, why in listed.items() if len(why) < 20] == []


def test_every_test_that_the_guide_names_exists():
    named = set(named_tests(GUIDE))
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    assert named - set(re.findall(r"\bdef (test_\w+)\(", text)) == set()
    assert len(named) > 70
