"""The examples of `--help` and of the reference can be pasted into a shell as they are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from searchers import SEARCHERS
from sweep.cli.main import COMMANDS, sweep
from sweep.cli.spec import METHODS
from sweep.schedulers import SCHEDULERS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def help_of(name: str) -> str:
    command = sweep if name == "" else sweep.get_command(click.Context(sweep), name)
    assert command is not None
    return command.get_help(click.Context(command, info_name="sweep", terminal_width=200, max_content_width=200))


def examples() -> list[str]:
    texts = [help_of(name).partition("Examples:\n")[2].partition("\n\n")[0] for name in ("", *COMMANDS)]
    found = [line.strip() for text in texts for line in text.splitlines()]
    ranges = help_of("run").partition("Ranges:\n")[2].partition("  A list")[0]
    found.append(f"sweep run train.py:train {' '.join(ranges.split())}")
    found += [line.strip() for line in PAGE.splitlines() if line.startswith("    sweep ")]
    return list(dict.fromkeys(found))


EXAMPLES = examples()


def meant(line: str) -> list[str]:
    """Return the words after `sweep` as the writer of the line means them: no comment, nothing redirected."""
    words = shlex.split(line.rpartition(" | ")[2], comments=True)
    return words[1 : words.index(">") if ">" in words else None]


def test_every_command_shows_examples():
    for name in COMMANDS:
        assert re.search(rf"^ +(.* \| )?sweep {name}\b", help_of(name).partition("Examples:\n")[2], flags=re.M), name
    assert len(EXAMPLES) > 35
    assert all(line.rpartition(" | ")[2].startswith("sweep ") for line in EXAMPLES)


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_pastes_into_bash_and_its_arguments_arrive_as_meant(line, tmp_path, monkeypatch):
    stub = tmp_path / "bin" / "sweep"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" > "$ARRIVED"\n')
    stub.chmod(0o755)
    checked = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    arrived = tmp_path / "arrived"
    environment = {"PATH": f"{stub.parent}:{os.environ['PATH']}", "ARRIVED": str(arrived), "HOME": str(tmp_path)}
    ran = subprocess.run(  # a pattern that the shell would expand fails, as it does in zsh
        ["bash", "-O", "failglob", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    words = arrived.read_text().split("\0")[:-1]
    assert words == meant(line)
    monkeypatch.setattr("sweep.cli.options.find_experiment", lambda name, storage: name)
    name, *arguments = words
    command = sweep.get_command(click.Context(sweep), name)
    assert command is not None
    command.make_context(name, arguments)  # understood: options that exist, values of the right kind


@pytest.mark.parametrize(("option", "names"), [("searcher", SEARCHERS), ("scheduler", SCHEDULERS)])
def test_the_names_of_searchers_and_schedulers_in_help_and_reference_are_those_of_the_tables(option, names):
    text = re.sub(r"\s+", " ", help_of("run"))
    told = re.search(rf"--{option} NAME (.*?)\. \[default: (\w+)\]", text)
    assert told is not None
    assert told[1].split(", ") == list(names)
    assert told[2] in names
    row = re.search(rf"^\| `--{option}` NAME \| (.*) \|$", PAGE.partition("## `sweep ls")[0], flags=re.M)
    assert row is not None
    assert re.findall(r"`(\w+)`", row[1]) == list(names)


def test_the_schedulers_that_simulate_lists_are_those_of_the_table():
    text = re.sub(r"\s+", " ", help_of("simulate"))
    told = re.search(r"--scheduler NAME Another scheduler: (.*?)\. --eta", text)
    assert told is not None
    assert told[1].split(", ") == list(SCHEDULERS)


def test_a_spec_takes_every_searcher_as_its_method_and_the_reference_lists_them():
    assert METHODS.keys() == {*SEARCHERS, "bayes", "sobol", "custom"}
    assert set(METHODS.values()) == set(SEARCHERS)
    told = re.search(r"^`method` is one of (.*?)\. ", PAGE, flags=re.M | re.S)
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == list(METHODS)
