"""What the command line and a spec file say of a cluster, as `sweep.init` hears it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweep.accelerators import inventory
from sweep.cli.main import sweep
from sweep.errors import ConfigError

SPEC = """
program: mine.py:train
metric: {name: score, goal: maximize}
parameters: {x: {min: 0.0, max: 1.0}}
cluster: {address: "127.0.0.1:1", max_nodes: 4, label_selector: {zone: "1"}}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a directory with a script and a spec file; nothing is joined there."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def train(config):\n    return {'score': 1}\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    yield tmp_path
    inventory.shutdown()


def told(*words: str, target: str = "mine.py:train", command: str = "run") -> dict[str, Any]:
    """Return what a command declares of a cluster, at which nothing answers."""
    of_target = () if target == "spec.yaml" else ("x=uniform(0,1)", "--maximize", "score")
    said = CliRunner().invoke(sweep, [command, target, *of_target, "--storage", "st", *words], standalone_mode=False)
    if isinstance(said.exception, ConfigError) and "there is no cluster of Ray at" not in str(said.exception):
        raise said.exception
    assert isinstance(said.exception, ConfigError) or not inventory.cluster_options("ray"), said.output
    return inventory.cluster_options("ray")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_keys_reach_init_as_numbers_texts_and_values_by_name(command: str) -> None:
    pytest.importorskip("ray")
    words = [
        "max_nodes=2",
        "cpus_per_node=1.5",
        "accelerator_type=4090",
        "label_selector.zone=1",
        "runtime_env.working_dir=.",
        "runtime_env.env_vars.A=1",
        'runtime_env.pip=["einops"]',
        "autoscale.node_type.CPU=8",
        "autoscale.max=3",
    ]
    given = [part for word in words for part in ("--cluster", word)]
    assert told("--address", "127.0.0.1:1", *given, command=command) == {
        "address": "127.0.0.1:1",
        "max_nodes": 2,
        "cpus_per_node": 1.5,
        "accelerator_type": "4090",
        "label_selector": {"zone": "1"},
        "runtime_env": {"working_dir": ".", "env_vars": {"A": "1"}, "pip": ["einops"]},
        "autoscale": {"node_type": {"CPU": 8}, "max": 3},
    }


def test_of_a_spec_file_options_win_and_another_engine_leaves_it_alone() -> None:
    pytest.importorskip("ray")
    kept = {"address": "127.0.0.1:1", "label_selector": {"zone": "1"}, "runtime_env": {}}
    assert told(target="spec.yaml") == {**kept, "max_nodes": 4}
    assert told("--cluster", "max_nodes=1", target="spec.yaml") == {**kept, "max_nodes": 1}
    inventory.shutdown()
    assert told("--engine", "local", target="spec.yaml") == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "max_node=4"], "max_nodes"),
        (["--cluster", "max_nodes"], "--cluster max_nodes: expected KEY=VALUE, such as max_nodes=4"),
        (["--cluster", "max_nodes=0"], "max_nodes is 0"),
        (["--cluster", "label_selector=a"], "label_selector is 'a'; expected texts by name"),
        (["--cluster", "runtime_env=a"], "runtime_env is 'a'; expected values by name"),
        (["--cluster", "max_nodes=1", "--engine", "local"], "--cluster is of a cluster. Give --engine ray,"),
    ],
)
def test_what_no_cluster_knows_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        told(*words)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cluster: {max_node: 4}", "max_nodes"),
        ("cluster: auto", "expected keys with values, such as {address: auto, max_nodes: 4}"),
    ],
)
def test_a_mistake_in_a_spec_file_is_named_with_its_line(place: Path, line: str, said: str) -> None:
    (place / "spec.yaml").write_text("program: mine.py:train\nparameters: {x: {value: 1}}\n" + line)
    with pytest.raises(ConfigError) as refused:
        told(target="spec.yaml")
    assert str(refused.value).startswith("spec.yaml:3: cluster: ")
    assert said in str(refused.value)


def test_a_sweep_goes_on_where_resume_is_told() -> None:
    pytest.importorskip("ray")
    told("--name", "made", "--trials", "1")
    words = [
        "resume",
        "made",
        "--storage",
        "st",
        "--trials",
        "+1",
        "--address",
        "127.0.0.1:1",
        "--cluster",
        "max_nodes=2",
    ]
    said = CliRunner().invoke(sweep, words, standalone_mode=False)
    assert "there is no cluster of Ray at address='127.0.0.1:1'" in str(said.exception)
    assert inventory.cluster_options("ray")["max_nodes"] == 2
