"""`sweep run` and `sweep resume`: from what is typed to the call of the API, and once for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_experiment import MadeExperiment

import searchers
from sweep.cli.arguments import parse_count, parse_seconds
from sweep.cli.main import main, sweep
from sweep.errors import ConfigError, ExperimentError, TrainableError
from sweep.launch.target import import_trainable
from sweep.record.saved_spec import pack_saved_spec, write_saved_spec
from sweep.results.analysis import ExperimentAnalysis

SCRIPT = """\
import sweep

def train(config):
    if config.get("bad"):
        raise ValueError("bad config")
    for step in range(3):
        sweep.report(loss=(config["x"] - 3) ** 2 / (step + 1))

class Net:
    @staticmethod
    def fit(config):
        return None

NUMBER = 3

if __name__ == "__main__":
    raise SystemExit("the guarded part must not run")
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "SWEEP_STORAGE": "out"}


class Api:
    """Stands in for `sweep.run`: keeps what it was called with."""

    def __init__(self, root: Path) -> None:
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.interrupted = False
        self.made = MadeExperiment(root, "stub")

    def __call__(self, trainable: Any, **arguments: Any) -> ExperimentAnalysis:
        self.calls.append((trainable, arguments))
        self.made.commit()
        write_saved_spec(self.made.root, pack_saved_spec({**arguments, "trainable": trainable}))
        for callback in arguments["callbacks"]:
            callback.setup(experiment_dir=str(self.made.root), plan=None, num_trials=1, seed=5)
        analysis = ExperimentAnalysis(self.made.root)
        analysis.interrupted = self.interrupted
        return analysis


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_train_script.py"
    path.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_train_script", raising=False)
    return path


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    stub = Api(tmp_path / "results")
    monkeypatch.setattr("sweep.run", stub, raising=False)
    return stub


def call(*arguments: str) -> Result:
    return CliRunner().invoke(sweep, arguments, standalone_mode=False)


def test_options_and_ranges_become_arguments_of_the_api(script: Path, api: Api) -> None:
    done = api.made.trial({})
    api.made.end(done)
    result = call(
        "run", "my_train_script.py:train", "lr=loguniform(1e-5,1e-1)", "bs=16,32", "net.width=8", "epochs=3",
        "--minimize", "eval/loss", "--trials", "5", "--time", "2h", "--concurrency", "4", "--gpus", "0.5",
        "--mem", "4G", "--searcher", "TPE", "--scheduler", "asha", "--max-epochs", "27", "--grace", "2", "--seed", "1",
        "--name", "n", "--storage", "s", "--retries", "2", "-v",
    )  # fmt: skip
    assert result.exception is None, result.exception
    assert result.return_value == 0
    ((trainable, arguments),) = api.calls
    assert trainable.__name__ == "train"
    scheduler = arguments.pop("scheduler")
    assert (scheduler.max_t, scheduler.grace_period) == (27, 2)
    space = arguments.pop("config")
    assert repr(space) == repr(
        {
            "lr": searchers.loguniform(1e-5, 1e-1),
            "bs": searchers.choice([16, 32]),
            "net": {"width": 8},
            "epochs": 3,
        }
    )
    del arguments["callbacks"]
    assert arguments == {
        "metric": "eval/loss",
        "mode": "min",
        "num_samples": 5,
        "time_budget_s": 7200.0,
        "max_concurrent_trials": 4,
        "resources_per_trial": {"cpu": 1.0, "gpu": 0.5, "memory": "4G"},
        "search_alg": "tpe",
        "seed": 1,
        "name": "n",
        "storage_path": "s",
        "max_failures": 2,
        "verbose": 2,
        "resume": None,
        "import_path": f"{script}:train",
        "raise_on_failed_trial": False,
        "on_interrupt": "return",
    }


