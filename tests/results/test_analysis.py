"""What users read of an experiment: best trials, results, dataframes."""

from __future__ import annotations

import html
import math
from collections import deque
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_experiment import T0, MadeExperiment

import sweep
from searchers import Repeater
from sweep.errors import CheckpointError, ConfigError, ExperimentError, MetricError, SweepError, UserCodeError
from sweep.record.reader import find_experiment, list_experiments
from sweep.results.analysis import ExperimentAnalysis, ResultGrid
from sweep.results.winners import SCOPES

NAN = math.nan

OWN = ["training_iteration", "time_total_s", "stopped_early", "reason"]
BOOKED = (
    "status start_time end_time wait_s attempt cpus gpus peak_rss_mb error_class failure error logdir timestamp date "
    "time_this_iter_s checkpoint_dir_name done pid hostname node_ip time_since_restore iterations_since_restore "
    "experiment_tag"
).split()


def analysis_of(root: Path, *trials: tuple[dict[str, Any], list[dict[str, Any]]], **meta: Any) -> ExperimentAnalysis:
    """Return the analysis of an experiment of trials that are given as a config and what it reported."""
    made = MadeExperiment(root, **meta)
    for config, reported in trials:
        trial_id = made.trial(config)
        for metrics in reported:
            made.report(trial_id, metrics)
    return ExperimentAnalysis(made.close())


@pytest.fixture
def mixed(tmp_path: Path) -> ExperimentAnalysis:
    """Six trials: two finished, one stopped early, one failed, one running, one waiting."""
    made = MadeExperiment(tmp_path, "mixed")
    a = made.trial({"lr": 0.1, "net": {"width": 16}, "act": "relu"})
    b = made.trial({"lr": 0.2, "net": {"width": 32}, "act": "gelu"}, at=0.5)
    c = made.trial({"lr": 0.3, "act": "relu"})
    d = made.trial({"lr": 0.4, "act": "relu", "layers": [1, 2]})
    e = made.trial({"lr": 0.5, "act": "relu"}, resources={"bundles": [{"cpu": 2, "gpu": 0.5}]})
    made.trial({"lr": 0.6, "act": "relu"}, reason="waits for 1 CPU")
    for trial in (a, b, c, d, e):
        made.start(trial, at=1.0)
    for step, (loss_a, loss_b) in enumerate([(3.0, 0.1), (2.0, 5.0), (1.0, 4.0)]):
        made.report(a, {"loss": loss_a, "eval": {"acc": step / 10}, "good": True}, checkpoint=f"{a}/checkpoint_{step}")
        made.report(b, {"loss": loss_b, "eval": {"acc": 0.5}, "good": False})
    made.report(c, {"loss": NAN})
    made.report(e, {"loss": 9.0, "note": "slow"})
    made.end(a, at=4.0, peak_rss_bytes=123_000_000)
    made.end(b, at=4.5)
    made.end(c, kind="STOPPED", reason="stopped early at rung 1")
    made.end(
        d,
        kind="FAILED",
        error="ValueError: lr must be below 0.4",
        traceback='Traceback ...\n  File "train.py", line 3',
        class_name="ValueError",
        pickled="gASVAAAA",
        reason="failed: ValueError",
    )
    return ExperimentAnalysis(made.close())


def test_the_dataframe_has_its_columns_in_the_documented_order_each_of_a_dtype_of_its_own(mixed):
    frame, full = mixed.dataframe(), mixed.dataframe(full=True)
    metrics, config = ["loss", "eval/acc", "good", "note"], ["lr", "net/width", "act", "layers"]
    columns = ["number", "trial_id", "state", *metrics, *(f"config/{name}" for name in config), *OWN]
    assert list(frame.columns) == list(mixed.dataframe(full=False).columns) == columns
    assert list(full.columns) == list(mixed.get_dataframe().columns) == [*columns, *BOOKED]
    assert isinstance(frame.index, pd.RangeIndex)
    dtypes = {name: str(dtype) for name, dtype in full.dtypes.items()}
    assert "object" not in dtypes.values()
    assert dtypes["number"] == dtypes["config/net/width"] == dtypes["training_iteration"] == "Int64"
    assert dtypes["loss"] == dtypes["config/lr"] == dtypes["wait_s"] == "float64"
    assert dtypes["good"] == "boolean"
    assert dtypes["start_time"] == dtypes["end_time"] == "datetime64[us, UTC]"
    assert dtypes["state"] == dtypes["config/act"] == dtypes["error"] == dtypes["config/layers"] == "str"
    assert dtypes["timestamp"] == str(mixed[0].metrics_dataframe["timestamp"].dtype) == "Int64"


