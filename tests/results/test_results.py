"""One trial as users read it: its fields, its error, its best report and checkpoint, in any process."""

from __future__ import annotations

import base64
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from made_experiment import T0, MadeExperiment

import sweep as tune
from sweep.core.resources import Resources
from sweep.core.results import date_str
from sweep.errors import ConfigError, ExperimentError, UserCodeError
from sweep.results.analysis import ExperimentAnalysis, Result, ResultGrid, TrialView, own_analysis

CORE_AND_COMMON = [
    *("training_iteration", "time_this_iter_s", "time_total_s", "trial_id", "timestamp", "date", "pid", "hostname"),
    *("node_ip", "config", "done", "experiment_tag", "time_since_restore", "iterations_since_restore"),
    "checkpoint_dir_name",
]


class Boom(ValueError):
    """What the user's code raises."""


def pickled(value: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(value)).decode()


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    """Three trials: one that got worse again, one that failed, one that runs."""
    made = MadeExperiment(tmp_path, "made", trainable={"name": "train", "kind": "function"}, variables=["lr"])
    made.event("PlanChanged", data={"max_failures": 3, "checkpoint_score": "", "checkpoint_mode": "max"})
    worse = made.trial({"lr": 0.1, "depth": 2})
    made.start(worse)
    for step, loss in enumerate([3.0, 1.0, 2.0], start=1):
        checkpoint = f"{worse}/checkpoint_00000{step}" if step < 3 else None
        made.report(worse, {"loss": loss, "eval": {"acc": step / 10}}, checkpoint=checkpoint, at=2.0 + step)
    made.end(worse, at=6.0)
    failed = made.trial({"lr": 0.2, "depth": 2})
    made.start(failed)
    made.report(failed, {"loss": 5.0})
    text = 'Traceback\n  File "train.py", line 3'
    own = pickled(Boom("lr"))
    made.end(failed, kind="FAILED", error="Boom: lr", traceback=text, class_name="Boom", pickled=own, reason="Boom: lr")
    made.set(failed, failures=1)
    made.start(made.trial({"lr": 0.3, "depth": 2}, resources={"bundles": [{"cpu": 2, "gpu": 1}]}))
    made.commit()
    return made


@pytest.fixture
def grid(made: MadeExperiment) -> ResultGrid:
    return ResultGrid(ExperimentAnalysis(made.close()))


def opened(grid: ResultGrid, **options: Any) -> ExperimentAnalysis:
    return ExperimentAnalysis(grid.experiment_path, **options)


# --- fields ---


def test_every_field_that_tune_fills_in_is_there(grid: ResultGrid) -> None:
    result = grid[0].metrics
    assert [key for key in CORE_AND_COMMON if key not in result] == []
    assert {key: result[key] for key in CORE_AND_COMMON if key not in ("pid", "hostname")} == {
        "training_iteration": 3,
        "time_this_iter_s": 0.5,
        "time_total_s": 1.5,
        "trial_id": "abcde_00000",
        "timestamp": int(T0) + 5,
        "date": date_str(T0 + 5),
        "node_ip": "127.0.0.1",
        "config": {"lr": 0.1, "depth": 2},
        "done": True,
        "experiment_tag": "0_lr=0.1000",
        "time_since_restore": 1.5,
        "iterations_since_restore": 3,
        "checkpoint_dir_name": None,
    }
    assert opened(grid).trials[0].last_result == opened(grid).results["abcde_00000"] == result
    assert "should_checkpoint" not in result


