"""Configs as arguments of programs: every kind of option, placeholders, macros, quoting."""

from __future__ import annotations

import argparse
import math

import pytest

from sweep.errors import ConfigError
from sweep.programs.arguments import appended, render
from sweep.programs.interface import Interface, Option

NONE = Interface("none")
ARGPARSE = Interface(
    "argparse",
    (
        Option("data", (), "positional"),
        Option("lr", ("--lr", "-l"), type="float"),
        Option("batch_size", ("--batch-size",), type="int"),
        Option("amp", ("--amp",), "flag"),
        Option("cuda", ("--no-cuda",), "off"),
        Option("bias", ("--bias", "--no-bias"), "pair"),
        Option("betas", ("--betas",), "many"),
        Option("tag", ("--tag",), "repeat"),
        Option("shuffle", ("--shuffle",), type="bool"),
        Option("model", ("--model",), "group"),
        Option("model.lr", ("--model.lr",)),
        Option("extra", ("--extra",)),
        Option("optimizer", ("--optimizer",), "tree"),
    ),
    is_open=False,
)
CLICK = Interface(
    "click", (Option("lr", ("--lr",)), Option("depth", ("-d",)), Option("size", ("--size",), "many")), False
)
ABSL = Interface("absl", (Option("x", ("--x", "--nox"), "pair"), Option("layers", ("--layers",), type="list")), False)
FIRE = Interface("fire", (Option("x", ("--x",)),), False)
HYDRA = Interface("hydra", (Option("lr", ("lr",)), Option("model", ("model",), "group")), False)


@pytest.mark.parametrize(
    ("interface", "config", "expected"),
    [
        (NONE, {"lr": 1e-05, "flag": True, "name": "a b", "none": None}, ["--lr=1e-05", "--flag=True", "--name=a b"]),
        (NONE, {"net": {"width": 8}, "sizes": [1, 2]}, ["--net.width=8", "--sizes=[1, 2]"]),
        (ARGPARSE, {"lr": 0.1 + 0.2, "batch-size": 32}, ["--lr=0.30000000000000004", "--batch-size=32"]),
        (ARGPARSE, {"lr": -1, "batch_size": None}, ["--lr=-1"]),
        (ARGPARSE, {"extra": "-x 'y'\n\"z\""}, ["--extra=-x 'y'\n\"z\""]),
        (ARGPARSE, {"batch_size": 64.0}, ["--batch-size=64"]),
        (ARGPARSE, {"batch_size": True}, ["--batch-size=1"]),
        (ARGPARSE, {"batch_size": math.inf}, ["--batch-size=inf"]),
        (ARGPARSE, {"amp": True}, ["--amp"]),
        (ARGPARSE, {"amp": False}, []),
        (ARGPARSE, {"amp": "false"}, []),
        (ARGPARSE, {"cuda": True}, []),
        (ARGPARSE, {"cuda": False}, ["--no-cuda"]),
        (ARGPARSE, {"no_cuda": True}, ["--no-cuda"]),
        (ARGPARSE, {"no-cuda": False}, []),
        (ARGPARSE, {"bias": True}, ["--bias"]),
        (ARGPARSE, {"bias": False}, ["--no-bias"]),
        (ARGPARSE, {"no_bias": True}, ["--no-bias"]),
        (ARGPARSE, {"no_bias": False}, ["--bias"]),
        (ARGPARSE, {"betas": [0.9, 0.99], "data": "d"}, ["d", "--betas", "0.9", "0.99"]),
        (ARGPARSE, {"betas": -1}, ["--betas=-1"]),
        (ARGPARSE, {"lr": 1, "data": "-d"}, ["--lr=1", "--", "-d"]),
        (ARGPARSE, {"data": "-1"}, ["-1"]),
        (ARGPARSE, {"tag": ["a", "b"]}, ["--tag=a", "--tag=b"]),
        (ARGPARSE, {"shuffle": False}, ["--shuffle="]),
        (ARGPARSE, {"shuffle": True}, ["--shuffle=True"]),
        (ARGPARSE, {"model": {"lr": 1}}, ["--model.lr=1"]),
        (ARGPARSE, {"model.lr": 1}, ["--model.lr=1"]),
        (ARGPARSE, {"extra": {"a": [1, "é"]}}, ['--extra={"a": [1, "é"]}']),
        (ARGPARSE, {"optimizer": {"init_args": {"lr": 1}}}, ["--optimizer.init_args.lr=1"]),
        (CLICK, {"lr": -0.1, "depth": -3, "size": [1, 2]}, ["--lr=-0.1", "-d", "-3", "--size", "1", "2"]),
        (ABSL, {"x": False, "layers": [1, 2]}, ["--nox", "--layers=1,2"]),
        (FIRE, {"x": 0.1}, ["--x=0.1"]),
        (FIRE, {"x": "adam"}, ["--x=adam"]),
        (FIRE, {"x": "16"}, ["--x='16'"]),
        (FIRE, {"x": [1, None]}, ["--x=[1, None]"]),
        (HYDRA, {"lr": 1e-05, "model": {"width": 8, "act": None}}, ["lr=1e-05", "model.width=8", "model.act=null"]),
        (HYDRA, {"lr": True, "model": "resnet"}, ["lr=true", "model=resnet"]),
        (HYDRA, {"a": "x y", "b": "it's", "c": "16", "d": "a\\"}, ["a='x y'", "b='it\\'s'", "c='16'", "d='a\\\\'"]),
        (HYDRA, {"a": [1, {"b": "c d"}, None]}, ["a=[1,{b:'c d'},null]"]),
        (HYDRA, {"+new": 1}, ["+new=1"]),
    ],
)
def test_a_config_is_written_as_the_program_takes_it(interface, config, expected):
    assert render([], config, interface=interface, variables={}) == expected