def test_the_rows_say_what_became_of_each_trial(mixed):
    frame = mixed.get_dataframe()
    start, end = (pd.Timestamp(T0 + at, unit="s", tz="UTC") for at in (1.0, 4.0))
    rows = {
        "number": [0, 1, 2, 3, 4, 5],
        "state": ["finished", "finished", "stopped early", "failed", "running", "waiting"],
        "stopped_early": [False, False, True, False, False, False],
        "status": [*["TERMINATED"] * 3, "ERROR", "RUNNING", "PENDING"],
        "reason": [None, None, "stopped early at rung 1", "failed: ValueError", None, "waits for 1 CPU"],
        "config/layers": [*[None] * 3, "[1, 2]", None, None],
        "error_class": [*[None] * 3, "ValueError", None, None],
        "error": [*[None] * 3, "ValueError: lr must be below 0.4", None, None],
    }
    for name, values in rows.items():
        assert [None if pd.isna(one) else one for one in frame[name]] == values
    assert frame["loss"].tolist()[:2] == [1.0, 4.0]
    assert frame["config/net/width"].isna().tolist() == [False, False, True, True, True, True]
    assert (frame["start_time"][0], frame["end_time"][0]) == (start, end)
    assert frame["end_time"].isna().tolist() == [False, False, False, False, True, True]
    assert frame["wait_s"].tolist()[:2] == [1.0, 0.5]
    assert math.isnan(frame["wait_s"][5])
    assert (frame["cpus"][4], frame["gpus"][4], frame["peak_rss_mb"][0]) == (2.0, 0.5, 123.0)
    assert frame["logdir"][0] == str(Path(mixed.experiment_path) / frame["trial_id"][0])


def test_metric_and_mode_show_each_trials_best_report_and_a_metric_alone_the_last(mixed):
    best, by_other = mixed.dataframe("loss", "min"), mixed.dataframe("eval/acc", "max")
    assert best["number"].tolist() == by_other["number"].tolist() == [0, 1, 2, 4]  # the others have reported nothing
    assert best["loss"].tolist()[:2] == [1.0, 0.1]
    assert best["training_iteration"].tolist() == [3, 1, 1, 1]
    assert best["loss"].isna().tolist() == [False, False, True, False]
    assert by_other["eval/acc"].tolist()[:2] == [0.2, 0.5]
    assert by_other["loss"].tolist()[3] == 9.0  # without the metric: the last report
    assert mixed.dataframe("loss", "min", style="ray")["trial_id"].tolist() == best["trial_id"].tolist()
    assert isinstance(best.index, pd.RangeIndex)
    assert mixed.get_dataframe("loss", "max")["loss"].tolist()[:2] == [3.0, 5.0]
    with pytest.raises(ConfigError, match="expected 'min' or 'max'"):
        mixed.dataframe("loss", "lowest")
    last = mixed.dataframe()["training_iteration"].dropna().tolist()
    assert mixed.dataframe(metric="eval/acc")["training_iteration"].tolist() == last
    assert mixed.get_dataframe("eval/acc")["training_iteration"].tolist() == last
    assert mixed.dataframe("loss")["training_iteration"].tolist() != last  # the sweep's own has a mode


