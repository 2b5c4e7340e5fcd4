"""`sweep run` of a program: ranges within a command line, a trial that shows what it logs, the winner's command."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from sweep.cli.ranges import parse_parameter
from sweep.core.literals import jsonable
from sweep.errors import ConfigError
from sweep.programs.place import WORK_DIR
from sweep.programs.program import Program
from sweep.programs.run import SEEN_FILE
from sweep.record.layout import command_of

_RANGE = re.compile(r"(?:([A-Za-z_][\w.-]*)=)?\{(?:([A-Za-z_][\w.]*)=)?([^{}]*)\}")  # name={name=range}
_OPTION = re.compile(r"-+([A-Za-z_][\w.-]*)")
_CALL = re.compile(r"\s*[A-Za-z_]\w*\(.*\)\s*", re.DOTALL)
_SHOWN = {"training_iteration": 20, "time_total_s": 30.0}  # when a trial has shown what it logs


class ProgramCommand(click.Command):
    """A command whose words behind `--` are another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"], args = args[at + 1 :], args[:at]
            if not ctx.meta["command"]:
                raise click.UsageError("behind -- stands a trial's command, such as: -- python train.py --lr '{lr}'")
        return super().parse_args(ctx, args)


def ranges_in(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command whose ranges in braces are placeholders, and these as `NAME=RANGE`.

    `--lr '{loguniform(1e-5,1e-1)}'`, `--lr={0.1,0.2}` and `lr={0.1,0.2}` name a parameter after the option or the word
    before it, `{lr=uniform(0,1)}` names it itself; any other is called after its position, `argument_3`.

    Raises:
        ConfigError: a range does not parse, or a brace is not closed; the place is marked.
    """
    template, ranges = [], dict[str, str]()

    def refuse(why: str, number: int, column: int) -> NoReturn:
        at = sum(len(one) + 1 for one in words[:number]) + column
        raise ConfigError(f"{why}\n    {' '.join(words)}\n    {' ' * at}^")

    def placed(match: re.Match[str], number: int) -> str:
        before, own, inner = match.groups()
        if not (_CALL.fullmatch(inner) or ("," in inner and '"' not in inner and ":" not in inner)):
            return match[0]
        option = _OPTION.fullmatch(words[number - 1]) if number and not match.start() else None
        name = own or (before or (option and option[1]) or f"argument_{number}").replace("-", "_")
        while ranges.get(name, inner) != inner:
            name += "_"
        at = match.start() + len(before or "") + bool(before)
        try:
            parse_parameter(f"{name}={inner}")
        except ConfigError as error:
            refuse(str(error), number, at)
        ranges[name] = inner
        return f"{match[0][: at - match.start()]}{{{name}}}"

    for number, word in enumerate(words):
        template.append(_RANGE.sub(partial(placed, number=number), word))
        if left := re.search(r"\{[A-Za-z_]\w*\(", template[-1]):
            refuse("a brace is not closed", number, left.start())
    return template, [f"{name}={inner}" for name, inner in ranges.items()]


def dry_run(program: Program, config: Mapping[str, Any], kwargs: Mapping[str, Any], *, as_json: bool = False) -> int:
    """Run one trial until it has shown what it logs, and print which metrics there are, each with its source."""
    import sweep

    asked = {name: kwargs[name] for name in ("resources_per_trial", "seed", "time_budget_s") if name in kwargs}
    with tempfile.TemporaryDirectory(prefix="sweep-dry-run-") as place:
        analysis = sweep.run(
            program,
            **asked,
            config=config,
            num_samples=1,
            stop=_SHOWN,
            verbose=0,
            storage_path=place,
            name="dry-run",
            raise_on_failed_trial=False,
            on_interrupt="return",
        )
        trial = analysis.trials[0]
        directory = Path(place, "dry-run", trial.trial_id)
        seen = directory / SEEN_FILE
        command = command_of(directory.parent, trial.trial_id) or program.name
        found = json.loads(seen.read_text()) if seen.exists() else []
        if as_json:
            metrics = [dict(zip(("source", "name", "count", "last"), one, strict=True)) for one in found]
            took, error = trial.last_result.get("time_total_s"), trial.error and str(trial.error)
            facts = {"command": command, "seconds": took, "metrics": metrics, "error": error}
            click.echo(json.dumps(jsonable(facts)))
            return 1 if error or not found else 0
        click.echo(f"one trial ran: {command}")
        for source, name, count, last in found:
            click.echo(f"  {name:<30} {source:<16} {count:>5} value{'s' if count != 1 else ' '}  last {last}")
        if trial.error is not None:
            click.echo(f"it failed: {trial.error}", err=True)
        elif not found:
            click.echo("it gave no metric: it neither printed nor logged one.", err=True)
        else:
            click.echo("choose one of them: --minimize NAME, or --maximize NAME.")
    return 1 if trial.error is not None or not found else 0


def print_winner(analysis: Any) -> None:
    """Print the command line of the best trial, ready to paste."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is none was said
        best = analysis.best_trial if analysis.default_metric else None
    if best is not None and (command := command_of(Path(analysis.experiment_path), best.trial_id)):
        click.echo(f"best command: {command}")
        files = Path(analysis.experiment_path, best.trial_id, WORK_DIR)
        if files.exists():
            click.echo(f"its files: {os.path.relpath(files)}")
