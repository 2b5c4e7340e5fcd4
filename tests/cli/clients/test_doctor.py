"""`sweep doctor`: what it finds, and what it says to do."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep.cli.main import sweep
from sweep.record.layout import DATABASE


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.cli.clients.doctor._ROUNDS", 1)
    monkeypatch.setattr("sweep.cli.clients.doctor.find_orphans", lambda mark: {})


def examined(storage: Path) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(sweep, ["doctor", "--json", "--storage", str(storage)], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, {one["check"]: one for one in json.loads(result.output)["findings"]}


def test_a_well_machine_is_well_and_nothing_is_left_behind(tmp_path: Path) -> None:
    code, found = examined(tmp_path / "not" / "yet")
    assert code == 0
    assert {"open files", "processes", "memory", "storage", "disk"} <= found.keys()
    assert "write, flush, rename and lock take" in found["storage"]["found"]
    assert list(tmp_path.iterdir()) == []
    text = CliRunner().invoke(sweep, ["doctor", "--storage", str(tmp_path)]).output
    assert text.startswith("versions: python ")
    assert "\nok     open files: " in text


def test_what_is_wrong_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sweep.cli.clients.doctor._probe", refuse)
    monkeypatch.setattr("sweep.cli.clients.doctor.find_orphans", lambda mark: {4242: "/data/one"})
    monkeypatch.setattr("sweep.cli.clients.doctor.process_limits", lambda: iter([(100, " (ulimit -u 100)")]))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / DATABASE).write_text("no database" * 100)
    code, found = examined(tmp_path)
    assert code == 1
    wrong = {check: (one["found"], one["do"]) for check, one in found.items() if one["state"] == "wrong"}
    assert wrong.keys() == {"open files", "processes", "storage", "orphans", "experiments"}
    assert wrong["storage"][0] == f"{tmp_path} cannot be used: No space left on device"
    assert wrong["orphans"][1] == "`sweep resume /data/one` ends it and goes on, or: kill 4242"
    assert all(do for _, do in wrong.values())


def test_a_crashed_sweep_is_noted(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    made.start(made.trial({"x": 1}))
    made.close()
    code, found = examined(tmp_path)
    assert (code, found["experiments"]["state"]) == (0, "note")
    assert "`sweep resume made` goes on." in found["experiments"]["do"]


def test_in_a_batch_job_it_names_what_the_job_has_and_a_plan_counts_on_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    text = CliRunner().invoke(sweep, ["doctor", "--storage", str(tmp_path)]).output
    assert "\ndevices: 1 CPUs, " in text
    assert " 0.1 GB allowed\n" in text
    (tmp_path / "job.py").write_text("def train(config):\n    return {'loss': 1}\n")
    options = ["--minimize", "loss", "--trials", "2", "--storage", str(tmp_path)]
    planned = CliRunner().invoke(sweep, ["plan", f"{tmp_path}/job.py:train", "x=uniform(0,1)", *options])
    assert "\npacking: 1 at a time\n  local: 1 of 1 CPUs: 0\n" in planned.output
