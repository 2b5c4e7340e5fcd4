"""What commands share: how experiments are named, completed on Tab and found, and which metric counts."""

from __future__ import annotations

import json
import platform
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class

from sweep.cli.tables import json_option
from sweep.display.formats import clean
from sweep.errors import ConfigError, SweepError
from sweep.record.reader import ExperimentReader, find_experiment, list_experiments
from sweep.storage.location import parse_storage


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sweeps in the storage; of what looks like a path the shell completes the rest."""
    if "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    with suppress(SweepError, OSError):
        names = [path.name for path in list_experiments(_local(ctx))]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


def complete_trial(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the numbers of the trials of the sweep that was named, with their states."""
    width = 5 if incomplete.startswith("0") and incomplete != "0" else 1
    with suppress(SweepError, OSError):
        trials = find_experiment(str(ctx.params.get("reader") or ""), _local(ctx)).trials()
        items = [CompletionItem(f"{trial.number:0{width}d}", help=trial.state) for trial in trials]
        return [item for item in items if item.value.startswith(incomplete)]
    return []


def _storage(ctx: click.Context) -> str | None:
    return ctx.meta.get("storage") or ctx.params.get("storage")


def _local(ctx: click.Context) -> str | None:
    """Return the storage in which names are completed: nothing is brought here for Tab."""
    if parse_storage(_storage(ctx)).remote is not None or "://" in str(ctx.params.get("reader")):
        raise ConfigError("it lies elsewhere")
    return _storage(ctx)


def _find(ctx: click.Context, parameter: click.Parameter, given: Any) -> Any:
    if ctx.resilient_parsing:  # on Tab
        return given
    find = partial(find_experiment, storage=_storage(ctx))
    return list(map(find, dict.fromkeys(given))) if isinstance(given, tuple) else find(given)


@click.command(short_help="Print the script that completes on Tab.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands, options, names of sweeps and numbers of trials on Tab, for a line of
    its start file: eval "$(sweep completion bash)", in fish: sweep completion fish | source

    \b
    Examples:
      sweep completion zsh
    """
    made = get_completion_class(shell)
    assert made is not None  # click has all three
    click.echo(made(click.get_current_context().find_root().command, {}, "sweep", "_SWEEP_COMPLETE").source())


def _remember(ctx: click.Context, parameter: click.Parameter, storage: str | None) -> None:
    ctx.meta["storage"] = storage


name_argument = click.argument("reader", metavar="NAME", shell_complete=complete_name, callback=_find)
"""NAME of an experiment; the command gets a `reader` of it."""
names_argument = click.argument(
    "readers", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_name, callback=_find
)
"""One or more of them; the command gets `readers`."""
trial_argument = partial(click.argument, "trial", shell_complete=complete_trial)
some_trials_argument = click.argument("some", metavar="[TRIAL]...", nargs=-1, shell_complete=complete_trial)

storage_option = partial(
    click.option,
    "--storage",
    metavar="DIRECTORY",
    help="Where sweeps lie.  [default: $SWEEP_STORAGE or ./sweep_results]",
)
where_option = storage_option(is_eager=True, expose_value=False, callback=_remember)
"""Where a NAME is looked for."""

metric_option = click.option("--metric", help="Another metric than the sweep's own.")
goal_option = click.option(
    "--goal",
    "mode",
    type=click.Choice(["minimize", "maximize"]),
    callback=lambda ctx, parameter, goal: goal and goal[:3],
    help="Which way --metric is better.",
)
"""The command gets it as `mode`, "min" or "max"."""
_OF_A_PAGE = (
    names_argument,
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=0,
        help="Of 127.0.0.1, where it listens.  [default: a free port]",
    ),
    metric_option,
    goal_option,
    click.option("--open/--no-open", "is_opened", default=False, help="Open it in a browser.  [default: no]"),
    json_option("Print the address as one JSON object."),
    where_option,
)


def page_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a page that it serves."""
    for option in reversed(_OF_A_PAGE):
        command = option(command)
    return command


def announce(readers: Iterable[ExperimentReader], address: str, note: str, *, as_json: bool, is_opened: bool) -> None:
    """Say where the page of some sweeps is served, and open it where that is wanted."""
    if as_json:
        click.echo(json.dumps({"url": address}))
    else:
        port, host = urlsplit(address).port, platform.node() or "HOST"
        click.echo(f"{', '.join(clean(reader.name) for reader in readers)}: {address}")
        click.echo(f"from another machine: ssh -L {port}:127.0.0.1:{port} {host}, then the same address")
        click.echo(note)
    if is_opened:
        webbrowser.open(address)


def named_option(*declarations: str, names: Iterable[str], help: str) -> Callable[[Any], Any]:
    """Return an option that takes one of some names, in large letters or small, all of which its help shows."""
    known = list(names)
    kind = click.Choice(known, case_sensitive=False)
    return click.option(*declarations, metavar="NAME", type=kind, help=help.format(names=", ".join(known)))
