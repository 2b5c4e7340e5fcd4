"""One answer to "which was best": display, command line and analysis name the same trial, whatever was reported."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from made_experiment import MadeExperiment

from sweep.cli.best import best as best_command
from sweep.cli.main import sweep
from sweep.core.plan import Plan
from sweep.core.reports import improves
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.display.state import ViewState
from sweep.errors import MetricError, SweepError
from sweep.results.analysis import ExperimentAnalysis, ResultGrid, TrialView
from sweep.results.views import Result as ReadResult
from sweep.results.winners import best_by_last, better_earlier
from sweep.simulation.virtual import Simulation
from sweep.train.fit import NestedResult

value = st.sampled_from([0, 1, 2.0, -1.5, 3.25, True, math.nan, math.inf, -math.inf, "0.3", None])
reports = st.lists(st.lists(value, max_size=4), min_size=1, max_size=5)
ends = st.sampled_from([Status.TERMINATED, Status.ERROR, Status.RUNNING, Status.PAUSED, Status.PENDING])


class Played:
    """The same reports, told to a view as the driver does, and written into a record."""

    def __init__(self, root: Path, metric: str, mode: str, objectives: Any = ()) -> None:
        several = {"metrics": [name for name, _ in objectives], "modes": [one for _, one in objectives]}
        self.plan = Plan(metric=metric, mode=mode)
        self.made = MadeExperiment(root, "played", metric=metric, mode=mode, **(several if objectives else {}))
        self.view = ViewState(self.plan, None, (), objectives)
        self.trials: dict[str, Trial] = {}

    def begin(self, number: int) -> None:
        trial_id = self.made.trial({"x": number})
        self.made.start(trial_id)
        self.trials[trial_id] = Trial(trial_id, {"x": number}, Resources(), Status.RUNNING, attempt=1)

    def report(self, number: int, metrics: dict[str, Any]) -> None:
        trial_id = f"abcde_{number:05d}"
        seq = self.made.report(trial_id, metrics)
        trial = self.trials[trial_id]
        result = TrialResult({**metrics, "training_iteration": self.made.counts[trial_id]}, seq)
        best = {"best_result": result} if improves(trial, result, self.plan) else {}
        self.trials[trial_id] = evolve(trial, last_result=result, **best)

    def leave(self, number: int, status: Status) -> None:
        trial_id = f"abcde_{number:05d}"
        if status in (Status.TERMINATED, Status.ERROR):
            self.made.end(trial_id, kind="FINISHED" if status is Status.TERMINATED else "FAILED")
        self.made.set(trial_id, status=status.value)
        self.trials[trial_id] = evolve(self.trials[trial_id], status=status)

    def show(self, number: int) -> None:
        self.view.update(0.0, self.trials[f"abcde_{number:05d}"])


def cli(root: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(sweep, [*arguments, "--storage", str(root)])
    assert result.exception is None or isinstance(result.exception, SweepError), result.exception
    return None if result.exception is not None else json.loads(result.stdout)


@settings(deadline=None, max_examples=10)
@given(reports, st.data(), st.sampled_from(["min", "max"]), st.sampled_from(["loss", "eval/loss"]))
def test_display_command_line_and_analysis_name_the_same_trial(given_reports, data, mode, metric):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        played = Played(root, metric, mode)
        for number in range(len(given_reports)):
            played.begin(number)
        order = data.draw(st.permutations([i for i, some in enumerate(given_reports) for _ in some]))
        waiting = [list(some) for some in given_reports]
        for number in order:
            reported = waiting[number].pop(0)
            own = {"loss": reported} if metric == "loss" else {"eval": {"loss": reported}}
            played.report(number, {"other": 1.0} if reported is None else own)
            if data.draw(st.booleans()):  # a frame of the display; between two of them it hears only of the last
                played.show(number)
        for number in range(len(given_reports)):
            played.leave(number, data.draw(ends))
        if data.draw(st.booleans()):  # a run of the driver after this one
            played.view = ViewState(played.plan, None)
            played.view.restart(played.trials.values())
        for number in range(len(given_reports)):
            played.show(number)
        played.made.close()
        check(root, played.view, len(given_reports))


def check(root: Path, view: ViewState, num_trials: int) -> None:
    analysis = ExperimentAnalysis(root / "played")
    best, earlier = view.best, view.better_earlier
    shown = None if best is None else (best.trial.number, best.value, best.step)
    reader, metric, mode = analysis._reader, analysis.default_metric, analysis.default_mode
    recorded, had_been = best_by_last(reader, metric, mode), better_earlier(reader, metric, mode)
    assert shown == (None if recorded is None else (recorded.row.number, recorded.value, recorded.step))
    assert (None if earlier is None else (earlier.trial.number, earlier.value, earlier.step)) == (
        None if had_been is None else (had_been.row.number, had_been.value, had_been.step)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial, ever = analysis.best_trial, analysis.get_best_trial(scope="all")
    if num_trials > 1:  # a single one is returned whatever it reported, as in Tune
        assert (None if trial is None else trial.number) == (None if best is None else best.trial.number)
        assert earlier is None or (ever is not None and ever.number == earlier.trial.number)
        grid = ResultGrid(analysis)
        if best is not None:
            assert grid.get_best_result().config == best.trial.config
        else:
            with pytest.raises(MetricError):
                grid.get_best_result()
    assert ("best " in repr(analysis)) == (best is not None)
    assert ("earlier" in repr(analysis)) == (earlier is not None)
    (row,) = cli(root, "ls", "--format", "json")
    assert row["best"] == (None if best is None else best.value)
    printed = cli(root, "best", "played", "--format", "json")
    assert (None if printed is None else printed[0]["trial"]) == (None if best is None else f"{best.trial.number:05d}")
    facts = cli(root, "show", "played", "--format", "json")
    assert (facts["best"] is None) == (best is None)
    assert (facts["better_earlier"] is None) == (earlier is None)
    if best is not None:
        assert f"(trial {best.trial.number:05d} at step {best.step}; last report)" in facts["best"]
        assert facts["best_config"] == best.trial.config
    if earlier is not None:
        assert f"(trial {earlier.trial.number:05d} at step {earlier.step}; " in facts["better_earlier"]


@settings(deadline=None, max_examples=8)
@given(st.lists(st.lists(st.tuples(value, value), max_size=3), min_size=2, max_size=5), st.data())
def test_of_several_objectives_they_name_the_same_pareto_set(given_reports, data):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        played = Played(root, "loss", "min", (("loss", "min"), ("size", "max")))
        for number, some in enumerate(given_reports):
            played.begin(number)
            for loss, size in some:
                played.report(number, {"loss": loss, "size": size})
                if data.draw(st.booleans()):
                    played.show(number)
            played.leave(number, data.draw(ends))
            played.show(number)
        played.made.close()
        wanted = [trial.number for trial in ExperimentAnalysis(root / "played").get_pareto_trials()]
        assert [number for number, _ in played.view.front] == wanted
        assert played.view.best is None
        printed = cli(root, "best", "played", "--format", "json") or []
        assert [int(row["trial"]) for row in printed] == wanted
        assert cli(root, "show", "played", "--format", "json")["best"] is None
        (row,) = cli(root, "ls", "--format", "json")
        assert (row["best"] or "Pareto set of 0").startswith(f"Pareto set of {len(wanted)}")


def test_a_value_that_had_been_better_belongs_to_the_first_trial_and_step_that_had_it(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    first, second = made.trial({}), made.trial({})
    for trial_id, loss in ((second, 1.0), (first, 2.0), (first, 1.0), (first, 1.0), (first, 5.0), (second, 4.0)):
        made.report(trial_id, {"loss": loss})
    found = better_earlier(ExperimentAnalysis(made.close())._reader, "loss", "min")
    assert (found.row.trial_id, found.value, found.step) == (first, 1.0, 2)


@pytest.mark.parametrize("metric", ["", None])
def test_without_a_metric_nobody_is_best(tmp_path: Path, metric: str | None) -> None:
    made = MadeExperiment(tmp_path, metric=metric, mode=None)
    made.report(made.trial({}), {"loss": 1.0})
    reader = ExperimentAnalysis(made.close())._reader
    assert best_by_last(reader, reader.metric, reader.mode) is None
    assert better_earlier(reader, reader.metric, reader.mode) is None


# --- the table of the reference ---

DOCUMENTED = (ExperimentAnalysis, ResultGrid, ReadResult, TrialView, NestedResult, Simulation)
SCOPES_BY_DEFAULT = {
    f"{kind.__name__}.{name}": inspect.signature(method).parameters["scope"].default
    for kind in DOCUMENTED
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if name.startswith("get_best") and "scope" in inspect.signature(method).parameters
}


def table() -> dict[str, str]:
    """Return scope by name, as the reference lists them."""
    text = (Path(__file__).parents[2] / "docs/reference/dataframes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", text.partition("\n## Which trial is best\n")[2], re.M)[2:]
    return {name: scope for names, scope in rows for name in re.findall(r"`(\w+\.\w+|sweep \w+)", names) or [names]}


def test_the_reference_lists_whatever_names_a_best_with_its_scope() -> None:
    fields = {f"NestedResult.{one.name}" for one in dataclasses.fields(NestedResult)}
    there = {f"{kind.__name__}.{name}" for kind in DOCUMENTED for name in dir(kind)} | fields
    named = {name for name in there if re.search(r"\.(get_)?(best|pareto)", name)}
    listed = {name for name in table() if "." in name}
    assert listed - {f"{kind}.{name}" for kind in ("ExperimentAnalysis", "ResultGrid") for name in FRAMES} == named
    assert listed <= there


FRAMES = ("dataframe", "get_dataframe")


def test_the_scopes_of_the_reference_are_those_of_the_code() -> None:
    listed = table()
    assert SCOPES_BY_DEFAULT
    for name, scope in SCOPES_BY_DEFAULT.items():
        assert listed[name].startswith(f"`{scope}`, or `scope=`"), name
    (option,) = (one for one in best_command.params if one.name == "scope")
    assert listed["sweep best"] == f"`{option.default}`, or `--scope`"
    assert inspect.signature(ExperimentAnalysis.ranking).parameters["scope"].default == option.default == "last"
