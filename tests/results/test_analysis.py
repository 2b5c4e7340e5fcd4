"""What users read of an experiment: best trials, results, dataframes."""

from __future__ import annotations

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
from sweep.results.analysis import ExperimentAnalysis, ExperimentReader, ResultGrid
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


def test_the_dataframe_has_its_columns_in_the_documented_order(mixed: ExperimentAnalysis) -> None:
    frame = mixed.dataframe()
    metrics, config = ["loss", "eval/acc", "good", "note"], ["lr", "net/width", "act", "layers"]
    columns = ["number", "trial_id", "state", *metrics, *(f"config/{name}" for name in config), *OWN]
    assert list(frame.columns) == list(mixed.dataframe(full=False).columns) == columns
    assert list(mixed.dataframe(full=True).columns) == list(mixed.get_dataframe().columns) == [*columns, *BOOKED]
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame["number"].tolist() == [0, 1, 2, 3, 4, 5]


def test_no_column_is_of_dtype_object_and_each_kind_has_its_own(mixed: ExperimentAnalysis) -> None:
    dtypes = {name: str(dtype) for name, dtype in mixed.dataframe(full=True).dtypes.items()}
    assert "object" not in dtypes.values()
    assert dtypes["number"] == dtypes["config/net/width"] == dtypes["training_iteration"] == "Int64"
    assert dtypes["loss"] == dtypes["config/lr"] == dtypes["wait_s"] == "float64"
    assert dtypes["good"] == "boolean"
    assert dtypes["start_time"] == dtypes["end_time"] == "datetime64[us, UTC]"
    assert dtypes["state"] == dtypes["config/act"] == dtypes["error"] == dtypes["config/layers"] == "str"


def test_the_rows_say_what_became_of_each_trial(mixed: ExperimentAnalysis) -> None:
    frame = mixed.get_dataframe()
    assert frame["state"].tolist() == ["finished", "finished", "stopped early", "failed", "running", "waiting"]
    assert frame["stopped_early"].tolist() == [False, False, True, False, False, False]
    assert frame["reason"].dropna().tolist() == ["stopped early at rung 1", "failed: ValueError", "waits for 1 CPU"]
    assert frame["status"].tolist() == [*["TERMINATED"] * 3, "ERROR", "RUNNING", "PENDING"]
    assert frame["loss"].tolist()[:2] == [1.0, 4.0]
    assert frame["config/net/width"].isna().tolist() == [False, False, True, True, True, True]
    assert frame["config/layers"][3] == "[1, 2]"
    assert frame["start_time"][0] == pd.Timestamp(T0 + 1.0, unit="s", tz="UTC")
    assert frame["end_time"][0] == pd.Timestamp(T0 + 4.0, unit="s", tz="UTC")
    assert frame["end_time"].isna().tolist() == [False, False, False, False, True, True]
    assert frame["wait_s"].tolist()[:2] == [1.0, 0.5]
    assert math.isnan(frame["wait_s"][5])
    assert (frame["cpus"][4], frame["gpus"][4]) == (2.0, 0.5)
    assert frame["peak_rss_mb"][0] == 123.0
    assert (frame["error_class"][3], frame["error"][3]) == ("ValueError", "ValueError: lr must be below 0.4")
    assert frame["error"].isna().sum() == 5
    assert frame["logdir"][0] == str(Path(mixed.experiment_path) / frame["trial_id"][0])


def test_metric_and_mode_show_each_trials_best_report(mixed: ExperimentAnalysis) -> None:
    best = mixed.dataframe("loss", "min")
    assert best["loss"].tolist()[:2] == [1.0, 0.1]
    assert best["number"].tolist() == [0, 1, 2, 4]  # the others have reported nothing
    assert best["training_iteration"].tolist() == [3, 1, 1, 1]
    assert best["loss"].isna().tolist() == [False, False, True, False]
    by_other = mixed.dataframe("eval/acc", "max")
    assert by_other["number"].tolist() == [0, 1, 2, 4]
    assert by_other["loss"].tolist()[3] == 9.0  # without the metric: the last report
    assert mixed.dataframe("loss", "min", style="ray")["trial_id"].tolist() == best["trial_id"].tolist()
    assert isinstance(best.index, pd.RangeIndex)
    assert mixed.get_dataframe("loss", "max")["loss"].tolist()[:2] == [3.0, 5.0]
    assert mixed.dataframe("eval/acc", "max")["eval/acc"].tolist()[:2] == [0.2, 0.5]
    with pytest.raises(ConfigError, match="expected 'min' or 'max'"):
        mixed.dataframe("loss", "lowest")


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
    with pytest.raises(ConfigError, match=r"expected .sweep., .ray. or .optuna."):
        mixed.dataframe(style="rai")