def test_every_field_is_a_column_of_every_frame(grid: ResultGrid) -> None:
    wanted = {*CORE_AND_COMMON, "config/lr"} - {"config"}
    by_report = grid[0].metrics_dataframe
    assert wanted <= set(by_report.columns)
    assert by_report["checkpoint_dir_name"].tolist()[:2] == ["checkpoint_000001", "checkpoint_000002"]
    assert by_report["checkpoint_dir_name"].isna().tolist() == [False, False, True]
    assert by_report["date"].tolist() == [date_str(T0 + at) for at in (3, 4, 5)]
    assert wanted <= set(grid.get_dataframe().columns)
    assert wanted <= {*grid.get_dataframe(style="ray").columns}
    assert grid.get_dataframe()["experiment_tag"].tolist() == ["0_lr=0.1000", "1_lr=0.2000", "2_lr=0.3000"]
    assert grid.get_dataframe()["pid"].tolist() == [4242, 4242, 4242]
    best = grid.get_dataframe("loss", "min")
    assert (best["checkpoint_dir_name"][0], best["date"][0]) == ("checkpoint_000002", date_str(T0 + 4))


def test_what_the_user_reports_under_such_a_name_is_kept(tmp_path):
    told = {"timestamp": 12, "date": "yesterday", "pid": 1, "hostname": "box", "node_ip": "10.0.0.1", "done": True}
    made = MadeExperiment(tmp_path)
    made.report(made.trial({}), told)
    result = ResultGrid(ExperimentAnalysis(made.close()))[0]
    assert {key: result.metrics[key] for key in told} == told | {"done": False}  # the trial has not ended
    assert result.metrics_dataframe.loc[0, [*told]].to_dict() == told


@pytest.mark.parametrize("stamp", [math.nan, 1e300, "soon", None, -1e300])
def test_an_odd_timestamp_costs_the_date_only(tmp_path: Path, stamp: Any) -> None:
    made = MadeExperiment(tmp_path)
    made.report(made.trial({}), {"timestamp": stamp, "loss": 1.0})
    grid = ResultGrid(ExperimentAnalysis(made.close()))
    assert grid[0].metrics["date"] is None
    assert grid[0].metrics_dataframe["loss"].tolist() == grid.get_dataframe()["loss"].tolist() == [1.0]


# --- the trial ---


def test_a_trial_has_what_tunes_trials_have(grid: ResultGrid) -> None:
    ended, failed, running = opened(grid).trials
    assert str(ended) == ended.trial_name == "train_abcde_00000"
    assert (ended.trainable_name, ended.custom_trial_name) == ("train", None)
    assert ended.evaluated_params == {"lr": 0.1}
    assert ended.experiment_tag == "0_lr=0.1000"
    assert ended.local_path == ended.path == ended.logdir == f"{grid.experiment_path}/abcde_00000"
    assert [trial.is_finished() for trial in (ended, failed, running)] == [True, True, False]
    assert (failed.num_failures, failed.max_failures, ended.num_failures) == (1, 3, 0)
    assert running.resources == running.placement_group_factory
    assert isinstance(running.resources, Resources)
    assert (running.resources.total.cpu, running.resources.total.gpu) == (2.0, 1.0)
    assert Path(ended.checkpoint.path).name == "checkpoint_000002"
    assert {ended: 1}[opened(grid).trials[0]] == 1
    assert running.status == "RUNNING"
    assert running.reason == "no driver runs it: it was running when its driver died"
    assert repr(grid).endswith("no driver runs it)")
    with pytest.raises(AttributeError, match=r"^a trial has no attribute 'relative_logdir'$"):
        _ = ended.relative_logdir


def test_a_trials_errors_are_texts_unless_the_experiment_is_trusted(grid: ResultGrid) -> None:
    assert opened(grid).trials[1].get_pickled_error() is None
    ended, failed, _ = opened(grid, trust=True).trials
    assert (ended.get_error(), ended.get_pickled_error(), ended.error_file) == (None, None, None)
    assert failed.get_error() == 'Traceback\n  File "train.py", line 3'
    assert isinstance(failed.get_pickled_error(), Boom)
    assert failed.error_file is None
    path = Path(failed.path, "error.txt")
    path.parent.mkdir(exist_ok=True)
    path.write_text("Failure # 1")
    assert failed.error_file == str(path)


# --- the best ---