def test_without_options_the_defaults_hold(script: Path, api: Api) -> None:
    call("run", "my_train_script.py:train", "x=1")
    call("run", "my_train_script.py:train", "x=1,2", "--searcher", "grid")
    call("run", "my_train_script.py:train", "x=1", "--time", "5m", "-q")
    assert [arguments["num_samples"] for _, arguments in api.calls] == [10, 1, -1]
    assert api.calls[1][1]["config"] == {"x": {"grid_search": [1, 2]}}
    assert [arguments["verbose"] for _, arguments in api.calls] == [1, 1, 0]
    assert all("metric" not in arguments and "scheduler" not in arguments for _, arguments in api.calls)


def test_a_spec_is_run_and_the_command_line_wins_over_it(script: Path, api: Api) -> None:
    Path("spec.yaml").write_text(
        "program: my_train_script.py:train\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1, 2]}, y: {value: 1}}\nrun_cap: 3\n"
    )
    result = call("run", "spec.yaml", "x=5,6", "--trials", "2", "--maximize", "acc")
    assert result.exception is None, result.exception
    arguments = api.calls[0][1]
    assert arguments["config"] == {"x": {"grid_search": [5, 6]}, "y": 1}
    assert (arguments["metric"], arguments["mode"], arguments["num_samples"]) == ("acc", "max", 1)
    assert arguments["search_alg"]._max_trials == 2  # of a spec file, whose grids W&B's agents count by trials


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        *((["good", "good"], 0), (["good", "bad"], 3), (["bad", "bad"], 1), ([], 0)),
        *((["good", "open"], 130), (["bad", "open"], 1)),  # the second: all failed alike, and others were not started
    ],
)
def test_the_exit_code_says_how_it_went(script: Path, api: Api, ends: list[str], code: int) -> None:
    api.interrupted = code == 130
    for end in ends:
        trial = api.made.trial({})
        if end != "open":
            api.made.end(trial, kind="FINISHED" if end == "good" else "FAILED")
    assert call("run", "my_train_script.py:train").return_value == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.py"], "no program 'train.py' in"),
        (["python", "train.py"], "stand behind --: sweep run -- python train.py"),
        (["my_train_script.py:train", "--", "--lr", "1"], "takes no words behind --"),
        (["my_train_scipt.py:train"], "Did you mean 'my_train_script.py'"),
        (["my_train_script.py:trian"], "Did you mean 'train'"),
        (["my_train_script.py:NUMBER"], "is a int; expected a function, a class or a trainer"),
        (["nope.yaml"], "nope.yaml cannot be read"),
        (["my_train_script.py:train", "lr"], "is no parameter"),
        (["my_train_script.py:train", "lr=unifrm(0,1)"], "lr=unifrm(0,1): unknown function 'unifrm'"),
        (["my_train_script.py:train", "--metric", "loss"], "needs --goal minimize or --goal maximize"),
        (["my_train_script.py:train", "--minimize", "a", "--maximize", "b"], "give the metric once"),
        (["my_train_script.py:train", "--max-t", "5"], "max_t: say of which scheduler, such as --scheduler asha"),
        (["my_train_script.py:train", "--time", "soon"], "is no span of time"),
        (["my_train_script.py:train", "--resume"], "also give --name"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    script: Path, api: Api, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not api.calls


def test_json_prints_one_event_per_line(script: Path, api: Api) -> None:
    result = call("run", "my_train_script.py:train", "--json")
    assert [json.loads(line)["event"] for line in result.output.splitlines()] == ["sweep_start"]
    assert api.calls[0][1]["verbose"] == 0


# --- the trainable ---


def test_the_file_is_imported_by_its_name_without_its_guarded_part(script: Path) -> None:
    function = import_trainable(f"{script}:train")
    assert function.__module__ == "my_train_script"
    assert str(script.parent) == sys.path[0]
    assert import_trainable(f"{script}:Net.fit").__qualname__ == "Net.fit"
    named_like_another = script.with_name("json.py")
    named_like_another.write_text("def f(config):\n    return 'mine'\n")
    assert import_trainable(f"{named_like_another}:f")({}) == "mine"
    assert "dumps" in dir(sys.modules["json"])


def test_a_file_that_fails_to_import_keeps_its_error(script: Path) -> None:
    path = script.with_name("broken_script.py")
    path.write_text("1 / 0\n")
    with pytest.raises(TrainableError, match="ZeroDivisionError") as caught:
        import_trainable(f"{path}:f")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("shadow", ["sweep.py", "searchers.py", "sweep/__init__.py"])
def test_a_file_that_hides_this_package_is_named(script: Path, shadow: str) -> None:
    hiding = script.parent / shadow
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    with pytest.raises(ConfigError, match="hides the package"):
        import_trainable(f"{script}:train")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1:30:00", 5400), ("2d", 172800)),
        *((text, None) for text in ("", "0", "h", "2 weeks", "-5")),
    ],
)
def test_spans_of_time_are_read_and_what_is_none_is_refused(text: str, seconds: float | None) -> None:
    if seconds is not None:
        assert parse_seconds(text) == seconds
    else:
        with pytest.raises(ConfigError, match="no span of time"):
            parse_seconds(text)