def test_a_metric_named_like_a_column_is_kept_beside_it(tmp_path: Path) -> None:
    frame = analysis_of(tmp_path, ({"x": 1}, [{"state": "weird", "loss": 1.0}])).dataframe()
    assert frame["state"].tolist() == ["waiting"]
    assert frame["metric/state"].tolist() == ["weird"]


def test_a_column_has_one_name_whether_or_not_the_others_are_there(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, ({"x": 1}, [{"attempt": 7.0, "logdir": "there", "loss": 1.0}]))
    short, full = analysis.dataframe(), analysis.dataframe(full=True)
    assert [*short.columns] == [*full.columns][: len(short.columns)]
    assert short["metric/attempt"].tolist() == full["metric/attempt"].tolist() == [7.0]
    assert "logdir" not in short.columns
    assert full["logdir"][0] != full["metric/logdir"][0] == "there"


def test_mixed_values_and_huge_integers_become_text_or_floats_but_never_fail(tmp_path: Path) -> None:
    values = (1, "auto", None, {"a": [1]}, 2**70)
    configs = [{"x": value, "n": 2**70 if value else 1, "obj": (1, 2), "c": object} for value in values]
    frame = analysis_of(tmp_path, *[(config, [{"loss": 1}]) for config in configs]).dataframe()
    assert frame["config/x"].tolist()[1] == "auto"
    assert frame["config/x/a"].tolist()[3] == "[1]"
    assert frame["config/x"].tolist()[0] == "1"
    assert frame["config/n"].tolist() == [str(2**70), str(2**70), "1", str(2**70), str(2**70)]
    assert frame["config/c"].tolist()[0] == "<class 'object'>"


def test_history_has_one_row_per_report_and_events_one_per_event(mixed: ExperimentAnalysis) -> None:
    history = mixed.history()
    assert list(history.columns[:5]) == ["number", "trial_id", "step", "time_s", "loss"]
    assert list(history.columns[-4:]) == ["attempt", "time_total_s", "timestamp", "wall"]
    assert len(history) == 8
    assert history["step"].tolist()[:4] == [1, 1, 2, 2]
    events = mixed.events()
    assert events["event"].value_counts().to_dict() == {"Reported": 8, "Suggested": 6, "Started": 5, "Exited": 4}
    assert not events["detail"].str.contains("gASV").any()


def test_a_time_stamp_is_of_one_dtype_in_every_table(mixed: ExperimentAnalysis) -> None:
    tables = [mixed.history(), mixed.dataframe(full=True), mixed[0].metrics_dataframe]
    assert {str(table["timestamp"].dtype) for table in tables} == {"Int64"}
    assert str(mixed.history()["wall"].dtype) == str(mixed.events()["wall"].dtype) == "datetime64[us, UTC]"


def test_history_names_the_trial_by_its_number_and_has_the_config_on_request(mixed: ExperimentAnalysis) -> None:
    history = mixed.history(config=True)
    of_trial = dict(zip(mixed.dataframe()["number"], mixed.dataframe()["config/lr"], strict=True))
    assert history["config/lr"].tolist() == [of_trial[number] for number in history["number"]]
    assert history.drop(columns=[name for name in history if name.startswith("config/")]).equals(mixed.history())


def test_an_analysis_is_a_sequence_of_results_as_the_grid_is(mixed: ExperimentAnalysis) -> None:
    assert len(mixed) == len(ResultGrid(mixed)) == 6
    assert [result.number for result in mixed] == [0, 1, 2, 3, 4, 5]
    assert (mixed[1], mixed[-2:]) == (ResultGrid(mixed)[1], ResultGrid(mixed)[-2:])
    assert str(mixed[1]) == repr(mixed[1])  # with its metrics
    assert "last={'loss': 4.0" in f"{mixed[1]}"


