"""Who may read what an experiment pickles, and what is not written at all: the values of environment variables."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep import CheckpointConfig, RunConfig, Trainable, TuneConfig, Tuner
from sweep.errors import ConfigError
from sweep.record.files import create_private
from sweep.record.saved_spec import read_saved_spec

SECRET = "not-for-the-disk-8d1f"


class Stateful(sweep.Callback):
    def get_state(self) -> dict[str, Any]:
        return {"seen": 1}


class Saving(Trainable):
    def setup(self, config: dict[str, Any], data: Any = None) -> None:
        self.data = data

    def step(self) -> dict[str, Any]:
        return {"step": self.iteration, "has_token": os.environ.get("TOKEN") == SECRET, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"a": 1}

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment with a pickle of every kind, made under a umask that lets everybody read."""
    before = os.umask(0o022)
    try:
        tuner = Tuner(
            sweep.with_parameters(Saving, data=bytes(100)),
            tune_config=TuneConfig(num_samples=1),
            run_config=RunConfig(
                name="first",
                storage_path=str(tmp_path),
                callbacks=[Stateful()],
                checkpoint_config=CheckpointConfig(checkpoint_at_end=True),
                runtime_env={"env_vars": {"TOKEN": SECRET, "LEVEL": "7"}},
                verbose=0,
            ),
        )
        (result,) = tuner.fit()
    finally:
        os.umask(before)
    assert result.metrics["has_token"]
    return tmp_path / "first"


def test_pickles_are_readable_by_their_owner_alone_and_hold_no_values_of_environment_variables(experiment: Path):
    pickles = [path for path in experiment.rglob("*") if path.suffix in (".pkl", ".objects")]
    assert {path.name for path in pickles} >= {"tuner.pkl", "callbacks.pkl", "dict_checkpoint.pkl"}
    assert {path.parent.name for path in pickles} >= {"code"}
    assert {path.suffix for path in pickles} == {".pkl", ".objects"}
    assert [path for path in pickles if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    for path in (experiment, experiment / "code"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    for path in experiment.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    arguments, _ = read_saved_spec(experiment)
    assert (arguments["env_names"], "env" in arguments) == (["LEVEL", "TOKEN"], False)


def test_a_private_file_is_so_from_its_first_moment_and_takes_the_place_of_another(tmp_path: Path):
    (tmp_path / "there").symlink_to(tmp_path / "victim")
    with create_private(tmp_path / "there") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        file.write(b"x")
    assert not (tmp_path / "victim").exists()


def test_a_restored_experiment_takes_them_from_the_environment_or_names_those_that_are_missing(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
):
    trainable = sweep.with_parameters(Saving, data=bytes(100))
    monkeypatch.setenv("LEVEL", "7")
    with pytest.raises(ConfigError, match="environment variable TOKEN, whose values are not stored") as raised:
        Tuner.restore(experiment, trainable)
    assert SECRET not in str(raised.value)
    more = TuneConfig(num_samples=2)
    again = RunConfig(runtime_env={"env_vars": {"TOKEN": "another"}}, verbose=0)
    assert len(Tuner.restore(experiment, trainable, tune_config=more, run_config=again).fit()) == 2
    monkeypatch.setenv("TOKEN", SECRET)
    grid = Tuner.restore(experiment, trainable, tune_config=TuneConfig(num_samples=3)).fit()
    assert [result.metrics["has_token"] for result in grid] == [True, False, True]
