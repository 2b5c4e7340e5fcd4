"""What arguments scripts take, found by asking them; and what is refused of a search space."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import searchers as space
from sweep.errors import ConfigError
from sweep.programs.arguments import render
from sweep.programs.interface import Interface, Option, check_names, check_space, interface_of

SHOW = "def show(values):\n    import json\n    open('shown', 'w').write(json.dumps(values, default=str))\n"

SCRIPTS = {
    "argparse": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("data")
        parser.add_argument("--lr", "-l", type=float, default=0.1, help="learning rate")
        parser.add_argument("--batch-size", type=int, default=32)
        parser.add_argument("--opt", choices=["sgd", "adam"], required=True)
        parser.add_argument("--amp", action="store_true")
        parser.add_argument("--no-cuda", dest="cuda", action="store_false")
        parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.99))
        parser.add_argument("--tag", action="append")
        parser.add_argument("-v", action="count", default=0)
        parser.add_argument("-b", "--bias", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--ema", dest="ema", action="store_true")
        parser.add_argument("--no-ema", dest="ema", action="store_false")
        show(vars(parser.parse_args()))
    """,
    "tyro": """
        from dataclasses import asdict, dataclass, field
        from typing import Literal
        import tyro
        @dataclass
        class Optim:
            lr: float = 3e-4
            betas: tuple[float, float] = (0.9, 0.99)
        @dataclass
        class Args:
            seed: int
            env_id: str = "CartPole-v1"
            torch_deterministic: bool = True
            opt: Literal["sgd", "adam"] = "sgd"
            optim: Optim = field(default_factory=Optim)
        show(asdict(tyro.cli(Args)))
    """,
    "simple_parsing": """
        from dataclasses import dataclass
        from simple_parsing import ArgumentParser
        @dataclass
        class Options:
            lr: float = 0.1  # learning rate
            n_layers: int = 2
            shuffle: bool = False
        parser = ArgumentParser()
        parser.add_argument("--seed", type=int, default=1)
        parser.add_arguments(Options, dest="options")
        found = parser.parse_args()
        show({"seed": found.seed, **vars(found.options)})
    """,
    "jsonargparse": """
        import jsonargparse
        def fit(lr: float = 0.1, layers: int = 2, shuffle: bool = False, bias: bool = True, extra: dict = {}):
            show(dict(locals()))
        jsonargparse.CLI(fit)
    """,
    "transformers": """
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser
        @dataclass
        class Options:
            name: str
            learning_rate: float = field(default=5e-5, metadata={"help": "of AdamW"})
            fp16: bool = False
            shuffle: bool = True
        show(vars(HfArgumentParser((Options,)).parse_args_into_dataclasses()[0]))
    """,
    "click": """
        import click
        @click.command()
        @click.argument("data")
        @click.option("--lr", "-l", type=float, default=0.1, help="learning rate")
        @click.option("--batch-size", default=32)
        @click.option("--opt", type=click.Choice(["sgd", "adam"]), required=True)
        @click.option("--amp", is_flag=True)
        @click.option("--bias/--no-bias", default=True)
        @click.option("--betas", nargs=2, type=float)
        @click.option("--tag", multiple=True)
        @click.version_option("1")
        def main(**options):
            show(options)
        if __name__ == "__main__":
            main()
    """,
    "typer": """
        import typer
        app = typer.Typer()
        @app.callback()
        def top(seed: int = 0):
            global given
            given = {"seed": seed}
        @app.command()
        def train(data: str, lr: float = 0.1, amp: bool = False, layers: list[int] = [1, 2]):
            show({**given, **locals()})
        @app.command()
        def test(data: str):
            pass
        app()
    """,
    "absl": """
        from absl import app, flags
        flags.DEFINE_float("lr", 0.1, "learning rate")
        flags.DEFINE_bool("amp", False, "mixed precision")
        flags.DEFINE_enum("opt", "sgd", ["sgd", "adam"], "optimizer")
        flags.DEFINE_list("layers", ["1", "2"], "sizes")
        flags.DEFINE_multi_integer("width", [3], "widths")
        def main(argv):
            names = ("lr", "amp", "opt", "layers", "width")
            show({name: getattr(flags.FLAGS, name) for name in names})
        app.run(main)
    """,
    "fire": """
        import fire
        class Trainer:
            def __init__(self, data: str):
                self.data = data
            def train(self, lr: float = 0.1, layers=(1, 2), **more):
                show({"data": self.data, "lr": lr, "layers": layers, **more})
        fire.Fire(Trainer)
    """,
    "hydra": """
        import hydra
        from omegaconf import OmegaConf
        @hydra.main(config_path=".", config_name="conf", version_base=None)
        def main(cfg):
            show(OmegaConf.to_container(cfg))
        main()
    """,
    "lightning": """
        from lightning.pytorch.cli import LightningCLI
        from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel
        class Model(BoringModel):
            def __init__(self, lr: float = 0.1, width: int = 3):
                super().__init__()
                show({"model": {"lr": lr, "width": width}})
        LightningCLI(Model, BoringDataModule)
    """,
}