def test_counts_are_totals_or_additions() -> None:
    assert (parse_count("200", 100), parse_count("+50", 100)) == (200, 150)
    with pytest.raises(ConfigError, match="no number of trials"):
        parse_count("many", 1)


# --- resume ---


def test_resume_asks_for_the_same_again_with_what_was_changed(script: Path, api: Api, tmp_path: Path) -> None:
    call("run", "my_train_script.py:train", "x=uniform(0,1)", "--minimize", "loss", "--trials", "20")
    api.made.event("Tick", at=100.0)
    root = api.made.commit()
    for arguments in (["--trials", "+50"], ["--trials", "30", "--errored"], ["--time", "+1m"]):
        result = call("resume", str(root), *arguments)
        assert result.exception is None, result.exception
    first, more, total, longer = [arguments for _, arguments in api.calls]
    assert (first["resume"], more["resume"], total["resume"]) == (None, True, "AUTO+ERRORED")
    assert [more["num_samples"], total["num_samples"]] == [70, 30]
    assert (longer["num_samples"], longer["time_budget_s"]) == (30, 160.0)
    assert repr(more["config"]) == repr(first["config"])
    assert (more["name"], more["storage_path"]) == ("stub", str(root.parent))
    assert more["import_path"] == first["import_path"]


def test_a_sweep_started_from_python_says_how_to_resume_it_there(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "api", import_path="/x/train.py:train")
    made.close()
    result = call("resume", "api", "--storage", str(tmp_path))
    assert isinstance(result.exception, ExperimentError)
    assert "resume it there (/x/train.py): make the same call with name='api'" in str(result.exception)
    assert "resume=True" in str(result.exception)


FROM_PYTHON = """
import sweep
from beside import KNOWN

def train(config):
    for step in range(2):
        sweep.report(loss=config["x"] * KNOWN)

class Seen(sweep.Callback):
    def on_experiment_end(self, trials):
        print("seen", len(trials))

if {guard}:
    sweep.{call}
"""
RUN = (
    "run({what}, config={{'x': sweep.uniform(0, 1)}}, num_samples=2, name='py', metric='loss', mode='min', seed=1, "
    "callbacks=[Seen()], engine='inline', verbose=0, env={{}} or None)"
)
TUNER = (
    "Tuner({what}, param_space={{'x': sweep.sample_from(lambda _: 0.5)}}, tune_config=sweep.TuneConfig(num_samples=2), "
    "run_config=sweep.RunConfig(name='py', callbacks=[Seen()], verbose=0)).fit()"
)


