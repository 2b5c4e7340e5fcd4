"""The `sweep` command: a group whose commands are imported when they are used."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click

from searchers.errors import nearest, readable
from sweep import __version__, errors

COMMANDS: Mapping[str, str] = {
    "run": "sweep.cli.run:run",
    "plan": "sweep.cli.virtual.plan:plan",
    "new": "sweep.cli.new:new",
    "ls": "sweep.cli.inspect:ls",
    "trials": "sweep.cli.inspect:trials",
    "nodes": "sweep.cli.inspect:nodes",
    "best": "sweep.cli.best:best",
    "show": "sweep.cli.show:show",
    "logs": "sweep.cli.logs:logs",
    "why": "sweep.cli.show:why",
    "note": "sweep.cli.notes:note",
    "html": "sweep.cli.look:html",
    "compare": "sweep.cli.collection.sweeps:compare",
    "export": "sweep.cli.collection.sweeps:export",
    "watch": "sweep.cli.look:watch",
    "dashboard": "sweep.cli.dashboard:dashboard",
    "resume": "sweep.cli.running.resume:resume",
    "confirm": "sweep.cli.confirm:confirm",
    "stop": "sweep.cli.running.requests:stop",
    "cancel": "sweep.cli.running.requests:cancel",
    "pause": "sweep.cli.running.requests:pause",
    "retry": "sweep.cli.running.requests:retry",
    "enqueue": "sweep.cli.running.requests:enqueue",
    "edit": "sweep.cli.running.requests:edit",
    "agent": "sweep.cli.agent:agent",
    "replay": "sweep.cli.replay:replay",
    "simulate": "sweep.cli.virtual.simulate:simulate",
    "rm": "sweep.cli.collection.sweeps:rm",
    "import": "sweep.cli.collection.sweeps:import_",
    "migrate": "sweep.cli.migrate:migrate",
    "completion": "sweep.cli.options:completion",
    "doctor": "sweep.cli.clients.doctor:doctor",
    "schema": "sweep.cli.clients.schema:schema",
    "mcp": "sweep.cli.clients.mcp:mcp",
}
"""Name of a command -> where it is."""

ALIASES: Mapping[str, str] = {"lsx": "ls", "list-experiments": "ls", "list-trials": "trials", "add-note": "note"}
"""Command of Tune's command line -> name of ours."""


class CommandGroup(click.Group):
    """A group of commands that imports a command when it is named; an unknown name gets the nearest known one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are explained."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        place = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if place is None and ctx.resilient_parsing:  # on Tab
            return None
        if place is None:
            ctx.fail(f"there is no command {cmd_name!r}. {nearest(cmd_name, COMMANDS)}")
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="sweep %(version)s", help="Print the version and exit.")
def sweep() -> None:
    """Run hyperparameter sweeps of Python functions on this machine, and look at them.

    \b
    Examples:
      sweep run train.py:train 'lr=loguniform(1e-5,1e-1)' bs=16,32,64 --minimize loss --trials 50
      sweep run spec.yaml --concurrency 4
      sweep ls
      sweep trials NAME --sort loss --limit 20
      sweep best NAME --as args
      sweep html NAME
      sweep resume NAME --trials +50

    Sweeps lie in ./sweep_results/NAME; --storage or SWEEP_STORAGE names another place.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 well, 1 no trial succeeded or the sweep could not go on, 2 bad usage or spec,
    3 some trials failed, 4 the best trial is not as required, 130 interrupted."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    if sys.stdout is None:  # it was closed by who called
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the program ends
    try:
        code: Any = sweep.main(arguments, prog_name="sweep", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        is_closed = isinstance(error, BrokenPipeError)  # the reader has seen enough
        if not is_closed and (error.errno != errno.ENOSPC or error.filename is not None):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        if not is_closed:
            click.echo(f"error: what was to be printed cannot be written: {error.strerror}", err=True)
        return 0 if is_closed else 1
    except errors.SweepError as error:
        click.echo(f"error: {error}", err=True)
        if trace := _trace_of_the_user(error):
            click.echo(readable(trace), err=True)
        is_usage = isinstance(error, (ValueError, TypeError, errors.ExperimentError, errors.SearchError))
        return 2 if is_usage and not isinstance(error, errors.RecordError) else 1


def _trace_of_the_user(error: errors.SweepError) -> str:
    """Return the traceback of what the user's own code raised, if that is what it comes from."""
    cause = error.__cause__
    ours = (errors.SweepError, OSError, ValueError, click.ClickException)
    is_missing = isinstance(cause, ImportError) and not isinstance(error, errors.TrainableError)
    if known := getattr(error, "traceback", ""):
        return str(known)
    if cause is None or is_missing or isinstance(cause, ours) or isinstance(error, errors.ExperimentError):
        return ""
    return "".join(traceback.format_exception(cause))


if __name__ == "__main__":
    main()
