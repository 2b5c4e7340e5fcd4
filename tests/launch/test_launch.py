"""What a run puts together: schedulers that change configs, remote storage, and what is refused beforehand."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.cli.main import main
from sweep.errors import ConfigError, ExperimentError, SearchError
from sweep.record.guard import make_directory
from sweep.schedulers.pbt_policy import read_policy


def descends(config: dict[str, Any]) -> None:
    """Walk towards 1 with the step `lr`, and save each time."""
    at, done = 0.0, 0
    checkpoint = sweep.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            at, done = json.loads(Path(directory, "at.json").read_text())
    for step in range(done + 1, config["steps"] + 1):
        at += config["lr"]
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "at.json").write_text(json.dumps([at, step]))
            sweep.report(score=at, timesteps_this_iter=5, checkpoint=sweep.Checkpoint(directory))


def population(**given: Any) -> sweep.PopulationBasedTraining:
    options: dict[str, Any] = {
        "time_attr": "training_iteration",
        "perturbation_interval": 2,
        "hyperparam_mutations": {"lr": sweep.uniform(0.001, 0.1), "momentum": [0.5, 0.9]},
    }
    return sweep.PopulationBasedTraining(**(options | given))


def run(tmp_path: Path, **given: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {
        "config": {"lr": sweep.grid_search([0.1, 0.01, 0.001, 0.002]), "steps": 8},
        "scheduler": population(),
        "metric": "score",
        "mode": "max",
        "seed": 3,
        "engine": "inline",
        "storage_path": tmp_path,
        "name": "pbt",
        "verbose": 0,
    }
    if given.pop("is_plain", False):  # one trial of one step
        options |= {"scheduler": None, "config": {"lr": 0.25, "steps": 1}}
    return sweep.run(descends, **(options | given))


def test_a_population_fills_in_what_configs_lack_and_writes_down_who_continued_from_whom(tmp_path: Path) -> None:
    analysis = run(tmp_path)
    configs = analysis.get_all_configs()
    assert {config["momentum"] for config in configs.values()} <= {0.5, 0.9}
    lines = read_policy((tmp_path / "pbt" / "pbt_global.txt").read_text())
    assert lines
    for target, _, at, source_at, old, new in lines:
        assert target.partition("_")[0] in "0123"
        assert "momentum=" in target
        assert at % 2 == source_at % 2 == 0
        assert old.keys() == new.keys() == {"lr", "steps", "momentum"}
    own = [
        line
        for trial in analysis.trials
        if (tmp_path / "pbt" / f"pbt_policy_{trial.trial_id}.txt").exists()
        for line in read_policy((tmp_path / "pbt" / f"pbt_policy_{trial.trial_id}.txt").read_text())
    ]
    assert set(map(str, own)) == set(map(str, lines))  # a file holds also how the source came to be what it was
    changed = {line[0].partition("_")[0]: line[5] for line in lines}
    for number, config in changed.items():
        assert analysis.trials[int(number)].config == config
    assert "@perturbed[" in "".join(line[0] for line in lines) or len(lines) == len(changed)
    assert analysis.dataframe()["timesteps_total"].tolist() == [40.0] * 4
    again = run(tmp_path, name="again")
    assert again.get_all_configs() == {
        new.trial_id: configs[old.trial_id] for new, old in zip(again.trials, analysis.trials, strict=True)
    }


def short(config: dict[str, Any]) -> None:
    for _ in range(2):
        sweep.report(score=config["lr"])


@pytest.mark.parametrize(
    ("scheduler", "why"),
    [
        (
            sweep.ASHAScheduler(grace_period=5),
            "asha judged no trial and changed nothing: none came to grace_period=5 of ",
        ),
        (sweep.schedulers.MedianStoppingRule(), "grace_period=60 of 'time_total_s', the furthest to 0"),
        (
            sweep.schedulers.MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=4),
            "4 came to grace_period=1 of 'training_iteration', the furthest to 2, and it needs min_samples_required=4",
        ),
        (population(perturbation_interval=3), "pbt judged no trial and changed nothing: none came to perturbation_int"),
        (population(perturbation_interval=2), ""),
        (sweep.ASHAScheduler(grace_period=2), ""),
    ],
)
def test_a_scheduler_that_has_judged_nothing_says_so_at_the_end_and_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], scheduler: Any, why: str
) -> None:
    given = {"config": {"lr": sweep.grid_search([0.1, 0.2, 0.3, 0.4])}, "metric": "score", "mode": "max"}
    sweep.run(short, **given, scheduler=scheduler, engine="inline", storage_path=tmp_path)
    printed = capfd.readouterr().out
    assert why in printed
    assert printed.count("judged no trial") == bool(why)


def test_a_parameter_that_only_the_scheduler_changes_is_added_and_a_population_may_leave_its_files_out(
    tmp_path: Path,
) -> None:
    scheduler = population(hyperparam_mutations={"momentum": [1, 2]}, log_config=False)
    (trial,) = run(tmp_path, config={"learning_rate": 0.1, "lr": 0.1, "steps": 1}, scheduler=scheduler).trials
    assert trial.config["momentum"] in (1, 2)
    assert not list((tmp_path / "pbt").glob("pbt_*"))


@pytest.mark.parametrize("limit", [None, 2])
def test_a_searcher_that_learns_is_refused_beside_a_population(tmp_path: Path, limit: int | None) -> None:
    with pytest.raises(ConfigError, match=r"the scheduler pbt changes configs itself.*the searcher tpe"):
        run(tmp_path, search_alg="tpe", config={"lr": sweep.uniform(0, 1)}, max_concurrent_trials=limit)
    assert not (tmp_path / "pbt").exists()


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return "memory://bucket/sweeps"


def test_a_name_that_is_taken_in_remote_storage_is_refused_also_from_another_machine(
    tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"is_plain": True, "storage_path": remote}
    run(tmp_path, **given)
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "other"))
    with pytest.raises(ExperimentError, match="there already is an experiment 'pbt' in memory://bucket/sweeps"):
        run(tmp_path, **given)
    assert len(run(tmp_path, **given, num_samples=2, resume=True).trials) == 2


def test_the_message_for_a_name_that_is_taken_says_how_to_delete_it_there_and_here_or_on_the_command_line(
    tmp_path: Path, remote: str
) -> None:
    import fsspec

    def refusal(**given: Any) -> str:
        run(tmp_path, is_plain=True, **given)
        with pytest.raises(ExperimentError) as error:
            run(tmp_path, is_plain=True, **given)
        return str(error.value)

    calls = re.findall(r"\S+\.rm(?:tree)?\(.*?\)(?= |\.?$)", refusal(storage_path=remote))
    assert len(calls) == 2
    for call in calls:
        exec(call, {"fsspec": fsspec, "shutil": shutil})
    assert len(run(tmp_path, is_plain=True, storage_path=remote).trials) == 1
    text = refusal(import_path=f"{__file__}:descends")
    assert all(words in text for words in ("--resume", "--name", f"rm -r {tmp_path / 'pbt'}"))
    assert "shutil" not in text


def test_what_cannot_be_copied_is_said_and_the_results_are_here(
    tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    class Breaks(sweep.Callback):
        def setup(self, **info: Any) -> None:
            def fails(*given: Any, **more: Any) -> None:
                raise OSError("no network")

            for name in ("put_file", "pipe_file", "_open"):
                monkeypatch.setattr(MemoryFileSystem, name, fails)

    given = {"callbacks": [Breaks()], "sync_config": sweep.SyncConfig(sync_timeout=0.1), "verbose": 1}
    analysis = run(tmp_path, is_plain=True, storage_path=remote, **given)
    assert analysis.trials[0].last_result["score"] == 0.25
    said = capfd.readouterr().err
    assert "memory://bucket/sweeps/pbt is not complete: " in said
    assert "the same call with resume=True copies the rest" in said


def test_an_experiment_at_the_root_of_a_file_system_is_restored_by_its_uri(
    tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path, is_plain=True, storage_path="memory://")
    shutil.rmtree(tmp_path / "cache")
    results = sweep.Tuner.restore("memory://pbt", descends).fit()
    assert [result.metrics["score"] for result in results] == [0.25]
    assert os.listdir(tmp_path) == ["cache"]  # nothing was run anew, beside it


def test_the_command_line_reads_remote_storage(
    tmp_path: Path, remote: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, is_plain=True, storage_path=remote)
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "other"))
    for typed in ("ls {}", "ls --storage {}", "ls {}/pbt", "trials {}/pbt", "trials pbt --storage {}", "best {}/pbt"):
        with pytest.raises(SystemExit, match=r"^0$"):
            main(typed.format(remote).split())
        assert "0.25" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["ls", "memory://bucket/nothing"])
    assert "no sweeps in memory://bucket/nothing" in "".join(capsys.readouterr())


def test_a_value_that_cannot_be_pickled_is_named_also_when_only_the_searcher_makes_it(tmp_path: Path) -> None:
    space = {"m": {"lock": sweep.sample_from(lambda spec: threading.Lock())}}
    with pytest.raises(SearchError, match=r"config\['m'\]\['lock'\] is a _thread\.lock"):
        run(tmp_path, scheduler=None, config=space)


@pytest.mark.parametrize(("resume", "is_said"), [(True, True), ("AUTO", False)])
def test_a_sweep_that_was_to_be_resumed_and_is_not_there_is_said_to_begin(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], resume: Any, is_said: bool
) -> None:
    for _ in range(2):  # the second finds it
        run(tmp_path, is_plain=True, name="mine", resume=resume, verbose=1)
    said = capfd.readouterr().err
    assert said.count(f"there is no experiment 'mine' in {tmp_path} to resume; a new one starts") == is_said


# --- a name that is not given -----------------------------------------------------------------------------------------


def test_a_name_that_another_run_takes_in_the_same_moment_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def late(path: Path) -> list[Path]:
        if not taken:
            taken.append(path.name)
            path.mkdir(parents=True)  # by the other one
        return make_directory(path)

    monkeypatch.setattr("sweep.launch.place.make_directory", late)

    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": 1}

    found = sweep.run(train, engine="inline", storage_path=tmp_path / "results", verbose=0)
    assert Path(found.experiment_path).name == f"{taken[0]}_2"
    assert not any((tmp_path / "results" / taken[0]).iterdir())