def test_a_result_is_equal_to_itself_and_has_its_last_and_its_best_report(grid: ResultGrid) -> None:
    result = grid[0]
    assert result.last == result.metrics
    assert (result.last["loss"], result.best["loss"], result.best["training_iteration"]) == (2.0, 1.0, 2)
    assert result.best["checkpoint_dir_name"] == "checkpoint_000002"
    assert result.best_metrics == result.best
    assert (grid[2].best, grid[2].metrics) == (None, {})
    assert grid[0] == grid[0]
    assert grid[0] != grid[1]
    assert grid[0] != "abcde_00000"
    assert len({grid[0], grid[0], grid[1]}) == 2


def test_the_best_result_says_by_what_and_offers_the_checkpoint_of_its_best_report(grid: ResultGrid) -> None:
    best = grid.get_best_result()
    assert repr(best) == (
        "Result(best of 3 trials by loss (min, scope='last'): 2, trial_id='abcde_00000', status='TERMINATED', "
        "last={'loss': 2.0, 'eval': {'acc': 0.3}, 'training_iteration': 3}, "
        "best={'loss': 1.0, 'eval': {'acc': 0.2}, 'training_iteration': 2}, config={'lr': 0.1, 'depth': 2}, "
        f"best_checkpoint='{best.path}/checkpoint_000002' of "
        "{'loss': 1.0, 'eval': {'acc': 0.2}, 'training_iteration': 2}, "
        f"path='{best.path}')"
    )
    assert best.best_checkpoint == best.get_best_checkpoint("loss", "min")
    assert best.choice is not None
    assert "scope='all'): 1" in repr(grid.get_best_result(scope="all"))


def test_the_best_of_a_chosen_result_is_by_the_metric_it_was_chosen_by(grid: ResultGrid) -> None:
    by_accuracy = grid.get_best_result("eval/acc", "max", scope="avg")
    assert (by_accuracy.choice.metric, round(by_accuracy.choice.value, 6)) == ("eval/acc", 0.2)
    assert by_accuracy.best["eval"] == {"acc": 0.3}
    highest = grid.get_best_result("loss", "max")
    assert highest.trial_id == "abcde_00001"
    assert highest.best_checkpoint is None


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        ({"checkpoint_score": "", "checkpoint_mode": "max"}, ["1", "2", "3", "4"]),
        ({"checkpoint_score": "loss", "checkpoint_mode": "max"}, ["3", "2", "4", "1"]),
        ({"checkpoint_score": "loss", "checkpoint_mode": "min"}, ["3", "1", "4", "2"]),
        ({"checkpoint_score": "eval/acc", "checkpoint_mode": "max"}, ["4", "3", "2", "1"]),
    ],
)
def test_checkpoints_are_ordered_by_their_score_the_best_last(tmp_path, plan, names):
    made = MadeExperiment(tmp_path)
    made.event("PlanChanged", data={"checkpoint_score": "other"})
    made.event("PlanChanged", data=plan)
    trial = made.trial({})
    for step, loss in enumerate([9.0, 1.0, math.nan, 5.0], start=1):
        made.report(trial, {"loss": loss, "eval": {"acc": -step}}, checkpoint=f"{trial}/checkpoint_{step}")
    kept = ResultGrid(ExperimentAnalysis(made.close()))[0].best_checkpoints
    assert [checkpoint.path[-1] for checkpoint, _ in kept] == names


# --- errors ---


def test_an_error_has_the_users_own_exception_as_its_cause_where_the_experiment_is_trusted(grid: ResultGrid) -> None:
    error = grid[1].error
    assert isinstance(error, UserCodeError)
    assert (str(error), error.class_name, error.__cause__) == ("Boom: lr", "Boom", None)
    assert [one.__cause__ for one in grid.errors] == [None]
    assert isinstance(Result.from_path(grid[1].path, trust=True).error.__cause__, Boom)
    grid = ResultGrid(opened(grid, trust=True))
    error = grid[1].error
    assert isinstance(error, UserCodeError)
    assert str(error) == "Boom: lr"
    assert isinstance(error.__cause__, Boom)
    assert error.__cause__.args == ("lr",)
    assert [type(one.__cause__) for one in grid.errors] == [Boom]


