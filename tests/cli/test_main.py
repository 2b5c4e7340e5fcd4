"""The `sweep` command as a whole: names, help, errors, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import help_page
import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep import __version__
from sweep.cli.main import ALIASES, COMMANDS, main, sweep

PROJECT = Path(__file__).parents[2]


def commands() -> dict[str, click.Command]:
    context = click.Context(sweep)
    found = {name: sweep.get_command(context, name) for name in sweep.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_every_command_can_be_imported_and_bears_its_name() -> None:
    assert {name: command.name for name, command in commands().items()} == {name: name for name in COMMANDS}


def test_the_reference_documents_every_command_and_option_and_nothing_else() -> None:
    text = (PROJECT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = {part.partition("`")[0]: part for part in text.split("\n## `sweep ")[1:]}
    sections = {title.split()[0]: part for title, part in sections.items()}
    assert list(sections) == list(COMMANDS)
    for name, command in commands().items():
        options = {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        rows = [line for line in sections[name].splitlines() if line.startswith("| `-")]
        documented = {word.strip("`,") for row in rows for word in row.split("|")[1].split() if word.startswith("`-")}
        assert documented == options, name


def test_the_help_text_of_every_command_stands_in_the_docs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, help_page.__file__, written := tmp_path / "page"], check=True, timeout=60)
    assert help_page.PATH.read_text(encoding="utf-8") == written.read_text("utf-8"), "python tests/help_page.py"


def test_every_command_that_prints_facts_prints_them_as_json() -> None:
    has_json = {name for name, command in commands().items() if any("--json" in one.opts for one in command.params)}
    assert COMMANDS.keys() - has_json == {"agent", "mcp", "completion"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sho", ["show"]),
        ("show ", ["digits", "dogs"]),
        ("best --top 2 di", ["digits"]),
        ("html digits d", ["digits", "dogs"]),
        ("ls ../o", ["../o"]),
        ("show digits ", ["0", "1", "2"]),
        ("logs digits 0000", ["00000", "00001", "00002"]),
        ("show nothing ", []),
        ("nothing ", list(COMMANDS)),
    ],
)
def test_tab_completes_names_and_trials(
    typed: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("digits", "dogs"):
        made = MadeExperiment(tmp_path, name)
        for number in range(3):
            made.trial({"x": number})
        made.close()
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    monkeypatch.setenv("_SWEEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"sweep {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"{typed}|".split())))
    with pytest.raises(SystemExit):
        main([])
    assert [line.partition(",")[2] for line in capsys.readouterr().out.split()] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_completes_on_tab_calls_this_command(shell: str) -> None:
    printed = CliRunner().invoke(sweep, ["completion", shell]).output
    assert f"_SWEEP_COMPLETE={shell}_complete" in printed
    assert "sweep" in printed.split()


@pytest.mark.slow
def test_bash_completes_the_names_of_sweeps_with_it(tmp_path: Path) -> None:
    MadeExperiment(tmp_path / "store", "digits").close()
    (tmp_path / "sweep").write_text(f"#!{sys.executable}\nfrom sweep.cli.main import main\nmain()\n")
    (tmp_path / "sweep").chmod(0o755)
    asked = "COMP_WORDS=(sweep show di); COMP_CWORD=2; _sweep_completion sweep; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f'eval "$(sweep completion bash)"; {asked}'],
        env=os.environ
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),
            "SWEEP_STORAGE": str(tmp_path / "store"),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "digits\n", done.stderr


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_an_alias_is_the_command_itself_and_is_documented(alias: str, name: str) -> None:
    command = sweep.get_command(click.Context(sweep), alias)
    assert command is not None
    assert command.name == name
    assert f"Usage: sweep {alias} " in CliRunner().invoke(sweep, [alias, "--help"], prog_name="sweep").output
    assert f"`sweep {alias}" in (PROJECT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert alias not in CliRunner().invoke(sweep, ["--help"]).output.partition("Commands:")[2].split()


@pytest.mark.parametrize(
    ("typed", "damage", "said"),
    [
        ("ls x", "not a database" * 500, "/x/sweep.db "),
        ("ls x", "", "/x/sweep.db "),
        ("show nope 1", "", "no experiment 'nope'"),
        ("trails", "", "Did you mean 'trials'?"),
    ],
)
def test_an_error_is_one_line_without_a_traceback(
    tmp_path: Path, typed: str, damage: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "sweep.db").write_text(damage)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        main(typed.split())
    assert caught.value.code == 2
    *above, line = capsys.readouterr().err.splitlines()
    assert above == [] or above[0].startswith("Usage: ")
    assert line.lower().startswith("error: ")
    assert said in line


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(sweep, ["--version"]).output == f"sweep {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = ("pandas", "optuna", "torch", "jax", "rich", "ruamel", "scipy", "ray")
    code = (
        f"import sys\nfrom sweep.cli.main import _run\n_run({arguments!r})\n"
        f"print(sorted({{*{heavy!r}}} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "many")
    for number in range(3000):
        made.trial({"x": number, "filler": "y" * 50})
    made.close()
    command = f"{sys.executable} -m sweep trials many --storage {tmp_path} | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("trial")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirection", "code", "said"), [(">&-", 0, ""), ("> /dev/full", 1, "No space left on device")]
)
def test_where_nothing_can_be_printed_there_is_no_traceback(
    tmp_path: Path, redirection: str, code: int, said: str
) -> None:
    MadeExperiment(tmp_path, "some").close()
    command = f"{sys.executable} -m sweep.cli.main ls --storage {tmp_path} {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
