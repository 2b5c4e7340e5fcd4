"""Commands that look at sweeps: ls, trials, best, show, why."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from made_experiment import MadeExperiment
from node_experiment import experiment_on_nodes

from sweep.cli import tables
from sweep.cli.main import _run, sweep
from sweep.cli.ranges import parse_parameter
from sweep.core.trial import STATES
from sweep.errors import ConfigError, ExperimentError
from sweep.record.lock import DriverLock


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    made = MadeExperiment(tmp_path, "digits")
    for number, (lr, loss, act) in enumerate([(0.1, 3.0, "relu"), (0.01, 1.0, "gelu"), (0.001, math.nan, "relu")]):
        trial = made.trial({"lr": lr, "net": {"act": act}})
        made.start(trial)
        made.report(trial, {"loss": loss + 1, "acc": 0.5})
        made.report(trial, {"loss": loss, "acc": 0.25 * number}, checkpoint=f"{trial}/checkpoint_000002")
        made.end(trial, reason="stopped early: worse" if number == 2 else "")
    failed = made.trial({"lr": 1.0, "net": {"act": "relu"}})
    made.start(failed)
    error = "ValueError: \x1b[2Jtoo big"
    traceback = "Traceback\n  deep"
    made.end(failed, kind="FAILED", error=error, traceback=traceback, class_name="ValueError", reason=error)
    running = made.trial({"lr": 0.5, "net": {"act": "relu"}}, resources={"bundles": [{"cpu": 1, "gpu": 1}]})
    made.start(running, placement=[["local", [["gpu0", 1.0]]]])
    made.trial({"lr": 0.6, "net": {"act": "relu"}}, reason="needs gpu=1; 1 of 1 held by 00004")
    made.close()
    MadeExperiment(tmp_path, "empty", metric=None, mode=None).close()
    return tmp_path


def call(storage: Path, *arguments: str) -> Result:
    return CliRunner().invoke(sweep, [*arguments, "--storage", str(storage)], catch_exceptions=True)


def table(storage: Path, *arguments: str) -> list[list[str]]:
    result = call(storage, *arguments)
    assert result.exception is None, result.exception
    return [line.split() for line in result.stdout.splitlines()]


def facts(storage: Path, *arguments: str) -> Any:
    return json.loads(call(storage, *arguments, "--format", "json").stdout)


def test_ls_lists_every_sweep_with_its_counts_and_its_best(storage: Path) -> None:
    rows = facts(storage, "ls")
    assert [(row["name"], row["best"]) for row in rows] == [("digits", 1.0), ("empty", None)]
    told = {"trials": 6, "running": 1, "waiting": 1, "finished": 2, "stopped_early": 1, "failed": 1, "paused": 0}
    assert rows[0] | told | {"metric": "loss"} == rows[0]
    heading, first, _ = table(storage, "ls")
    assert heading[4:] == "running waiting finished stopped_early failed metric best".split()
    assert first[0] == "digits"
    assert f"no sweeps in {storage}/nowhere; --storage" in call(storage / "nowhere", "ls").output


def test_ls_says_how_each_sweep_stands(storage: Path) -> None:
    made = MadeExperiment(storage, "done")
    made.end(made.trial({}))
    made.close()
    made = MadeExperiment(storage, "waits")
    made.trial({})
    made.close()
    lock = DriverLock(MadeExperiment(storage, "runs").close() / "driver.lock")
    far = MadeExperiment(storage, "far")
    far.start(far.trial({}))
    (far.close() / "driver.lock").write_text(json.dumps({"pid": 1, "host": "another", "started": 1.0}))
    rows = facts(storage, "ls")
    lock.release()
    standing = {"digits": "crashed", "done": "ended", "empty": "stopped", "far": "unknown"}
    assert {row["name"]: row["state"] for row in rows} == standing | {"runs": "running", "waits": "stopped"}
    assert [row["name"] for row in facts(storage, "ls", "--filter", "state=ended")] == ["done"]


def test_a_damaged_a_newer_and_a_foreign_directory_cost_one_line_each(storage: Path) -> None:
    (storage / "foreign").mkdir()
    (storage / "damaged").mkdir()
    (storage / "damaged" / "sweep.db").write_bytes(b"not a database at all" * 300)
    made = MadeExperiment(storage, "newer")
    made.close()
    sqlite3.connect(made.root / "sweep.db").execute("PRAGMA user_version=9").close()
    result = call(storage, "ls")
    assert [line.split()[:2] for line in result.stdout.splitlines()[-2:]] == [
        ["damaged", "unreadable"],
        ["newer", "unreadable"],
    ]
    assert "foreign" not in result.stdout
    damaged, newer = result.stderr.splitlines()
    assert damaged.startswith(f"error: {storage}/damaged/sweep.db cannot be read: file is not a database")
    assert "has format 9" in newer


def test_ls_of_a_sweep_lists_its_trials_and_of_a_directory_its_sweeps(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = call(storage, "trials", "digits").stdout
    assert trials.splitlines()[1].startswith("00000  finished")
    assert call(storage, "ls", "digits").stdout == trials
    monkeypatch.setenv("SWEEP_STORAGE", str(storage / "elsewhere"))
    runner = CliRunner()
    assert runner.invoke(sweep, ["ls", str(storage / "digits")]).stdout == trials
    assert runner.invoke(sweep, ["ls", str(storage / "digits" / "sweep.db")]).stdout == trials
    sweeps = call(storage, "ls").stdout
    for typed in (["ls"], ["lsx"], ["list-experiments"]):
        assert runner.invoke(sweep, [*typed, str(storage)]).stdout == sweeps
    assert runner.invoke(sweep, ["ls"]).stdout.startswith(f"no sweeps in {storage / 'elsewhere'};")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("digts", "Did you mean 'digits'"),
        ("plain", "no sweep.db in it, nor one directory below"),
        ("tune", "it was written by Ray Tune"),
        ("digits/abcde_00000", "it is inside one"),
    ],
)
def test_ls_of_what_is_no_sweep_says_what_is_there(storage: Path, where: str, message: str) -> None:
    (storage / "plain").mkdir()
    (storage / "tune").mkdir()
    (storage / "tune" / "experiment_state-2026-01-01.json").write_text("{}")
    result = call(storage, "ls", where if where == "digts" else str(storage / where))
    assert isinstance(result.exception, ExperimentError)
    assert message in str(result.exception)


def test_a_sweep_without_a_driver_says_so_wherever_its_trials_are_shown(storage: Path) -> None:
    hint = "no driver runs digits: running is what trials were when it died; `sweep resume digits` goes on"
    for command in (["trials", "digits"], ["ls", "digits"], ["why", "digits"]):
        assert hint in call(storage, *command).stderr, command
    assert f"hint: {hint}" in call(storage, "show", "digits", "4").stdout
    assert "took:" not in call(storage, "show", "digits", "4").stdout
    assert "hint" not in call(storage, "show", "digits", "1").stdout
    assert call(storage, "trials", "digits", "-f", "csv").stderr == ""


def test_show_of_a_sweep_tells_how_it_stands_and_what_is_best(storage: Path) -> None:
    shown = call(storage, "show", "digits").stdout
    assert shown.startswith("sweep: digits\nstate: crashed\nhint: no driver runs digits")
    assert "best: 1 (trial 00001 at step 2; last report)\nbest_config:\n  lr: 0.01\n" in shown
    assert "earlier" not in shown
    empty = facts(storage, "show", "empty")
    assert (empty["trials"], empty["best"]) == (dict.fromkeys(("trials", *STATES), 0), None)


def test_trials_shows_what_differs_and_what_was_reported(storage: Path) -> None:
    rows = table(storage, "trials", "digits")
    assert rows[0] == ["trial", "state", "step", "loss", "acc", "lr", "net/act", "time_s", "reason"]
    assert rows[1] == ["00000", "finished", "2", "3", "0", "0.1", "relu", "1"]
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("--sort loss", ["00001", "00000", "00002", "00003", "00004", "00005"]),  # what is missing comes last
        ("--sort -loss --limit 2", ["00000", "00001"]),
        ("--sort -lr --limit 2", ["00003", "00005"]),
        ("--sort net/act --limit 1", ["00001"]),
        ("--sort net/act,lr", ["00001", "00002", "00000", "00004", "00005", "00003"]),
        ("--sort net/act,-lr", ["00001", "00003", "00005", "00004", "00000", "00002"]),
        ("--sort loss --desc --limit 1", ["00000"]),
        ("--desc --limit 2", ["00005", "00004"]),
        ("--sort lr --desc True --limit 1", ["00003"]),  # the words that Tune wants behind it
        ("--sort lr --desc=true --limit 1", ["00003"]),
        ("--sort lr --desc False --limit 1", ["00002"]),
    ],
)
def test_trials_are_sorted_with_missing_values_last(storage: Path, typed: str, numbers: list[str]) -> None:
    rows = table(storage, "trials", "digits", "--columns", "trial,loss", *typed.split())
    assert [row[0] for row in rows[1:]] == numbers


@pytest.mark.parametrize(
    ("conditions", "numbers"),
    [
        (["lr<0.01"], ["00002"]),
        (["lr <= 0.01"], ["00001", "00002"]),
        (["config/lr>=0.5"], ["00003", "00004", "00005"]),
        (["net/act=gelu"], ["00001"]),
        (["state!=TERMINATED"], ["00003", "00004", "00005"]),
        (["status=TERMINATED"], ["00000", "00001", "00002"]),
        (["state=finished"], ["00000", "00001"]),
        (["state=stopped early"], ["00002"]),
        (["trial>=5"], ["00005"]),
        (["loss>0"], ["00000", "00001"]),
        (["loss=null"], ["00003", "00004", "00005"]),
        (["reason=stopped early: worse"], ["00002"]),
        (["lr<0.5", "loss<2"], ["00001"]),
        (["lr>99"], []),
    ],
)
def test_trials_are_filtered(storage: Path, conditions: list[str], numbers: list[str]) -> None:
    options = [word for condition in conditions for word in ("--filter", condition)]
    assert [row["trial"] for row in facts(storage, "trials", "digits", *options)] == numbers
    assert ("no such trials" in call(storage, "trials", "digits", *options).output) == (not numbers)


@pytest.mark.parametrize(
    ("asked", "column", "value"),
    [
        ("status", "status", "TERMINATED"),
        ("training_iteration", "step", 2),
        ("config/net/act", "net/act", "relu"),
        ("net.act", "net/act", "relu"),
        ("experiment_tag", "experiment_tag", "0_lr=0.1000,act=relu"),
        ("trainable_name", "trainable_name", "trial"),
        ("name", "name", "trial_abcde_00000"),
        ("timestamp", "timestamp", 1700000002),
    ],
)
def test_columns_are_found_under_the_names_that_tune_gives_them(
    storage: Path, asked: str, column: str, value: Any
) -> None:
    assert facts(storage, "ls", "digits", "--columns", asked)[0] == {column: value}


def test_empty_columns_are_left_out_of_a_table_and_named(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "one")
    made.end(made.trial({"lr": 0.1, "unused": None}))
    made.close()
    result = call(tmp_path, "trials", "one")
    assert result.stdout == "trial  state      lr\n00000  finished  0.1\n"
    assert result.stderr == "(empty columns left out: step, unused, time_s, reason)\n"
    assert call(tmp_path, "trials", "one", "--columns", "trial,unused").stdout == "trial  unused\n00000       -\n"


def test_names_given_to_trials_are_a_column(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "named")
    trial = made.trial({"lr": 0.1})
    made.set(trial, name="fine one")
    made.close()
    assert facts(tmp_path, "trials", "named")[0]["name"] == "fine one"
    assert call(tmp_path, "trials", "named", "--filter", "name = 'fine one'").stdout.startswith("trial  name")


def test_metrics_and_parameters_of_one_name_keep_their_own_values(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "alike")
    trial = made.trial({"lr": 0.1, "loss": 7, "trial": 9})
    made.report(trial, {"loss": 1.0, "lr": 0.5, "config/lr": 3.0})
    made.end(trial)
    made.close()
    expected = {"loss": 1.0, "lr": 0.5, "config/lr": 0.1, "config/loss": 7, "trial": "00000", "config/trial": 9}
    (row,) = facts(tmp_path, "trials", "alike")
    assert row | expected | {"metric/config/lr": 3.0} == row
    (row,) = facts(tmp_path, "best", "alike")
    state = {"trial": "00000", "state": "finished", "status": "TERMINATED"}
    assert row == state | {"loss": 1.0, "lr": 0.1, "config/loss": 7, "config/trial": 9}


def test_a_list_is_written_to_a_file_of_each_kind(storage: Path) -> None:
    def write(name: str, *more: str) -> Path:
        result = call(storage, "trials", "digits", "--output", str(storage / name), "--sort", "lr", *more)
        assert result.exception is None
        assert result.stderr.startswith(f"(wrote {6 if not more else 0} rows and ")
        assert result.stdout
        return storage / name

    assert [row["lr"] for row in csv.DictReader(io.StringIO(write("t.csv").read_text()))][:2] == ["0.001", "0.01"]
    assert json.loads(write("t.json").read_text())[0]["loss"] == "nan"
    frame = pd.read_pickle(write("t.pkl"))
    assert frame["trial"].tolist()[:2] == ["00002", "00001"]
    assert (str(frame["lr"].dtype), str(frame["step"].dtype)) == ("float64", "Int64")
    assert "trial" in pd.read_pickle(write("none.pkl", "--filter", "lr>9")).columns


def test_parquet_is_written_or_says_what_it_needs(storage: Path) -> None:
    result = call(storage, "trials", "digits", "-o", str(storage / "t.parquet"))
    if importlib.util.find_spec("pyarrow") is None and importlib.util.find_spec("fastparquet") is None:
        assert isinstance(result.exception, ConfigError)
        assert "needs pyarrow: pip install pyarrow" in str(result.exception)
    else:
        assert len(pd.read_parquet(storage / "t.parquet")) == 6


def test_csv_has_every_column_and_full_numbers(storage: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call(storage, "trials", "digits", "-f", "csv").output)))
    assert rows[0]["trial_id"] == "abcde_00000"
    assert rows[2]["loss"] == "nan"
    assert {"attempt", "reason", "lr"} <= rows[0].keys()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("trials digts", "Did you mean 'digits'"),
        ("trials digits --sort los", "Did you mean 'loss'"),
        ("trials digits --filter lr", "expected COLUMN OP VALUE"),
        ("trials digits --columns trial,lrr", "'lrr' is no column. Did you mean 'lr'? Columns: acc, attempt"),
        ("trials digits -o t.xls", "no kind of file; expected one of .csv, .json, .parquet, .pkl"),
        ("trials digits -o t", "no kind of file"),
        ("trials digits -o nowhere/t.csv", "cannot be written: No such file or directory"),
        ("show digits 77", "from 0 to 5"),
        ("best digits --metric los --goal minimize", "Reported were: loss, acc"),
        ("best empty", "no metric and mode are known"),
    ],
)
def test_what_cannot_be_answered_is_answered_with_what_can(storage: Path, typed: str, message: str) -> None:
    result = call(storage, *typed.split())
    assert isinstance(result.exception, (ConfigError, ExperimentError))
    assert message in str(result.exception)


def test_best_prints_the_winner_and_a_config_to_copy(storage: Path) -> None:
    assert call(storage, "best", "digits").output == (
        "loss 1   trial 00001   (last report; finished)\nlr: 0.01\nnet:\n  act: gelu\n"
    )
    assert call(storage, "best", "digits", "--as", "yaml").output == "lr: 0.01\nnet:\n  act: gelu\n"
    assert json.loads(call(storage, "best", "digits", "--as", "json").output) == {"lr": 0.01, "net": {"act": "gelu"}}
    assert call(storage, "best", "digits", "--as", "args").output == "lr=0.01 net.act=gelu\n"
    assert [row[0] for row in table(storage, "best", "digits", "--top", "5")[1:]] == ["00001", "00000"]
    assert table(storage, "best", "digits", "--metric", "acc", "--goal", "maximize", "--scope", "last")[0][3] == "00002"


@pytest.fixture
def declined(tmp_path: Path) -> Path:
    """A sweep whose best report was not a last one, and which has a trial without a number at its end."""
    made = MadeExperiment(tmp_path, "declined")
    for number, losses in enumerate(([2.0, 1.0], [0.5, 9.0], [0.7, math.nan])):
        trial = made.trial({"x": number})
        made.start(trial)
        for loss in losses:
            made.report(trial, {"loss": loss})
        made.end(trial)
    made.close()
    return tmp_path


def test_best_and_show_are_by_the_last_reports_and_one_line_names_what_had_been_better(declined: Path) -> None:
    better = "better earlier: loss 0.5   trial 00001 at step 1   (--scope all)\n"
    shown = call(declined, "best", "declined").output
    assert shown == f"loss 1   trial 00000   (last report; finished)\n{better}x: 0\n"
    shown = call(declined, "best", "declined", "--scope", "all").output
    assert shown == "loss 0.5   trial 00001   (best report; finished)\nx: 1\n"
    assert call(declined, "best", "declined", "--as", "args").output == "x=0\n"
    listed = call(declined, "best", "declined", "--top", "3")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["trial", "00000", "00001"]
    assert listed.stderr == better
    assert [row["best"] for row in facts(declined, "ls")] == [1.0]
    assert (
        "metric: loss (min)\nbest: 1 (trial 00000 at step 2; last report)\n"
        "better_earlier: 0.5 (trial 00001 at step 1; sweep best declined --scope all)\nbest_config:\n  x: 0\n"
    ) in call(declined, "show", "declined").output


@pytest.mark.parametrize(
    ("metrics", "losses", "said"),
    [
        (["loss"], [0.5, math.nan], "'loss'. better earlier: loss 0.5   trial 00000 at step 1   (--scope all)"),
        (["loss", "size"], [3.0], "'loss, size'. Reported were: loss."),
    ],
)
def test_best_without_a_number_in_any_last_report_says_what_there_was(
    tmp_path: Path, metrics: list[str], losses: list[float], said: str
) -> None:
    made = MadeExperiment(tmp_path, "lost", metrics=metrics, modes=["min", "max"][: len(metrics)])
    trial = made.trial({"x": 1})
    for loss in losses:
        made.report(trial, {"loss": loss})
    made.close()
    error = call(tmp_path, "best", "lost").exception
    assert str(error) == f"no trial of lost has a usable number under {said}"


@pytest.fixture
def several(tmp_path: Path) -> Path:
    made = MadeExperiment(tmp_path, "several", metrics=["loss", "size"], modes=["min", "max"])
    for number in range(8):
        trial = made.trial({"x": number})
        made.report(trial, {"loss": 0.0, "size": 99.0})
        made.report(trial, {"loss": 0.5 if number == 1 else number, "size": 0.0 if number == 1 else number})
        made.end(trial)
    made.close()
    single = MadeExperiment(tmp_path, "single")
    single.report(single.trial({"x": 1}), {"loss": 3.0})
    single.close()
    return tmp_path


def test_best_of_several_objectives_prints_the_pareto_set(several: Path) -> None:
    shown = call(several, "best", "several").output.splitlines()
    assert shown[0] == "Pareto set by loss (min), size (max): 7 trials"
    assert [line.split() for line in shown[1:4]] == [
        ["trial", "state", "loss", "size", "x"],
        ["00000", "finished", "0", "0", "0"],
        ["00002", "finished", "2", "2", "2"],
    ]
    assert len(shown) == 9
    assert len(call(several, "best", "several", "--top", "2").output.splitlines()) == 4
    assert call(several, "best", "several", "--as", "args", "--top", "2").output == "x=0\nx=2\n"
    told = {"trial": "00002", "state": "finished", "status": "TERMINATED", "loss": 2, "size": 2, "x": 2}
    assert facts(several, "best", "several")[1] == told


def test_best_of_several_objectives_by_one_that_is_named_and_no_other_is_guessed(several: Path) -> None:
    for typed, shown in (
        ("--metric size", "size 7   trial 00007   (last report"),
        ("--metric loss --scope all", "loss 0   trial 00000   (best report"),
    ):
        assert call(several, "best", "several", *typed.split()).output.startswith(shown)
    for typed in ("--scope all", "--goal minimize"):
        error = call(several, "best", "several", *typed.split()).exception
        assert isinstance(error, ConfigError)
        assert "several objectives, loss (min), size (max)" in str(error)


def test_ls_and_show_of_several_objectives_have_the_pareto_set_and_no_best(several: Path) -> None:
    rows = facts(several, "ls", "--sort", "best")
    assert [(row["name"], row["metric"], row["best"]) for row in rows] == [
        ("single", "loss", 3.0),
        ("several", "loss, size", "Pareto set of 7: (0, 0) (2, 2) (3, 3) (4, 4) (5, 5) ..."),
    ]
    shown = call(several, "show", "several").output
    assert "metric: loss (min), size (max)\n" in shown
    assert "pareto_set:\n  00000   loss=0 size=0\n  00002   loss=2 size=2\n" in shown
    assert "  00005   loss=5 size=5\n  and 2 more: sweep best several\n" in shown
    assert "best:" not in shown
    assert "best_config" not in shown
    assert "best_report" not in call(several, "show", "several", "0").output


def test_best_arguments_can_be_pasted_back(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "lr": 3.1e-05,
        "words": "a, 'b' (c)",
        "number": "10",
        "none": None,
        "on": True,
        "list": [1, "x"],
        "plain": "adam",
    }
    made = MadeExperiment(tmp_path, "odd")
    made.report(made.trial(config), {"loss": 1.0})
    made.close()
    shown = call(tmp_path, "best", "odd", "--as", "args").output
    assert dict(parse_parameter(part) for part in shlex.split(shown)) == config


def test_show_tells_everything_about_a_trial_and_strips_control_characters(storage: Path) -> None:
    shown = call(storage, "show", "digits", "3").output
    assert "trial: abcde_00003\nstate: failed\n" in shown
    assert "traceback:\n  Traceback\n    deep\n" in shown
    assert "\x1b" not in shown
    good = call(storage, "show", "digits", "1").output
    assert "checkpoint_000002   loss=1 acc=0.25" in good
    assert "last_report:\n  loss: 1.0\n  acc: 0.25\n  training_iteration: 2\n" in good
    told = facts(storage, "show", "digits", "00001")
    assert (told["config"], told["best_report"]["loss"]) == ({"lr": 0.01, "net": {"act": "gelu"}}, 1.0)
    assert facts(storage, "show", "digits", "2")["last_report"]["loss"] == "nan"


def test_why_says_what_each_trial_waits_for_and_who_holds_the_devices(storage: Path) -> None:
    shown = call(storage, "why", "digits").output
    assert "00005  waiting        cpu=1        needs gpu=1; 1 of 1 held by 00004" in shown
    assert "00002  stopped early  cpu=1        stopped early: worse" in shown
    assert "00004  running        cpu=1 gpu=1  holds cpu=1 gpu=1 on gpu0" in shown
    assert "CPUs held by 00004 (1)\ngpu0 held by 00004\n" in shown
    (only,) = facts(storage, "why", "digits", "5")
    told = {"trial": "00005", "state": "waiting", "status": "PENDING", "failure": "", "asks": "cpu=1"}
    assert only == told | {"reason": "needs gpu=1; 1 of 1 held by 00004"}


@pytest.mark.parametrize("typed", ["ls", "trials digits", "best digits", "show digits", "show digits 2", "why digits"])
def test_json_is_short_for_its_format_and_has_both_words_for_a_state(storage: Path, typed: str) -> None:
    shown = call(storage, *typed.split(), "--json").stdout
    assert shown == call(storage, *typed.split(), "--format", "json").stdout
    if typed not in ("ls", "show digits"):
        found = json.loads(shown)
        trial = found if isinstance(found, dict) else found[min(2, len(found) - 1)]
        state = "finished" if typed == "best digits" else "stopped early"
        assert (trial["state"], trial["status"]) == (state, "TERMINATED")


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "typed", ["trials --format csv", "trials --json", "best --as args", "best --json", "show 0 --json"]
)
def test_what_programs_read_steers_no_terminal_and_is_as_it_is_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    made = MadeExperiment(tmp_path, "odd")
    trial = made.trial({"x": "a\x9b2Jb\x7f\u202e"})
    made.report(trial, {"loss": 1.0})
    made.end(trial)
    made.close()
    verb, *options = typed.split()
    piped = call(tmp_path, verb, "odd", *options).stdout
    assert "a\x9b2Jb\x7f\u202e" in piped
    monkeypatch.setattr("sys.stdout", out := _Tty())
    assert _run([verb, "odd", *options, "--storage", str(tmp_path)]) == 0
    assert "a\\x9b2Jb\\x7f\\u202e" in out.getvalue()
    assert "\n" in out.getvalue()


@pytest.mark.parametrize("columns", [1, 10, 20, 40, 200])
def test_a_table_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    out = _Tty()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [{"trial": "00001", "loss": 0.123456, "reason": "漢字 and a long reason\x1b[2J " * 5, "deep": {"a": 1}}]
    tables.print_rows(rows, ["trial", "loss", "deep", "reason"], "table")
    from sweep.display.formats import width_of

    shown = out.getvalue().splitlines()
    assert len(shown) == 2
    assert all(width_of(line) <= columns for line in shown)
    assert "\x1b" not in out.getvalue()


@pytest.fixture
def on_nodes(tmp_path: Path) -> Path:
    experiment_on_nodes(tmp_path).close()
    return tmp_path


def test_the_node_of_a_trial_is_a_column_where_the_sweep_has_had_several(storage: Path, on_nodes: Path) -> None:
    head, *lines = call(on_nodes, "trials", "nodes").output.splitlines()[:4]
    at = head.index("node")
    assert [line[at:].strip() for line in lines] == ["n1", "n1", "n1, n2"]
    assert "node" not in call(storage, "trials", "digits").output
    assert {row["node"] for row in json.loads(call(storage, "trials", "digits", "--json").stdout)} == {None}
    chosen = call(on_nodes, "trials", "nodes", "--filter", "node=n1", "--columns", "trial,node").output.split()
    assert chosen[2:6] == ["00000", "n1", "00001", "n1"]


def test_show_tells_of_each_attempt_where_it_was_and_how_it_ended(on_nodes: Path) -> None:
    lines = call(on_nodes, "show", "nodes", "1").output.splitlines()
    at = lines.index("each_attempt:")
    lost = "NODE_LOST: node n2 was lost: its agent ended"
    assert [" ".join(line.split()[:2] + line.split()[4:]) for line in lines[at + 1 : at + 5]] == [
        "attempt node ended",
        f"1 n2 2 {lost}",
        "2 n1 4 its driver ended",
        "3 n1 1",
    ]
    first, _, last = json.loads(call(on_nodes, "show", "nodes", "1", "--json").stdout)["each_attempt"]
    assert (first["attempt"], first["node"], first["time_s"], first["ended"]) == (1, "n2", 2.0, lost)
    assert (last["attempt"], last["node"], last["ended"]) == (3, "n1", "")


def test_nodes_lists_what_each_had_ran_and_lost(on_nodes: Path, storage: Path) -> None:
    head, first, second = call(on_nodes, "nodes", "nodes").output.splitlines()
    assert head.split() == "node cpus gpus memory_gb attempts lost there_s idle_share came left why_lost".split()
    assert first.split()[:8] == ["n1", "4", "1", "8", "4", "0", "10", "0"]
    assert second.split()[:8] == ["n2", "2", "0", "0", "2", "2", "5", "0.2"]
    assert second.endswith("  node n2 was lost: its agent ended")
    lost = json.loads(call(on_nodes, "nodes", "nodes", "--filter", "lost>0", "--columns", "node,lost", "--json").stdout)
    assert lost == [{"node": "n2", "lost": 2}]
    assert call(on_nodes, "nodes", "nodes", "--limit", "0").output == "nodes has had no such nodes\n"
    assert call(storage, "nodes", "digits").output == "digits has had no nodes\n"