def asked(tmp_path: Path, text: str, *fixed: str) -> Interface:
    (tmp_path / "train.py").write_text(SHOW + textwrap.dedent(text), encoding="utf-8")
    (tmp_path / "conf.yaml").write_text("lr: 0.1\nmodel:\n  width: 8\n  name: ???\n", encoding="utf-8")
    found = interface_of([sys.executable, "train.py", *fixed], cwd=str(tmp_path), timeout_s=100)
    assert not (tmp_path / "shown").exists()
    return found


def brief(found: Interface) -> dict[str, tuple[object, ...]]:
    return {one.name: (one.kind, *one.flags, one.default, one.choices and tuple(one.choices)) for one in found.options}


KIND = {"click": "click", "typer": "click", "absl": "absl", "fire": "fire", "hydra": "hydra"}
FIXED = {"tyro": ["--env_id=other"], "typer": ["train"], "fire": ["train", "{lr}"], "lightning": ["fit"]}
MODULE = {"transformers": "transformers", "lightning": "lightning", "argparse": "argparse"}
TAKES: dict[str, dict[str, tuple[object, ...]]] = {
    "argparse": {
        "data": ("positional", None, None),
        "lr": ("value", "--lr", "-l", 0.1, None),
        "batch_size": ("value", "--batch-size", 32, None),
        "opt": ("value", "--opt", None, ("sgd", "adam")),
        "amp": ("flag", "--amp", False, None),
        "cuda": ("off", "--no-cuda", True, None),
        "betas": ("many", "--betas", [0.9, 0.99], None),
        "tag": ("repeat", "--tag", None, None),
        "v": ("flag", "-v", 0, None),
        "bias": ("pair", "--bias", "--no-bias", True, None),
        "ema": ("pair", "--ema", "--no-ema", False, None),
    },
    "tyro": {
        "seed": ("value", "--seed", None, None),
        "env_id": ("value", "--env-id", "CartPole-v1", None),
        "torch_deterministic": ("pair", "--torch-deterministic", "--no-torch-deterministic", True, None),
        "opt": ("value", "--opt", "sgd", ("sgd", "adam")),
        "optim.lr": ("value", "--optim.lr", 0.0003, None),
        "optim.betas": ("many", "--optim.betas", "0.9 0.99", None),
    },
    "simple_parsing": {
        "seed": ("value", "--seed", 1, None),
        "lr": ("value", "--lr", 0.1, None),
        "n_layers": ("value", "--n_layers", 2, None),
        "shuffle": ("pair", "--shuffle", "--noshuffle", False, None),
    },
    "jsonargparse": {
        "config": ("value", "--config", None, None),
        "lr": ("value", "--lr", 0.1, None),
        "layers": ("value", "--layers", 2, None),
        "shuffle": ("value", "--shuffle", False, None),
        "bias": ("value", "--bias", True, None),
        "extra": ("tree", "--extra", {}, None),
    },
    "transformers": {
        "name": ("value", "--name", None, None),
        "learning_rate": ("value", "--learning_rate", "--learning-rate", 5e-05, None),
        "fp16": ("value", "--fp16", False, None),
        "shuffle": ("value", "--shuffle", True, None),
    },
    "click": {
        "data": ("positional", None, None),
        "lr": ("value", "--lr", "-l", 0.1, None),
        "batch_size": ("value", "--batch-size", 32, None),
        "opt": ("value", "--opt", None, ("sgd", "adam")),
        "amp": ("flag", "--amp", False, None),
        "bias": ("pair", "--bias", "--no-bias", True, None),
        "betas": ("many", "--betas", None, None),
        "tag": ("repeat", "--tag", None, None),
    },
    "typer": {
        "data": ("positional", None, None),
        "lr": ("value", "--lr", 0.1, None),
        "amp": ("pair", "--amp", "--no-amp", False, None),
        "layers": ("repeat", "--layers", [1, 2], None),
        "seed": ("value", "--seed", 0, None),
    },
    "absl": {
        "lr": ("value", "--lr", 0.1, None),
        "amp": ("pair", "--amp", "--noamp", False, None),
        "opt": ("value", "--opt", "sgd", ("sgd", "adam")),
        "layers": ("value", "--layers", ["1", "2"], None),
        "width": ("repeat", "--width", [3], None),
    },
    "fire": {
        "data": ("value", "--data", None, None),
        "lr": ("value", "--lr", 0.1, None),
        "layers": ("value", "--layers", [1, 2], None),
    },
    "hydra": {
        "lr": ("value", "lr", 0.1, None),
        "model": ("group", "model", None, None),
        "model.width": ("value", "model.width", 8, None),
        "model.name": ("value", "model.name", None, None),
    },
    "lightning": {
        "trainer": ("group", "--trainer", None, None),
        "trainer.max_epochs": ("value", "--trainer.max_epochs", None, None),
        "model": ("group", "--model", None, None),
        "model.lr": ("value", "--model.lr", 0.1, None),
        "ckpt_path": ("value", "--ckpt_path", None, None),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("library", SCRIPTS)
def test_a_script_says_what_it_takes_and_does_nothing_else(tmp_path, library):
    pytest.importorskip(MODULE.get(library, library))
    found = asked(tmp_path, SCRIPTS[library], *FIXED.get(library, ()))
    assert (found.kind, found.why) == (KIND.get(library, "argparse"), "")
    assert found.is_open == (library == "fire")  # which has **more
    takes = brief(found)
    assert {name: takes.get(name) for name in TAKES[library]} == TAKES[library]
    assert library == "lightning" or takes.keys() == TAKES[library].keys()


NASTY = "-x 'y'\n\"z\" --lr=3"
RUNS: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "argparse": (
        [],
        {"lr": 1e-05, "batch_size": 64, "opt": "adam", "amp": True, "cuda": False, "betas": [-0.5, 1], "v": True}
        | {"tag": [NASTY, "b"], "bias": False, "ema": False, "data": "-d"},
        {"v": 1},
    ),
    "tyro": (
        [],
        {"seed": 3, "env_id": NASTY, "torch_deterministic": False, "opt": "adam"}
        | {"optim": {"lr": 1e-05, "betas": [0, 1]}},
        {},
    ),
    "simple_parsing": ([], {"lr": 1e-05, "n_layers": 4, "shuffle": True}, {"seed": 1}),
    "jsonargparse": (
        [],
        {"lr": 1e-05, "shuffle": True, "bias": False, "extra": {"a": {"b": [1, "x y"]}}},
        {"layers": 2},
    ),
    "transformers": ([], {"name": NASTY, "learning_rate": 1e-05, "fp16": True, "shuffle": False}, {}),
    "click": (
        [],
        {"data": "-d", "lr": -1e-05, "opt": "adam", "amp": True, "bias": False, "betas": [-1, 2], "tag": [NASTY, "b"]},
        {"batch_size": 32},
    ),
    "typer": (["train"], {"seed": 3, "data": NASTY, "lr": 1e-05, "amp": True, "layers": [3]}, {}),
    "absl": (
        [],
        {"lr": 1e-05, "amp": False, "opt": "adam", "layers": [3, 4], "width": [5, 6]},
        {"layers": ["3", "4"]},
    ),
    "fire": (["train"], {"data": "16", "lr": 1e-05, "layers": [3, None], "word": NASTY, "on": False}, {}),
    "hydra": (
        [],
        {"lr": 1e-05, "model": {"width": None, "name": NASTY}, "+new": ["16", {"a": "b c\\"}]},
        {},
    ),
    "lightning": (
        ["fit", "--trainer.fast_dev_run=true", "--trainer.logger=false"],
        {"model": {"lr": 1e-05, "width": 4}},
        {},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("library", SCRIPTS)
def test_a_script_gets_the_values_that_were_written(tmp_path, library):
    pytest.importorskip(MODULE.get(library, library))
    fixed, config, more = RUNS[library]
    found = asked(tmp_path, SCRIPTS[library], *fixed)
    words = render(["train.py", *fixed], config, interface=found, variables={})
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (tmp_path / "shown").exists(), (words, done.stderr)
    shown = json.loads((tmp_path / "shown").read_text())
    assert shown == {name.lstrip("+"): value for name, value in config.items()} | more


COMMANDS = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("fit").add_argument("--lr", type=float)
    commands.add_parser("test").add_argument("--split")
    parser.parse_args()
"""
STAGES = """
    import argparse
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config")
    config, rest = first.parse_known_args()
    parser = argparse.ArgumentParser(parents=[first])
    parser.add_argument("--lr", type=float)
    parser.parse_args(rest)
"""


@pytest.mark.slow
def test_a_sub_command_is_chosen_by_the_fixed_arguments(tmp_path):
    found = asked(tmp_path, COMMANDS, "fit")
    assert [(one.name, one.before) for one in found.options] == [("lr", ""), ("seed", "fit")]
    found = asked(tmp_path, COMMANDS)
    assert [one.name for one in found.options] == ["seed"]
    with pytest.raises(ConfigError, match=r"takes seed\. It has the sub-commands fit, test: give"):
        check_names(found, ["lr"], "train.py")


CHOICES = """
    import argparse, enum
    class Color(enum.Enum):
        RED = "r"
    class Share:
        def __contains__(self, value):
            return 0 < value < 1
    parser = argparse.ArgumentParser()
    parser.add_argument("--color", type=Color, choices=list(Color))
    parser.add_argument("--number", type=int, choices=range(1000))
    parser.add_argument("--depth", type=int, choices=range(1, 3))
    parser.add_argument("--share", type=float, choices=Share(), metavar="SHARE")
    parser.parse_args()
"""


@pytest.mark.slow
def test_choices_are_known_where_how_they_are_written_is(tmp_path):
    found = asked(tmp_path, CHOICES)
    assert {one.name: one.choices and tuple(one.choices) for one in found.options} == {
        "color": None,
        "number": None,
        "depth": (1, 2),
        "share": None,
    }


@pytest.mark.slow
def test_a_script_that_parses_in_two_stages_is_asked_at_the_second(tmp_path):
    found = asked(tmp_path, STAGES)
    assert [one.name for one in found.options] == ["config", "lr"]
    assert not found.is_open


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("import argparse\nargparse.ArgumentParser().parse_known_args()", "argparse", ""),
        ("import argparse\n1 / 0\nargparse.ArgumentParser().parse_args()", "none", "ZeroDivisionError"),
        ("import argparse\ninput()\nargparse.ArgumentParser().parse_args()", "none", "EOFError"),
        ("import click, time\ntime.sleep(99)", "none", "within 1 s"),
        ("import click, os\nos.kill(os.getpid(), 9)", "none", "code -9"),
        ("import click", "none", "without parsing arguments"),
    ],
)
def test_what_cannot_be_found_out_is_open_and_says_why(tmp_path, text, kind, why):
    (tmp_path / "train.py").write_text(text)
    found = interface_of([sys.executable, "train.py"], cwd=str(tmp_path), timeout_s=1 if "sleep" in text else 60)
    assert (found.kind, found.is_open) == (kind, True)
    assert why in found.why


def test_an_interpreter_that_is_not_there_is_said(tmp_path):
    (tmp_path / "train.py").write_text("import click")
    found = interface_of(["/gone/python3", "train.py"], cwd=str(tmp_path))
    assert (found.kind, found.why) == ("none", "/gone/python3 cannot be started: No such file or directory")


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("import sys\nlr = float(sys.argv[1])", ["python", "train.py"]),
        ("import helper", ["python", "train.py"]),
        ("import helper", ["python", "-m", "train"]),
        ("", ["python", "-c", "import click"]),
        ("", ["./simulate.sh"]),
        ("", ["python", "gone.py"]),
        ("(", ["python", "train.py"]),
    ],
)
def test_a_program_that_names_no_library_for_arguments_is_not_run(tmp_path, monkeypatch, text, argv):
    monkeypatch.setattr("subprocess.Popen", None)
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "helper.py").write_text("if __name__ == '__main__':\n    parser.parse_args()")
    assert interface_of(argv, cwd=str(tmp_path)) == Interface("none")


@pytest.mark.parametrize(
    ("text", "helper"),
    [
        ("from fire import Fire", ""),
        ("from typer import Typer", ""),
        ("from absl.flags import FLAGS", ""),
        ("import hydra\nhydra.main()", ""),
        ("import package.deep", "import argparse\ndef read(p):\n    return p.parse_known_args()"),
        ("from package import deep", "from lightning.pytorch.cli import LightningCLI"),
        ("def f():\n    from package.deep import x", "from transformers import P\nP().parse_args_into_dataclasses()"),
    ],
)
def test_a_program_is_asked_if_it_or_its_modules_name_such_a_library(tmp_path, monkeypatch, text, helper):
    started: list[Any] = []
    monkeypatch.setattr("sweep.programs.interface._run", lambda command, *more: started.append(command) or 0)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "deep.py").write_text(helper)
    (tmp_path / "train.py").write_text(text)
    interface_of(["python", "train.py"], cwd=str(tmp_path))
    assert started


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv", [["-m", "pack.train"], ["-m", "launcher", "train.py"], ["-O", "train.py", "{lr}"], ["-m", "pack"]]
)
def test_the_script_is_found_behind_launchers_and_as_a_module(tmp_path, argv):
    text = "from argparse import ArgumentParser\np = ArgumentParser()\np.add_argument('--lr')\np.parse_args()"
    (tmp_path / "pack").mkdir()
    for name in ("train.py", "pack/train.py", "pack/__main__.py"):
        (tmp_path / name).write_text(text)
    found = interface_of([sys.executable, *argv], cwd=str(tmp_path), timeout_s=60)
    assert [one.name for one in found.options] == ["lr"]


KNOWN = Interface(
    "argparse",
    (
        Option("learning_rate", ("--learning-rate",)),
        Option("opt", ("--opt",), choices=("sgd", "adam")),
        Option("depth", ("--depth",), choices=(1, 2)),
        Option("extra", ("--extra",), "tree"),
        Option("amp", ("--amp",), "flag"),
        Option("width", ("--width",), type="int"),
    ),
    is_open=False,
)


@pytest.mark.parametrize(
    "given",
    [
        {"learning-rate": space.loguniform(1e-5, 1e-1), "opt": space.choice(["SGD", "adam"]), "depth": 1},
        {"opt": space.grid_search(["sgd"]), "extra": {"a": 1}, "extra.b": 2, "depth": None},
        {"opt": space.sample_from(lambda: "x")},
        {"amp": space.choice([True, "false"]), "width": space.choice([1, "2"])},
    ],
)
def test_a_space_that_a_program_takes_passes(given):
    check_space(KNOWN, given, "train.py")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lerning_rate": 1, "x": 2}, r"train.py takes no parameter 'lerning_rate' \(did you mean 'learning_rate'\?\)"),
        ({"lerning_rate": 1, "x": 2}, r", nor 'x'\. It takes learning_rate, opt, depth, extra, amp, width\."),
        ({"opt": "adamw"}, r"does not take opt='adamw'; its choices are sgd, adam"),
        ({"opt": space.choice(["sgd", "lion"])}, "opt='lion'"),
        ({"depth": space.grid_search([1, 2, 3])}, "depth=3"),
        ({"amp": space.choice([True, "maybe"])}, "does not take amp='maybe'; it is true or false"),
        ({"width": "hello"}, "does not take width='hello'; it is a number"),
    ],
)
def test_a_space_that_a_program_does_not_take_is_refused_with_what_it_takes(given, said):
    with pytest.raises(ConfigError, match=said):
        check_space(KNOWN, given, "train.py")


def test_an_open_interface_refuses_no_name():
    check_names(Interface("argparse", KNOWN.options, is_open=True), ["whatever"], "train.py")


def test_hydra_takes_additions_and_its_own_keys():
    hydra = Interface("hydra", (Option("lr", ("lr",)),), is_open=False)
    check_names(hydra, ["lr", "+new", "++lr", "hydra.run.dir"], "app.py")
    with pytest.raises(ConfigError, match="'new'"):
        check_names(hydra, ["new"], "app.py")


def test_a_long_list_of_options_is_cut():
    many = Interface("click", tuple(Option(f"o{number}", (f"--o{number}",)) for number in range(99)), is_open=False)
    with pytest.raises(ConfigError, match=r"o29, \.\.\. \(99 in all\)\.$"):
        check_names(many, ["zzz"], "train.py")


def test_the_child_that_asks_ends_with_who_asks(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import argparse, os, time\n"
        "print(os.getpid(), file=open('new', 'w'), flush=True)\nos.rename('new', 'pid')\n"
        "time.sleep(600)\nargparse.ArgumentParser().parse_args()\n"
    )
    code = f"from sweep.programs.interface import interface_of; interface_of([{sys.executable!r}, 'slow.py'], cwd='.')"
    asking = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    while not (tmp_path / "pid").exists():
        assert asking.poll() is None
        time.sleep(0.01)
    asking.kill()
    asking.wait()
    stat = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