def test_what_is_written_is_what_argparse_reads():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--extra")
    parser.add_argument("--shuffle", type=bool)
    parser.add_argument("--betas", nargs="+", type=float)
    config = {"extra": "--a=b \n'", "lr": math.pi * 1e-7, "shuffle": False, "betas": [-0.5, 1e-9], "data": "-d"}
    assert vars(parser.parse_args(render([], config, interface=ARGPARSE, variables={}))) == config


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (["python", "t.py"], ["python", "t.py", "--lr=0.1", "--amp"]),
        (["t.py", "--lr", "{lr}", "--out", "{trial_dir}/x"], ["t.py", "--lr", "0.1", "--out", "/d/x", "--amp"]),
        (['{"a": {"b": 1}}', "{other}", "{{lr}}"], ['{"a": {"b": 1}}', "{other}", "{lr}", "--lr=0.1", "--amp"]),
        (["t.py", '{{"a": {{"b": {lr}}}}}'], ["t.py", '{"a": {"b": 0.1}}', "--amp"]),
        (["${env}", "${interpreter}", "${program}", "${args}"], [*"/usr/bin/env python t.py --lr=0.1 --amp".split()]),
        (["${args_no_equals}", "tail"], ["--lr", "0.1", "--amp", "tail"]),
        (["${args_no_boolean_flags}"], ["--lr=0.1", "--amp"]),
        (["${args_no_hyphens}"], ["lr=0.1", "amp=True"]),
        (["${args_append_hydra}"], ["+lr=0.1", "+amp=true"]),
        (["${args_override_hydra}"], ["++lr=0.1", "++amp=true"]),
        (["${args_json}"], ['{"lr": 0.1, "amp": true}']),
        (["--config", "${args_json_file}"], ["--config", "/d/c.json"]),
        (["x=${envvar:SWEEP_TEST_A}-${envvar:SWEEP_TEST_B}", "${args_json_file}"], ["x=1-SWEEP_TEST_B", "/d/c.json"]),
        (["--out=runs/${trial_dir}/${lr}", "${args_json_file}"], ["--out=runs//d/${lr}", "/d/c.json"]),
    ],
)  # fmt: skip
def test_a_template_is_filled_in(template, expected, monkeypatch):
    monkeypatch.setenv("SWEEP_TEST_A", "1")
    variables = {"trial_dir": "/d", "program": "t.py", "args_json_file": "/d/c.json"}
    assert render(template, {"lr": 0.1, "amp": True}, interface=ARGPARSE, variables=variables) == expected


def test_the_config_is_written_for_the_macro_that_names_its_file(tmp_path):
    words = render(["${args_json_file}"], {"lr": 0.1}, interface=ARGPARSE, variables={"trial_dir": str(tmp_path)})
    assert words == [str(tmp_path / "args.json")]
    assert (tmp_path / "args.json").read_text() == '{"lr": 0.1}'


def test_without_an_interface_the_macros_are_those_of_wandb():
    config = {"lr": 0.1, "on": True, "off": False}
    flags = render(["${args_no_boolean_flags}"], config, interface=NONE, variables={})
    assert flags == ["--lr=0.1", "--on"]
    assert render(["${args}"], config, interface=NONE, variables={}) == ["--lr=0.1", "--on=True", "--off=False"]


def test_a_list_that_is_a_word_of_its_own_becomes_words():
    words = render(["--betas", "{betas}", "--x={betas}"], {"betas": [1, 2]}, interface=ARGPARSE, variables={})
    assert words == ["--betas", "1", "2", "--x=[1, 2]"]


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        (["--amp", "{x}", "t"], True, ["--amp", "t"]),
        (["--amp", "{x}", "t"], False, ["t"]),
        (["--no-cuda", "{x}"], True, ["--no-cuda"]),
        (["--no-cuda", "{x}"], False, []),
        (["--no-bias", "{x}"], True, ["--no-bias"]),
        (["--no-bias", "{x}"], False, ["--bias"]),
        (["--shuffle", "{x}"], False, ["--shuffle", "False"]),
        (["--amp", "{x}"], 3, ["--amp", "3"]),
    ],
)
def test_a_switch_with_a_placeholder_is_given_or_not(template, value, expected):
    assert render(template, {"x": value}, interface=ARGPARSE, variables={}) == expected


def test_options_of_an_outer_command_stand_before_the_inner_one():
    interface = Interface("argparse", (Option("seed", ("--seed",), before="fit"), Option("lr", ("--lr",))))
    words = render(["t.py", "fit", "x"], {"lr": 1, "seed": 2}, interface=interface, variables={})
    assert words == ["t.py", "--seed=2", "fit", "x", "--lr=1"]


def test_an_unknown_macro_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"\$\{arg\}.*Did you mean 'args'"):
        render(["${arg}"], {}, interface=NONE, variables={})


def test_what_placeholders_and_raw_macros_carry_needs_no_option():
    assert appended(["t.py", "--lr={lr}", "${x}"], ["lr", "batch-size"]) == ["batch-size"]
    assert appended(["t.py", "${args_json}"], ["lr"]) == []