def forgotten() -> str:
    """Return the pickle of an exception whose module does not exist."""
    text = pickle.dumps(KeyError("x"), protocol=0).replace(b"builtins", b"gone_module")
    return base64.b64encode(text.replace(b"exceptions", b"gone_module")).decode()


class Exits(Exception):
    def __reduce__(self) -> Any:
        return (sys.exit, (3,))


@pytest.mark.parametrize(
    "kept", ["", "gASVAAAA", "AAAA", forgotten(), pickled("no exception"), pickled(Exits())], ids=range(6)
)
def test_an_exception_that_cannot_be_loaded_leaves_the_text(tmp_path: Path, kept: str) -> None:
    made = MadeExperiment(tmp_path)
    exit_ = {"error": "KeyError: x", "class_name": "KeyError", "traceback": "Traceback", "pickled": kept}
    made.end(made.trial({}), kind="FAILED", **exit_)
    error = ResultGrid(ExperimentAnalysis(made.close(), trust=True))[0].error
    assert isinstance(error, UserCodeError)
    assert (str(error), error.class_name, error.__cause__) == ("KeyError: x", "KeyError", None)


class Witness(Exception):
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (_touch, (self.path,))


def _touch(path: str) -> Witness:
    Path(path).touch()
    return Witness(path)


def test_only_asking_for_the_error_of_what_is_trusted_loads_its_pickle(tmp_path: Path) -> None:
    witness, other = tmp_path / "witness", tmp_path / "other"
    made = MadeExperiment(tmp_path)
    for _ in range(2):
        trial = made.trial({"x": Witness(str(other))})
        made.report(trial, {"loss": 1.0, "extra": Witness(str(other))})
        made.end(trial, kind="FAILED", error="Witness", pickled=pickled(Witness(str(witness))))
    analysis = ExperimentAnalysis(made.close())
    grid = ResultGrid(analysis)
    shown = [repr(grid), repr(grid[0]), str(analysis.trials), grid[0]._repr_html_(), grid._repr_html_()]
    shown += [analysis.trials[0]._repr_html_(), repr(analysis.best_result), str(analysis.trials[0].get_error())]
    for frame in (analysis.dataframe(), analysis.history(), analysis.events(), grid[0].metrics_dataframe):
        shown.append(frame.to_string())
    pickle.loads(pickle.dumps((analysis, grid, grid[0], analysis.trials)))
    assert all(shown)
    assert isinstance(grid[1].error, UserCodeError)
    assert analysis.trials[0].get_pickled_error() is None
    assert not witness.exists()
    assert not other.exists()
    assert isinstance(Result.from_path(grid[1].path, trust=True).error, UserCodeError)
    assert witness.exists()


# --- objects in configs ---


def act(x: float) -> float:
    return x


def test_objects_in_configs_and_reports_are_loaded_of_what_is_trusted_or_was_made_by_this_process(tmp_path):
    made = MadeExperiment(tmp_path)
    made.report(made.trial({"act": act, "net": {"kind": Boom}}), {"loss": 1.0, "extra": Boom})
    made.close()
    trusted, foreign = (ExperimentAnalysis(made.root, trust=trust) for trust in (True, False))
    own = own_analysis(made.root)
    for one in (trusted, own):
        assert one.best_config == one.trials[0].config == {"act": act, "net": {"kind": Boom}}
        assert one.results["abcde_00000"]["config"]["act"] is ResultGrid(one)[0].config["act"] is act
        assert one.get_all_configs(prefix=True) == {"abcde_00000": {"config/act": act, "config/net/kind": Boom}}
        assert ResultGrid(one)[0].metrics["extra"] is Boom
        assert one.dataframe().astype(str).equals(foreign.dataframe().astype(str))
    for one in (foreign, pickle.loads(pickle.dumps(own))):  # read by somebody else
        assert repr(one.trials[0].config["act"]) == repr(act)
        assert one.trials[0].config["act"] is not act