def test_an_empty_experiment_gives_an_empty_frame_with_all_columns_and_dtypes(tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(MadeExperiment(tmp_path).close())
    assert list(analysis.dataframe().columns) == ["number", "trial_id", "state", *OWN]
    frame = analysis.dataframe(full=True)
    assert list(frame.columns) == ["number", "trial_id", "state", *OWN, *BOOKED]
    assert len(frame) == 0
    assert str(frame["state"].dtype) == "str"
    assert str(frame["start_time"].dtype) == "datetime64[us, UTC]"
    assert list(analysis.dataframe(style="optuna").columns)[:3] == ["number", "value", "datetime_start"]
    assert len(analysis.history()) == len(analysis.events()) == 0
    assert "none yet" in repr(analysis)
    assert len(ResultGrid(analysis)) == 0
    assert analysis._repr_html_()


def test_the_optuna_style_has_the_columns_of_trials_dataframe(mixed: ExperimentAnalysis) -> None:
    frame = mixed.dataframe(style="optuna")
    assert [*frame.columns] == [
        *("number", "value", "datetime_start", "datetime_complete", "duration"),
        *("params_lr", "params_net/width", "params_act", "params_layers"),
        *("user_attrs_eval/acc", "user_attrs_good", "user_attrs_note", "state"),
    ]
    assert frame["state"].tolist() == ["COMPLETE", "COMPLETE", "PRUNED", "FAIL", "RUNNING", "WAITING"]
    assert frame["value"].tolist()[:2] == [1.0, 4.0]
    assert frame["duration"][0] == pd.Timedelta(seconds=3)


def test_the_ray_style_begins_with_rays_columns_in_rays_order(mixed: ExperimentAnalysis) -> None:
    frame = mixed.dataframe(style="ray")
    names = [*frame.columns]
    start = names.index("timestamp")
    rays = ["timestamp", "checkpoint_dir_name", "done", "training_iteration", "trial_id", "date"]
    assert names[start : start + 6] == rays
    assert names.index("config/lr") < names.index("logdir") < names.index("number")
    assert frame["checkpoint_dir_name"][0] == "checkpoint_2"
    assert frame["done"].tolist() == [True, True, True, True, False, False]
    assert frame["pid"][0] == 4242
    with pytest.raises(ConfigError, match=r"expected .sweep., .ray., .optuna. or .wandb."):
        mixed.dataframe(style="rai")


def test_a_metric_named_like_a_column_has_one_name_whether_or_not_the_column_is_there(tmp_path):
    reported = {"attempt": 7.0, "logdir": "there", "state": "weird", "loss": 1.0}
    analysis = analysis_of(tmp_path, ({"x": 1}, [reported]))
    short, full = analysis.dataframe(), analysis.dataframe(full=True)
    assert [*short.columns] == [*full.columns][: len(short.columns)]
    assert "logdir" not in short.columns
    assert full["logdir"][0] != full["metric/logdir"][0] == "there"
    for frame in (short, full):
        assert [frame[name][0] for name in ("state", "metric/state", "metric/attempt")] == ["waiting", "weird", 7.0]
    as_study = analysis.dataframe("attempt", style="optuna")  # which has none of these columns
    assert [as_study[name][0] for name in ("value", "user_attrs_logdir", "user_attrs_state")] == [7.0, "there", "weird"]


def test_mixed_values_and_huge_integers_become_text_or_floats_but_never_fail(tmp_path: Path) -> None:
    values = (1, "auto", None, {"a": [1]}, 2**70)
    configs = [{"x": value, "n": 2**70 if value else 1, "obj": (1, 2), "c": object} for value in values]
    frame = analysis_of(tmp_path, *[(config, [{"loss": 1}]) for config in configs]).dataframe()
    assert frame["config/x"].tolist()[1] == "auto"
    assert frame["config/x/a"].tolist()[3] == "[1]"
    assert frame["config/x"].tolist()[0] == "1"
    assert frame["config/n"].tolist() == [str(2**70), str(2**70), "1", str(2**70), str(2**70)]
    assert frame["config/c"].tolist()[0] == "<class 'object'>"


def test_history_has_one_row_per_report_and_events_one_per_event(mixed):
    history, events = mixed.history(), mixed.events()
    assert list(history.columns[:5]) == ["number", "trial_id", "step", "time_s", "loss"]
    assert list(history.columns[-4:]) == ["attempt", "time_total_s", "timestamp", "wall"]
    assert history["step"].tolist() == [1, 1, 2, 2, 3, 3, 1, 1]
    assert str(history["timestamp"].dtype) == "Int64"
    assert events["event"].value_counts().to_dict() == {"Reported": 8, "Suggested": 6, "Started": 5, "Exited": 4}
    assert not events["detail"].str.contains("gASV").any()
    assert str(history["wall"].dtype) == str(events["wall"].dtype) == "datetime64[us, UTC]"
    whole = mixed.history(config=True)
    assert whole["config/lr"].tolist() == [mixed[number].config["lr"] for number in history["number"]]
    assert whole.drop(columns=[name for name in whole if name.startswith("config/")]).equals(history)


def test_best_by_every_scope(mixed: ExperimentAnalysis) -> None:
    def lr(scope: str, mode: str = "min") -> float:
        config = mixed.get_best_config("loss", mode, scope)
        return float(config["lr"])

    assert lr("last") == 0.1
    assert lr("all") == 0.2
    assert lr("avg") == 0.1
    assert lr("last-5-avg") == 0.1
    assert lr("last-10-avg", "max") == 0.5
    with pytest.raises(ConfigError, match="last-5-avg"):
        mixed.get_best_trial("loss", "min", "final")
    assert len(SCOPES) == 5


def test_nan_is_never_best_and_infinity_only_when_asked_for(tmp_path: Path) -> None:
    losses = (NAN, math.inf, 1.0, NAN)
    analysis = analysis_of(tmp_path, *[({"loss": str(loss)}, [{"loss": loss}]) for loss in losses])
    for scope in SCOPES:
        assert analysis.get_best_config("loss", "max", scope) == {"loss": "1.0"}
        best = analysis.get_best_trial("loss", "max", scope, filter_nan_and_inf=False)
        assert best.config == {"loss": "inf"}


def test_the_best_properties_agree(mixed: ExperimentAnalysis) -> None:
    best = mixed.best_trial
    assert best.number == 0
    assert mixed.best_config == {"lr": 0.1, "net": {"width": 16}, "act": "relu"}
    assert mixed.best_result["loss"] == 1.0
    assert mixed.best_result["config"] == mixed.best_config
    assert mixed.best_dataframe["loss"].tolist() == [3.0, 2.0, 1.0]
    assert mixed.best_result_df["loss"].tolist() == [1.0]
    assert mixed.best_result_df.index.tolist() == [best.trial_id]
    assert mixed.results_df.index.name == "trial_id"
    assert mixed.results[best.trial_id]["eval"] == {"acc": 0.2}
    assert [*mixed.trial_dataframes] == [trial.trial_id for trial in mixed.trials]
    assert mixed.get_all_configs(prefix=True)[best.trial_id]["config/net/width"] == 16


def test_a_trial_that_ended_in_order_without_a_report_is_done(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    silent, never_started = made.trial({"x": 1}), made.trial({"x": 2})
    made.start(silent)
    made.end(silent)
    made.set(never_started, status="TERMINATED", reason="the sweep ended")
    analysis = ExperimentAnalysis(made.close())
    one, other = analysis.trials
    assert one.last_result == analysis.results[silent]
    assert (one.last_result["done"], one.last_result["trial_id"], one.last_result["config"]) == (True, silent, {"x": 1})
    assert ResultGrid(analysis)[0].metrics == one.last_result
    assert (other.status, other.last_result) == ("TERMINATED", {})


def test_a_trial_view_is_frozen_and_complete(mixed: ExperimentAnalysis) -> None:
    view = mixed.trials[0]
    assert view.metric_n_steps["loss"]["5"] == deque(view.metric_n_steps["loss"]["10"], maxlen=5)
    assert (view.log_dir, view.local_dir) == (Path(view.path), str(Path(view.path).parent))
    means = {"avg": 2.0, "last-5-avg": 2.0, "last-10-avg": 2.0}
    assert view.metric_analysis["loss"] == {"max": 3.0, "min": 1.0, "last": 1.0, **means}
    assert view.path == view.logdir
    assert view.last_result["done"] is True
    assert view.error is None
    assert mixed.trials[3].last_result == mixed.trials[5].last_result == {}  # in ERROR, and waiting
    assert [view.has_checkpoint() for view in mixed.trials] == [True] + [False] * 5
    assert [view.status == view.ERROR for view in mixed.trials] == [False] * 3 + [True] + [False] * 2
    assert (view.TERMINATED, view.PAUSED) == ("TERMINATED", "PAUSED")
    with pytest.raises(AttributeError):
        view.status = "RUNNING"


def test_nothing_found_is_a_warning_that_names_what_was_reported(mixed: ExperimentAnalysis) -> None:
    with pytest.warns(UserWarning, match="Did you mean 'loss'") as said:
        assert mixed.get_best_trial("los", "min") is None
    with pytest.warns(UserWarning, match="Did you mean 'loss'") as also:
        assert mixed.get_best_config("los", "min") is None
    assert {warning.filename for warning in (*said, *also)} == {__file__}, "the caller's line, not one of the library"
    with pytest.warns(UserWarning, match="no checkpoint"):
        assert mixed.get_best_checkpoint(mixed.trials[1], "loss", "min") is None
    with pytest.warns(UserWarning, match="no checkpoint"):
        assert mixed.get_last_checkpoint(1) is None


def test_without_metric_or_mode_the_error_says_what_to_give_unless_there_is_a_single_trial(tmp_path):
    analysis = analysis_of(tmp_path, *[({"x": 1}, [{"loss": 1.0}])] * 2, metric=None, mode=None)
    with pytest.raises(ValueError, match="no metric and mode are known"):
        _ = analysis.best_config
    assert analysis.get_best_config("loss", "min") == {"x": 1}
    root = analysis.experiment_path
    assert ExperimentAnalysis(root, default_metric="loss", default_mode="min").best_config == {"x": 1}
    assert ExperimentAnalysis(root, default_mode="min").default_metric == "_metric"
    with pytest.raises(ConfigError, match="mode is 'least'"):
        ExperimentAnalysis(root, default_mode="least")
    single = analysis_of(tmp_path / "single", ({"x": 7}, [{"other": 1.0}]))
    assert single.best_config == ResultGrid(single).get_best_result().config == {"x": 7}


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (
            [(0.5, 0.4), (0.1, 0.9)],
            ["best loss=0.4 (min, trial 00000, scope='last'", "loss=0.1 (trial 00001 at step 1"],
        ),
        ([(2.0, 1.0), (3.0, 2.0)], ["best loss=1 (min, trial 00000, scope='last'", None]),
        ([(2.0, NAN), (1.0, NAN)], [None, "loss=1 (trial 00001 at step 1, scope='all')"]),
    ],
    ids=["another was better", "none was better", "no last report has a number"],
)
def test_repr_and_page_name_the_best_last_report_and_what_had_been_better(tmp_path, losses, said):
    trials = [({"x": number}, [{"loss": loss} for loss in some]) for number, some in enumerate(losses)]
    analysis = analysis_of(tmp_path, *trials)
    for text in (repr(analysis), html.unescape(analysis._repr_html_())):
        for words, wanted in zip(("best loss", "at an earlier step"), said, strict=True):
            assert text.count(words) == (wanted is not None)
            assert wanted is None or wanted in text


