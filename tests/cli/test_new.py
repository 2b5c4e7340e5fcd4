"""`sweep new`: the spec file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli.main import main, sweep
from sweep.cli.wandb_space import space_of
from sweep.cli.yaml_text import load_yaml
from sweep.programs.interface import Interface, Option

FOUND = Interface(
    "argparse",
    (
        Option("data", (), "positional", help="a directory"),
        Option("lr", ("--lr",), default=5e-05, help="learning rate"),
        Option("momentum", ("--momentum",), default=0.9),
        Option("batch_size", ("--batch-size",), default=32),
        Option("layers", ("--layers",), default=3),
        Option("opt", ("--opt",), default="sgd", choices=("sgd", "adam")),
        Option("amp", ("--amp",), "flag", default=False, help="mixed: 16 # bits"),
        Option("seed", ("--seed",), default=64),
        Option("optim.decay", ("--optim.decay",), default=0.0),
        Option("trainer", ("--trainer",), "group"),
    ),
    is_open=False,
)


def test_the_file_says_what_to_search_and_keeps_the_rest_as_comments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweep.cli.new.interface_of", lambda argv: FOUND)
    Path("train.py").touch()
    done = CliRunner().invoke(sweep, ["new", "train.py", "--", "fit"])
    assert done.output == "sweep.yaml is written. Edit its metric and ranges, then: sweep run sweep.yaml\n"
    text = Path("sweep.yaml").read_text()
    data, _ = load_yaml(Path("sweep.yaml"))
    assert data.pop("command") == ["${env}", "${interpreter}", "${program}", "fit", "${args}"]
    parameters = data.pop("parameters")
    assert data == {
        "program": "train.py",
        "method": "random",
        "metric": {"name": "loss", "goal": "minimize"},
        "run_cap": 20,
    }
    assert parameters == {
        "lr": {"distribution": "log_uniform_values", "min": 5e-06, "max": 0.0005},
        "momentum": {"min": 0.8, "max": 0.99},
        "batch_size": {"values": [16, 32, 64]},
        "opt": {"values": ["sgd", "adam"]},
    }
    assert "  # data: {value: null}  # default: null. a directory\n" in text
    assert "  # amp: {values: [true, false]}  # default: false. mixed: 16 # bits\n" in text
    assert "min: 5.0e-06" in text
    Path("all.yaml").write_text(text.replace("\n  # ", "\n  "))
    everything = load_yaml(Path("all.yaml"))[0]["parameters"]
    assert list(everything) == [one.name for one in FOUND.options if one.kind != "group"]
    assert space_of(everything)[1] == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["new", "train.py", "-o", "old.yaml"], "old.yaml exists already"),
        (["new", "gone.py"], "there is no file gone.py"),
        (
            ["new", "train.py"],
            "no library that parses arguments. Name its parameters: sweep run train.py lr=1",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, capsys, typed, said):
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text("mine")
    Path("train.py").touch()
    with pytest.raises(SystemExit, match="2"):
        main(typed)
    assert said in capsys.readouterr().err
    assert Path("old.yaml").read_text() == "mine"
    assert not Path("sweep.yaml").exists()
