"""A checkpoint that is damaged when its trial goes on: the trial continues from the one before, and it is said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
from sweep import CheckpointConfig, Result, Trainable
from sweep.cli.main import sweep as command_line
from sweep.core.messages import CloneTrial, Exited, ExitKind, PauseTrial, ResumeTrial
from sweep.record.facts import read_facts
from sweep.schedulers import FIFOScheduler
from sweep.simulation.curves import Curves
from sweep.simulation.replay import replay
from sweep.train import DataParallelTrainer, ScalingConfig


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


HARMS: dict[str, Callable[[Path], Any]] = {
    "truncate": lambda directory: os.truncate(directory / "state", 1),
    "zero": lambda directory: (directory / "state").write_bytes(bytes((directory / "state").stat().st_size)),
    "delete a file": lambda directory: (directory / "state").unlink(),
    "delete": shutil.rmtree,
    "empty": empty,
    "cut the manifest": lambda directory: os.truncate(directory / ".sweep-manifest.json", 20),
}


def newest(trial_dir: str | Path) -> Path:
    return max(Path(trial_dir).glob("checkpoint_*"))


def save(step: int) -> Any:
    with sweep.checkpoint_dir() as directory:
        Path(directory, "state").write_text(f"step {step:03d}")


def restored() -> int:
    found = sweep.get_checkpoint()
    if found is None:
        return 0
    with found.as_directory() as directory:
        return int(Path(directory, "state").read_text().split()[1])


def train(config: dict[str, Any]) -> None:
    """Go four steps; the first attempt fails at the third and leaves what `harm` has made of its checkpoints."""
    start = restored()
    for step in range(start + 1, 5):
        if step == 4 and sweep.get_context().get_attempt() == 1:
            directory = Path(str(sweep.get_trial_dir()))
            for path in sorted(directory.glob("checkpoint_*"))[-config["number"] :]:
                HARMS[config["harm"]](path)
            raise RuntimeError("fails once")
        save(step)
        sweep.report(step=step, start=start)


class Train(Trainable):
    """The same as a class."""

    def setup(self, config: dict[str, Any]) -> None:
        self.at = self.start = 0

    def step(self) -> dict[str, Any]:
        self.at += 1
        trial_dir = Path(str(sweep.get_trial_dir()))
        if self.at == 4 and not (trial_dir / "failed").exists():
            (trial_dir / "failed").touch()
            HARMS[self.config["harm"]](newest(trial_dir))
            raise RuntimeError("fails once")
        return {"step": self.at, "start": self.start, "done": self.at == 4}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_text(f"step {self.at:03d}")

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.at = self.start = int(Path(checkpoint, "state").read_text().split()[1])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config = new_config
        self.at = self.start = 0
        return True


def go(tmp_path: Path, trainable: Any, **given: Any) -> tuple[Result, Path]:
    analysis = sweep.run(
        trainable,
        name="damaged",
        storage_path=tmp_path,
        **{"engine": "inline", "verbose": 0, "max_failures": 1, "resources_per_trial": {"cpu": 1}, "seed": 1} | given,
    )
    root = Path(analysis.experiment_path)
    return Result.from_path(analysis.trials[0].path), root


def exits(root: Path) -> list[ExitKind]:
    return [told.event.exit.kind for told in read_facts(root / "sweep.db") if isinstance(told.event, Exited)]


@pytest.mark.parametrize("harm", HARMS)
def test_a_trial_continues_from_the_checkpoint_before_the_damaged_one(tmp_path: Path, harm: str):
    result, root = go(tmp_path, train, config={"harm": harm, "number": 1})
    assert result.status == "TERMINATED", result.error
    assert (result.metrics["step"], result.metrics["start"]) == (4, 2)
    assert exits(root) == [ExitKind.FAILED, ExitKind.DAMAGED, ExitKind.FINISHED]
    assert sweep.ExperimentAnalysis(root).trials[0].failures == 1  # the damage is none of its own
    assert replay(root).is_same
    left = {path.name for path in Path(result.path).iterdir() if path.is_dir()}
    aside = set() if harm == "delete" else {"damaged_checkpoint_000003"}
    assert left == {f"checkpoint_00000{n}" for n in (1, 2, 3, 4)} | aside
    assert [Path(one.path).name for one, _ in result.best_checkpoints] == sorted(left - aside)


def test_where_all_are_damaged_it_starts_anew(tmp_path: Path):
    result, root = go(tmp_path, train, config={"harm": "zero", "number": 3})
    assert (result.metrics["step"], result.metrics["start"]) == (4, 0)
    assert exits(root) == [ExitKind.FAILED, *[ExitKind.DAMAGED] * 3, ExitKind.FINISHED]
    assert replay(root).is_same


@pytest.mark.parametrize("how", [{"engine": "inline"}, {"engine": "local"}, {"engine": "local", "reuse_actors": True}])
def test_a_class_likewise_whose_retention_keeps_two(tmp_path: Path, how: dict[str, Any]):
    keep = CheckpointConfig(num_to_keep=2, checkpoint_frequency=1)
    result, root = go(tmp_path, Train, config={"harm": "zero"}, checkpoint_config=keep, **how)
    assert (result.metrics["step"], result.metrics["start"]) == (4, 2)
    assert exits(root)[:2] == [ExitKind.FAILED, ExitKind.DAMAGED]
    left = sorted(path.name for path in Path(result.path).glob("*checkpoint_*"))
    assert left == ["checkpoint_000003", "checkpoint_000004", "damaged_checkpoint_000003"]
    assert replay(root).is_same


def killed(config: dict[str, Any]) -> None:
    """Go four steps; the driver is interrupted in the second, and what it left is harmed by the test."""
    start = restored()
    for step in range(start + 1, 5):
        save(step)
        sweep.report(step=step, start=start)
        if step == 2 and start == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("harm", ["zero", "delete"])
@pytest.mark.parametrize(("number", "start"), [(1, 1), (2, 0)])
def test_a_resumed_sweep_replays_whatever_was_lost_meanwhile(tmp_path: Path, harm: str, number: int, start: int):
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, killed)
    (trial_dir,) = (tmp_path / "damaged").glob("*_00000")
    for path in sorted(trial_dir.glob("checkpoint_*"))[-number:]:
        HARMS[harm](path)
    result, root = go(tmp_path, killed if start else train, resume=True)
    assert (result.metrics["step"], result.metrics["start"]) == (4, start)
    assert replay(root).is_same


def test_it_is_said_and_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result, root = go(tmp_path, train, config={"harm": "zero", "number": 1}, verbose=1)
    said = " ".join("".join(capsys.readouterr()).split())
    trial = result.trial_id
    assert (
        f"trial 00000 starts again from {trial}/checkpoint_000002: the checkpoint {trial}/checkpoint_000003 is damaged"
        f": the contents of state have changed; what is left of it is in {trial}/damaged_checkpoint_000003"
    ) in said
    assert Path(result.path, "error.txt").read_text().count("Failure #") == 1
    why = CliRunner().invoke(command_line, ["why", "damaged", "--storage", str(tmp_path)])
    assert "an earlier start failed: the checkpoint " in why.output
    assert [point.metrics["step"] for point in Curves.from_experiment(root).curves[0].points] == [1, 2, 3, 4]


class Swap(FIFOScheduler):
    """Pauses trial 0 at its third report; at the same of trial 1 has that continue from the checkpoint of trial 0."""

    def on_result(self, trial: Any, result: Any, trials: Any) -> Any:
        if trial.attempt > 1 or result["step"] != 3:
            return []
        if trial.number == 0:
            return [PauseTrial(trial.id)]
        source = min(trials)
        return [CloneTrial(trial.id, source, {**trial.config, "is_clone": True}), ResumeTrial(source)]


def copied(config: dict[str, Any]) -> None:
    start = restored()
    for step in range(start + 1, 5):
        save(step)
        if not config["is_clone"] and config["case"] == 1 and step == 3:
            source = min(Path(str(sweep.get_trial_dir())).parent.glob("*_00000"))
            for path in sorted(source.glob("checkpoint_*"))[-config["number"] :]:
                HARMS["zero"](path)
        sweep.report(step=step, start=start, is_clone=config["is_clone"])


@pytest.mark.parametrize(("number", "starts"), [(1, [2, 2]), (3, [0, 3])])
def test_a_clone_of_a_damaged_checkpoint_continues_from_the_one_before_else_from_its_own(
    tmp_path: Path, number: int, starts: list[int]
):
    config = {"case": sweep.grid_search([0, 1]), "number": number, "is_clone": False}
    _, root = go(tmp_path, copied, config=config, scheduler=Swap(), nodes=[sweep.Node(cpus=1)])
    one, other = (trial.last_result for trial in sweep.ExperimentAnalysis(root).trials)
    assert [one["step"], other["step"]] == [4, 4]
    assert [one["start"], other["start"]] == starts
    assert [one["is_clone"], other["is_clone"]] == [False, True]
    assert exits(root).count(ExitKind.DAMAGED) > number
    assert replay(root).is_same


def ranks(config: dict[str, Any]) -> None:
    context = sweep.train.get_context()
    start = restored()
    for step in range(start + 1, 5):
        if step == 4 and start == 0 and context.get_world_rank() == 1:
            HARMS["zero"](newest(str(sweep.get_trial_dir())))
            raise RuntimeError("fails once")
        save(step)
        sweep.report(step=step, start=start)


def test_a_group_likewise(tmp_path: Path):
    trainer = DataParallelTrainer(ranks, scaling_config=ScalingConfig(num_workers=2))
    result, root = go(tmp_path, trainer, engine="local", nodes=[sweep.Node(cpus=4)], resources_per_trial=None)
    assert (result.metrics["step"], result.metrics["start"]) == (4, 2)
    assert exits(root) == [ExitKind.FAILED, ExitKind.DAMAGED, ExitKind.FINISHED]