def test_another_metric_without_a_mode_shows_the_last_reports_as_in_tune(mixed: ExperimentAnalysis) -> None:
    last = mixed.dataframe()["training_iteration"].dropna().tolist()
    assert mixed.dataframe(metric="eval/acc")["training_iteration"].tolist() == last
    assert mixed.get_dataframe("eval/acc")["training_iteration"].tolist() == last
    assert mixed.dataframe("loss")["training_iteration"].tolist() != last  # the sweep's own has a mode
    without = ExperimentAnalysis(mixed.experiment_path, default_metric="eval/acc", default_mode=None)
    without.default_mode = None
    assert without.dataframe("eval/acc")["training_iteration"].tolist() == last


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


def test_without_metric_or_mode_the_error_says_what_to_give(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, *[({"x": 1}, [{"loss": 1.0}])] * 2, metric=None, mode=None)
    with pytest.raises(ValueError, match="no metric and mode are known"):
        _ = analysis.best_config
    assert analysis.get_best_config("loss", "min") == {"x": 1}
    root = analysis.experiment_path
    assert ExperimentAnalysis(root, default_metric="loss", default_mode="min").best_config == {"x": 1}
    assert ExperimentAnalysis(root, default_mode="min").default_metric == "_metric"


def test_a_single_trial_is_best_whatever_it_reported(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, ({"x": 7}, [{"other": 1.0}]))
    assert analysis.best_config == {"x": 7}
    assert ResultGrid(analysis).get_best_result().config == {"x": 7}


def test_the_repr_says_which_scope_was_used(mixed: ExperimentAnalysis) -> None:
    text = repr(mixed)
    assert "best loss=1 (min, trial 00000, scope='last'" in text
    assert "at an earlier step loss=0.1 (trial 00001 at step 1, scope='all')" in text
    assert "1 waiting" in text
    page = ResultGrid(mixed)._repr_html_()
    assert "scope=" in page
    assert "<table" in page


def test_nothing_is_said_of_earlier_steps_where_no_report_was_better(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, *[({"x": loss}, [{"loss": loss + 1}, {"loss": loss}]) for loss in (1.0, 2.0)])
    for text in (repr(analysis), analysis._repr_html_()):
        assert text.count("best loss") == 1
        assert "earlier" not in text


def test_an_earlier_report_is_named_where_no_last_report_has_a_number(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, *[({"x": loss}, [{"loss": loss}, {"loss": NAN}]) for loss in (2.0, 1.0)])
    assert "best" not in repr(analysis)
    assert "at an earlier step loss=1 (trial 00001 at step 1, scope='all')" in repr(analysis)


def test_a_result_grid_is_a_sequence_of_results(mixed: ExperimentAnalysis) -> None:
    grid = ResultGrid(mixed)
    assert len(grid) == 6
    assert [result.trial_id for result in grid] == [trial.trial_id for trial in mixed.trials]
    assert grid[0].metrics["loss"] == 1.0
    assert grid[0].metrics["done"] is True
    assert grid[0].config["lr"] == 0.1
    assert grid[0].best_metrics is not None
    assert grid[1].best_metrics["loss"] == 0.1
    assert grid[0].metrics_dataframe["eval/acc"].tolist() == [0.0, 0.1, 0.2]
    assert grid[0].metrics_dataframe["config/lr"].tolist() == [0.1] * 3
    assert (grid.num_errors, grid.num_terminated) == (1, 3)
    assert grid.get_best_result().trial_id == grid[0].trial_id
    assert grid.get_best_result(scope="all").trial_id == grid[1].trial_id
    assert "status='ERROR'" in repr(grid[3])
    with pytest.raises(RuntimeError, match="usable number"):
        grid.get_best_result("nope", "min")
    with pytest.raises(IndexError):
        grid[6]


def test_an_error_comes_back_with_the_class_and_traceback_of_the_original(mixed: ExperimentAnalysis) -> None:
    grid = ResultGrid(mixed)
    error = grid[3].error
    assert isinstance(error, UserCodeError)
    assert str(error) == "ValueError: lr must be below 0.4"
    assert error.class_name == "ValueError"
    assert "train.py" in error.traceback
    assert error.__notes__ == [error.traceback]
    assert [type(e) for e in grid.errors] == [UserCodeError]
    assert grid[0].error is None


def test_a_trial_that_never_ran_has_its_reason_as_error(tmp_path: Path) -> None:
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