def test_an_analysis_and_its_grid_are_a_sequence_of_results(mixed):
    grid = ResultGrid(mixed)
    assert len(mixed) == len(grid) == 6
    assert [result.number for result in mixed] == [result.number for result in grid] == [0, 1, 2, 3, 4, 5]
    assert (mixed[1], mixed[-2:]) == (grid[1], grid[-2:]) == (grid[-5], grid[4:])
    assert str(mixed[1]) == repr(mixed[1])
    assert "last={'loss': 4.0" in f"{mixed[1]}"
    assert (grid[0].metrics["loss"], grid[0].metrics["done"], grid[0].config["lr"]) == (1.0, True, 0.1)
    assert grid[1].best_metrics["loss"] == 0.1
    assert grid[0].metrics_dataframe["eval/acc"].tolist() == [0.0, 0.1, 0.2]
    assert grid[0].metrics_dataframe["config/lr"].tolist() == [0.1] * 3
    assert (grid.num_errors, grid.num_terminated) == (1, 3)
    assert grid.get_best_result().trial_id == grid[0].trial_id
    assert grid.get_best_result(scope="all").trial_id == grid[1].trial_id
    with pytest.raises(RuntimeError, match="usable number"):
        grid.get_best_result("nope", "min")
    assert grid[9:] == []
    for index in (6, -7):
        with pytest.raises(IndexError):
            grid[index]


