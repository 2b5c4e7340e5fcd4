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

COMMANDS: Mapping[str, str] = {
    "run": "sweep.cli.run:run",
    "ls": "sweep.cli.inspect:ls",
    "trials": "sweep.cli.inspect:trials",
    "best": "sweep.cli.inspect:best",
    "show": "sweep.cli.show:show",
    "logs": "sweep.cli.logs:logs",
    "why": "sweep.cli.show:why",
    "note": "sweep.cli.notes:note",
    "html": "sweep.cli.look:html",
    "watch": "sweep.cli.look:watch",
    "dashboard": "sweep.cli.dashboard:dashboard",
    "resume": "sweep.cli.run:resume",
    "replay": "sweep.cli.replay:replay",
    "simulate": "sweep.cli.simulate:simulate",
    "migrate": "sweep.cli.migrate:migrate",
}
"""Name of a command -> where it is."""

ALIASES: Mapping[str, str] = {
    "lsx": "ls",
    "list-experiments": "ls",
    "list-trials": "trials",
    "add-note": "note",
}
"""Command of Tune's command line -> name of ours."""


class CommandGroup(click.Group):
    """A group of commands that imports a command when it is named; an unknown name gets the nearest known one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are explained."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        place = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with."""
        is_unknown = bool(args) and args[0] not in {*COMMANDS, *ALIASES} and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing:  # not on Tab
            from searchers.errors import nearest

            ctx.fail(f"there is no command {args[0]!r}. {nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from sweep import __version__

        click.echo(f"sweep {__version__}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
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
    3 some trials failed, 130 interrupted."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    from sweep.errors import (
        ConfigError,
        ExperimentError,
        RecordError,
        ResourceError,
        SearchError,
        SweepError,
        TrainableError,
        UserCodeError,
        readable,
    )

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
    except BrokenPipeError:
        # The reader has seen enough. Python flushes once more when it ends: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"error: what was to be printed cannot be written: {error.strerror}", err=True)
        return 1
    except SweepError as error:
        click.echo(f"error: {error}", err=True)
        cause = error.__cause__
        if isinstance(error, UserCodeError) and error.traceback:
            click.echo(readable(error.traceback), err=True)
        elif cause is not None and _is_of_the_user(error, cause):
            click.echo(readable("".join(traceback.format_exception(cause))), err=True)
        is_usage = isinstance(error, (ConfigError, ResourceError, ExperimentError, TrainableError, SearchError))
        return 2 if is_usage and not isinstance(error, RecordError) else 1


def _is_of_the_user(error: Exception, cause: BaseException) -> bool:
    """Whether a cause says more than the error's one line: it came out of the user's code, not out of a file's."""
    from sweep.errors import ExperimentError, SweepError, TrainableError

    if isinstance(cause, (SweepError, OSError, ValueError, click.ClickException)):
        return False
    if isinstance(error, TrainableError):
        return True
    return not isinstance(error, ExperimentError) and not isinstance(cause, ImportError)


if __name__ == "__main__":
    main()