def test_a_missing_a_foreign_and_a_damaged_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="there is no experiment at"):
        ExperimentAnalysis(tmp_path)
    (tmp_path / "sweep.db").write_text("not a database, however long this text may be " * 100)
    with pytest.raises(ExperimentError, match="cannot be read"):
        ExperimentAnalysis(tmp_path)
    with pytest.raises(ConfigError, match="mode is 'least'"):
        ExperimentAnalysis(MadeExperiment(tmp_path, "x").close(), default_mode="least")


def test_reading_never_loads_a_pickle(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    analysis = analysis_of(tmp_path, ({"x": _Touch(witness)}, [{"loss": 1.0, "extra": _Touch(witness)}]))
    analysis.dataframe()
    analysis.history()
    assert repr(analysis.trials[0].config["x"]) == "touch()"
    assert not witness.exists()


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))

    def __repr__(self) -> str:
        return "touch()"


def test_trials_are_named_by_id_or_number(mixed: ExperimentAnalysis) -> None:
    reader = ExperimentReader(mixed.experiment_path)
    ids = [trial.trial_id for trial in reader.trials()]
    assert [reader.trial(name).trial_id for name in (ids[3], "3", "00003", 3)] == [ids[3]] * 4
    for wrong in ("77", "x", ids[3][:-1]):
        with pytest.raises(ConfigError, match="from 0 to 5"):
            reader.trial(wrong)


def test_experiments_are_found_by_name_or_path_and_the_nearest_is_named(tmp_path: Path) -> None:
    for name in ("mnist-asha", "digits"):
        MadeExperiment(tmp_path, name).close()
    assert [path.name for path in list_experiments(tmp_path)] == ["digits", "mnist-asha"]
    assert find_experiment("digits", tmp_path).name == "digits"
    assert find_experiment(str(tmp_path / "digits"), "/elsewhere").name == "digits"
    assert find_experiment(str(tmp_path / "digits" / "sweep.db"), "/elsewhere").name == "digits"
    with pytest.raises(ExperimentError, match="Did you mean 'mnist-asha'"):
        find_experiment("mnist-ash", tmp_path)
    with pytest.raises(ExperimentError, match="holds none"):
        find_experiment("x", tmp_path / "empty")


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


def test_of_several_objectives_no_result_is_best_unless_one_is_named(several: ExperimentAnalysis) -> None:
    grid = ResultGrid(several)
    for name in ("best", "best_metrics", "best_checkpoint"):
        with pytest.raises(ValueError, match=r"get_pareto_results\(\) has those that no other beats"):
            getattr(grid[0], name)
    with pytest.raises(ValueError, match="several objectives"):
        grid.get_best_result()
    assert "best=" not in repr(grid[0])
    assert "best" not in grid[0]._repr_html_()
    assert grid[0].get_best_checkpoint("loss", "min").path.endswith("checkpoint_000001")
    chosen = grid.get_best_result("size")
    assert chosen.config == {"x": 0.2}
    assert chosen.best["size"] == 9.0


def test_of_several_objectives_one_that_is_named_has_its_mode(several: ExperimentAnalysis) -> None:
    assert several.get_best_config("loss") == {"x": 0.1}
    assert several.get_best_config("size") == {"x": 0.2}
    assert several.get_best_config("size", "min") == {"x": 0.1}
    assert several.dataframe("size")["size"].tolist() == [9.0] * 3
    by_one = ExperimentAnalysis(several.experiment_path, default_metric="size", default_mode="max")
    assert by_one.best_config == {"x": 0.2}
    assert "best size=3" in repr(by_one)


def test_one_mode_for_several_metrics_is_that_of_each(tmp_path: Path) -> None:
    reported = [{"loss": loss, "size": size} for loss, size in ((1.0, 2.0), (2.0, 1.0), (2.0, 2.0))]
    analysis = analysis_of(tmp_path, *[({}, [metrics]) for metrics in reported], metrics=["loss", "size"], modes=None)
    assert [trial.number for trial in analysis.get_pareto_trials()] == [0, 1]
    with pytest.raises(ValueError, match=r"loss \(min\), size \(min\)"):
        _ = analysis.best_config


def test_of_several_objectives_the_repr_shows_the_pareto_set(several: ExperimentAnalysis) -> None:
    assert (
        "Pareto set by loss (min), size (max): 2 trials, get_pareto_trials(): 00000 (0.1, 1), 00001 (0.2, 3)"
        in repr(several)
    )
    assert "best" not in repr(several)


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