def test_an_error_has_the_class_and_traceback_of_the_original_or_the_reason_why_the_trial_never_ran(mixed, tmp_path):
    grid = ResultGrid(mixed)
    error = grid[3].error
    assert (type(error), str(error)) == (UserCodeError, "ValueError: lr must be below 0.4")
    assert error.class_name == "ValueError"
    assert "train.py" in error.traceback
    assert error.__notes__ == [error.traceback]
    assert [type(e) for e in grid.errors] == [UserCodeError]
    assert "status='ERROR'" in repr(grid[3])
    assert grid[0].error is None
    made = MadeExperiment(tmp_path)
    made.set(made.trial({}), status="ERROR", reason="asks for gpu=4, the largest node has 2")
    error = ResultGrid(ExperimentAnalysis(made.close()))[0].error
    assert isinstance(error, SweepError)
    assert "gpu=4" in str(error)


def test_checkpoints_are_those_that_still_exist_with_their_metrics(mixed: ExperimentAnalysis) -> None:
    result = ResultGrid(mixed)[0]
    root = Path(mixed.experiment_path)
    (root / result.trial_id / "checkpoint_1").rmdir()
    kept = result.best_checkpoints
    assert [(Path(c.path).name, m["loss"]) for c, m in kept] == [("checkpoint_0", 3.0), ("checkpoint_2", 1.0)]
    assert Path(result.checkpoint.path).name == "checkpoint_2"
    assert Path(result.get_best_checkpoint("loss", "max").path).name == "checkpoint_0"
    assert Path(result.get_best_checkpoint("eval/acc", "max").path).name == "checkpoint_2"
    assert Path(mixed.best_checkpoint.path).name == "checkpoint_2"
    assert mixed.get_last_checkpoint(result.trial_id) is not None
    with pytest.raises(MetricError, match="no report with a checkpoint"):
        result.get_best_checkpoint("lss", "min")
    with pytest.raises(ValueError, match="expected 'min' or 'max'"):
        result.get_best_checkpoint("loss", "best")
    with pytest.raises(CheckpointError, match="Report one"):
        ResultGrid(mixed)[1].get_best_checkpoint("loss", "min")