def test_an_only_trial_is_best_without_a_scope_and_its_given_name_is_its_name(tmp_path):
    made = MadeExperiment(tmp_path, metric=None, mode=None)
    trial = made.trial({"x": 1})
    made.report(trial, {"loss": 1.0})
    made.set(trial, name="wide net")
    analysis = ExperimentAnalysis(made.close())
    best = ResultGrid(analysis).get_best_result()
    assert (best.choice, best.best, best.best_checkpoint) == (None, None, None)
    assert repr(best).startswith("Result(trial_id=")
    assert str(analysis.trials[0]) == analysis.trials[0].custom_trial_name == "wide net"
    assert ResultGrid(analysis)._experiment_analysis is analysis


def test_an_object_whose_code_is_gone_is_shown_as_its_text(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({"x": 1, "act": None})
    made.set(trial, config=f'{{"x": 1, "act": {{"$pickle": "{forgotten()}", "repr": "<Gone>"}}}}')
    config = ExperimentAnalysis(made.close(), trust=True).trials[0].config
    assert config["x"] == 1
    assert repr(config["act"]) == "<Gone>"


# --- where it lies, and elsewhere ---


def test_paths_lie_on_the_file_system_that_is_given_with_them(grid: ResultGrid) -> None:
    for where in (grid, grid[0], opened(grid)):
        path = getattr(where, "experiment_path", None) or where.path
        assert where.filesystem.exists(f"{path}/checkpoint_000002") is (where == grid[0])
        assert where.filesystem.exists(path)


def test_a_result_is_found_by_a_link_to_its_directory_and_by_its_uri(grid: ResultGrid, tmp_path: Path) -> None:
    link = Path(grid.experiment_path, "lr=0.1")
    link.symlink_to("abcde_00000")
    for path in (link, f"{link}/", grid[0].path, f"file://{grid[0].path}"):
        assert Result.from_path(path) == grid[0]
    with pytest.raises(ConfigError, match="no trial 'abcde_00009'"):
        Result.from_path(Path(grid.experiment_path, "abcde_00009"))
    with pytest.raises(ExperimentError, match="there is no experiment"):
        Result.from_path(tmp_path / "nowhere" / "abcde_00000")


def train(config: dict[str, Any]) -> None:
    for step in (2, 1, 3):
        if config["act"] is math.sin and step == 3:
            raise Boom("sin")
        tune.report({"loss": float(step), "eval": {"acc": 1.0}})


def test_what_was_pickled_is_read_in_another_process_without_the_trainable(tmp_path: Path) -> None:
    grid = tune.Tuner(
        train,
        param_space={"act": tune.grid_search([math.cos, math.sin])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", trial_name_creator=lambda trial: f"t{trial.number}"),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    analysis = opened(grid)
    assert isinstance(analysis.trials[0], TrialView)
    target = tmp_path / "p.pkl"
    target.write_bytes(pickle.dumps((analysis, grid, grid[0], grid.get_best_result(), analysis.trials)))
    code = (
        "import pickle, sys\n"
        f"analysis, grid, first, best, trials = pickle.load(open({str(target)!r}, 'rb'))\n"
        "print(len(grid), first.metrics['loss'], best.choice.scope, [str(t) for t in trials], trials[1].status)\n"
        "print(grid[1].error, type(grid[1].error.__cause__).__name__, analysis.dataframe()['loss'].tolist())\n"
        "print(analysis.trials[0].config)\n"
        f"print({__name__!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path.cwd())
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "2 3.0 last ['t0', 't1'] ERROR"
    assert done.stdout.splitlines()[1] == "Boom: sin NoneType [3.0, 1.0]"
    assert "built-in function cos" in done.stdout.splitlines()[2]
    assert done.stdout.splitlines()[3] == "False"