@pytest.mark.parametrize(
    ("how", "what", "guard"),
    [
        (RUN, "train", "True"),  # unguarded: it is imported up to the call, and starts nothing
        pytest.param(RUN, "lambda config: train(config)", "True", marks=pytest.mark.slow),
        pytest.param(TUNER, "sweep.with_resources(train, {'cpu': 0.5})", "True", marks=pytest.mark.slow),
        pytest.param(TUNER, "train", "__name__ == '__main__'", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_of_a_python_script_is_extended_as_it_was_called(script: Path, how: str, what: str, guard: str) -> None:
    script.with_name("beside.py").write_text("KNOWN = 2")
    script.write_text(FROM_PYTHON.format(guard=guard, call=how.format(what=what)))
    begun = subprocess.run([sys.executable, script.name], cwd=script.parent, env=ENVIRONMENT, capture_output=True)
    assert (begun.returncode, begun.stdout) == (0, b"seen 2\n"), begun.stderr
    more = _sweep(script.parent, "resume", "py", "--trials", "+2", "--json")
    assert more.returncode == 0, more.stderr
    events = [json.loads(line)["event"] for line in more.stdout.splitlines() if line.startswith("{")]
    assert (events.count("sweep_end"), events.count("trial_complete")) == (1, 2)
    assert "seen 4" in more.stdout
    rows = ExperimentAnalysis(script.parent / "out" / "py").trials
    assert [row.last_result["training_iteration"] for row in rows] == [2, 2, 2, 2]
    if what == "train":
        script.unlink()
        said = str(call("resume", str(script.parent / "out" / "py"), "--trials", "+1").exception)
        assert said.startswith(f"there is no file {script}. Known: beside.py")
        assert f"resume it there ({script}): make the same call with name='py'" in said


def test_a_sweep_of_python_is_interrupted_and_fails_on_the_command_line_as_others_do(tmp_path: Path, api: Api) -> None:
    from sweep.api import run

    run(lambda config: {"loss": 1}, name="py", storage_path=tmp_path, engine="inline", verbose=0)
    assert call("resume", str(tmp_path / "py"), "--trials", "+2").exception is None
    ((_, given),) = api.calls
    assert (given["num_samples"], given["on_interrupt"], given["raise_on_failed_trial"]) == (3, "return", False)


def test_what_a_script_gave_by_with_parameters_is_asked_for_in_python(tmp_path: Path) -> None:
    def train(config: dict[str, Any], data: int) -> dict[str, int]:
        return {"loss": data}

    import sweep as package

    package.run(package.with_parameters(train, data=1), name="big", storage_path=tmp_path, engine="inline", verbose=0)
    refused = call("resume", "big", "--storage", str(tmp_path)).exception
    assert "the trainable cannot be loaded here. big was started" in str(refused)
    write_saved_spec(tmp_path / "big", pack_saved_spec({"callbacks": [threading.Lock()]}))
    refused = call("resume", "big", "--storage", str(tmp_path)).exception
    assert str(refused).startswith("callbacks (it could not be pickled) cannot be loaded here. big was started")


# --- for real ---


def _sweep(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from sweep.cli.main import main; main()", *arguments],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_sweep_is_run_read_and_extended_from_the_command_line(script: Path) -> None:
    run = _sweep(
        script.parent, "run", "my_train_script.py:train", "x=uniform(0,10)", "bad=0,0,0,1", "--searcher", "grid",
        "--minimize", "loss", "--name", "real", "--seed", "1", "--cpus", "0.5",
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
    assert "4/4" in run.stdout
    assert "failed 1 x" in run.stdout
    assert "best config:" in run.stdout
    more = _sweep(script.parent, "resume", "real", "--trials", "+1", "--json")
    assert more.returncode == 3, more.stderr
    events = [json.loads(line) for line in more.stdout.splitlines()]
    assert events[0]["event"] == "sweep_start"
    assert sum(event["event"] == "trial_result" for event in events) == 9
    rows = json.loads(_sweep(script.parent, "trials", "real", "--sort", "loss", "-f", "json").stdout)
    assert len(rows) == 8
    assert [row["state"] for row in rows].count("failed") == 2
    assert "ValueError: bad config" in _sweep(script.parent, "why", "real").stdout