def test_a_checkpoint_saved_on_demand_has_the_metrics_of_the_report_before_it(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({})
    made.report(trial, {"loss": 2.0})
    made.event("Saved", trial, [1, f"{trial}/checkpoint_000001"])
    made.report(trial, {"loss": 1.0})
    (made.root / trial / "checkpoint_000001").mkdir(parents=True)
    ((_, metrics),) = ResultGrid(ExperimentAnalysis(made.close()))[0].best_checkpoints
    assert metrics["loss"] == 2.0


def test_a_running_experiment_is_seen_as_it_grows(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    first = made.trial({"x": 1})
    made.commit()
    analysis = ExperimentAnalysis(made.root)
    assert analysis.dataframe()["state"].tolist() == ["waiting"]
    made.start(first)
    made.report(first, {"loss": 3.0})
    assert analysis.dataframe()["state"].tolist() == ["waiting"]  # not committed yet
    made.commit()
    assert analysis.dataframe()["loss"].tolist() == [3.0]
    assert analysis.best_config == {"x": 1}
    made.close()


def test_frames_and_configs_are_fresh_each_time(mixed: ExperimentAnalysis) -> None:
    frame, config = mixed.dataframe(), mixed.best_config
    frame.loc[0, "loss"] = 99.0
    config["net"]["width"] = 99
    assert mixed.dataframe()["loss"][0] == 1.0
    assert mixed.best_config == {"lr": 0.1, "net": {"width": 16}, "act": "relu"}


def test_experiments_are_found_by_name_or_path_and_the_nearest_is_named(tmp_path):
    for name in ("mnist-asha", "digits"):
        MadeExperiment(tmp_path, name).close()
    assert [path.name for path in list_experiments(tmp_path)] == ["digits", "mnist-asha"]
    for name, root in (
        ("digits", tmp_path),
        (f"{tmp_path}/digits", "/elsewhere"),
        (f"{tmp_path}/digits/sweep.db", "/"),
    ):
        assert find_experiment(name, root).name == "digits"
    with pytest.raises(ExperimentError, match="Did you mean 'mnist-asha'"):
        find_experiment("mnist-ash", tmp_path)
    with pytest.raises(ExperimentError, match="holds none"):
        find_experiment("x", tmp_path / "empty")
    with pytest.raises(ExperimentError, match="there is no experiment at"):
        ExperimentAnalysis(tmp_path)
    (tmp_path / "sweep.db").write_text("not a database, however long this text may be " * 100)
    with pytest.raises(ExperimentError, match="cannot be read"):
        ExperimentAnalysis(tmp_path)


def test_metric_names_with_quotes_and_slashes_are_read(tmp_path: Path) -> None:
    reported = [{'a"b': value, "flat/key": value, "nested": {"key": value}} for value in (2.0, 1.0)]
    analysis = analysis_of(tmp_path, *[({"v": metrics["flat/key"]}, [metrics]) for metrics in reported])
    for metric in ('a"b', "flat/key", "nested/key"):
        assert analysis.get_best_config(metric, "min") == {"v": 1.0}


def test_the_pareto_set_holds_whom_no_other_beats_in_every_objective(tmp_path):
    made = MadeExperiment(tmp_path, metrics=["loss", "size"], modes=["min", "max"])
    for loss, size in ((1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (0.5, 0.5), (math.nan, 9.0), (2.0, 3.0)):
        trial_id = made.trial({"x": 1})
        made.start(trial_id)
        made.report(trial_id, {"loss": 9.0, "size": 9.0})
        made.report(trial_id, {"loss": loss, "size": size})
    made.trial({"x": 1})  # reported nothing
    analysis = ExperimentAnalysis(made.close())
    assert [trial.trial_id[-1] for trial in analysis.get_pareto_trials()] == ["0", "1", "3", "5"]
    assert [result.metrics["loss"] for result in ResultGrid(analysis).get_pareto_results()] == [1.0, 2.0, 0.5, 2.0]
    assert [t.trial_id[-1] for t in analysis.get_pareto_trials(["loss", "size"], ["max", "obs"])] == ["2"]
    for metric, mode in ((["loss"], ["min"]), ("loss", "min"), (["loss", "size"], ["min"])):
        with pytest.raises(ConfigError, match="expected two lists of equal length"):
            analysis.get_pareto_trials(metric, mode)
    with pytest.raises(ConfigError, match="mode"):
        analysis.get_pareto_trials(["loss", "size"], ["min", "least"])
    of_each = MadeExperiment(tmp_path, "of_each", metrics=["loss", "size"], modes=None)
    for loss, size in ((1.0, 2.0), (2.0, 1.0), (2.0, 2.0)):
        of_each.report(of_each.trial({}), {"loss": loss, "size": size})
    assert [trial.number for trial in ExperimentAnalysis(of_each.close()).get_pareto_trials()] == [0, 1]


SEVERAL = {"metric": "loss", "mode": "min", "metrics": ["loss", "size"], "modes": ["min", "max"]}


@pytest.fixture
def several(tmp_path: Path) -> ExperimentAnalysis:
    made = MadeExperiment(tmp_path, "several", **SEVERAL)
    for loss, size in ((0.1, 1.0), (0.2, 3.0), (0.3, 2.0)):
        trial_id = made.trial({"x": loss})
        made.start(trial_id)
        made.report(trial_id, {"loss": 0.01, "size": 9.0}, checkpoint=f"{trial_id}/checkpoint_000001")
        made.report(trial_id, {"loss": loss, "size": size})
        made.end(trial_id)
    return ExperimentAnalysis(made.close())


NAMED = [name for name in dir(ExperimentAnalysis) if name.startswith("best_")]


@pytest.mark.parametrize("name", [*NAMED, "get_best_trial", "get_best_config", "get_best_logdir"])
def test_of_several_objectives_nothing_is_best_and_the_error_names_the_pareto_set(several, name):
    said = r"several objectives, loss \(min\), size \(max\), so no single trial is best: get_pareto_trials\(\) has"
    asked = (lambda: getattr(several, name)) if name in NAMED else getattr(several, name)
    with pytest.raises(ValueError, match=said):
        asked()


def test_of_several_objectives_one_that_is_named_decides_with_its_mode(several):
    assert [several.get_best_config("loss"), several.get_best_config("size")] == [{"x": 0.1}, {"x": 0.2}]
    assert several.get_best_config("size", "min") == {"x": 0.1}
    assert several.dataframe("size")["size"].tolist() == [9.0] * 3
    by_one = ExperimentAnalysis(several.experiment_path, default_metric="size", default_mode="max")
    assert by_one.best_config == {"x": 0.2}
    assert "best size=3" in repr(by_one)
    result, chosen = several[0], ResultGrid(several).get_best_result("size")
    for name in ("best", "best_metrics", "best_checkpoint"):
        with pytest.raises(ValueError, match=r"get_pareto_results\(\) has those that no other beats"):
            getattr(result, name)
    with pytest.raises(ValueError, match="several objectives"):
        ResultGrid(several).get_best_result()
    assert "best" not in repr(result) + result._repr_html_()
    assert result.get_best_checkpoint("loss", "min").path.endswith("checkpoint_000001")
    assert (chosen.config, chosen.best["size"]) == ({"x": 0.2}, 9.0)


@pytest.mark.parametrize("set_index", [True, False])
def test_of_repeats_the_suggestion_with_the_best_mean_wins_and_its_number_is_no_part_of_the_config(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], set_index: bool
) -> None:
    losses = {(0, 0): 0.0, (0, 1): 9.0, (1, 0): 2.0, (1, 1): 1.0, (2, 0): 8.0, (2, 1): math.nan}  # the first was lucky

    def train(config: dict[str, Any]) -> None:
        sweep.report(loss=losses[config["x"], int(sweep.get_context().get_trial_id()[-5:]) % 2])

    searcher = Repeater(sweep.BasicVariantGenerator(), repeat=2, set_index=set_index)
    space = {"x": sweep.grid_search([0, 1, 2])}
    options: dict[str, Any] = {"metric": "loss", "mode": "min", "storage_path": tmp_path, "engine": "inline"}
    analysis = sweep.run(train, config=space, search_alg=searcher, num_samples=2, **options)
    shown = capfd.readouterr().out
    assert analysis.best_config == {"x": 1}
    best = analysis.get_best_trial()
    assert best.config == {"x": 1, **({"__trial_index__": 0} if set_index else {})}, "a trial has what it was given"
    assert [round(value, 6) for _, value in analysis.ranking()] == [1.5, 1.5, 4.5, 4.5, 8.0, 8.0]
    assert "config/__trial_index__" not in analysis.dataframe().columns
    assert "__trial_index__" not in shown
    assert "best  loss 1.5" in shown
    assert "best config:\n  x: 1\n" in shown
