"""What commands share: how experiments are named, completed on Tab and found, and which metric counts."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from sweep.errors import SweepError
from sweep.record.reader import find_experiment, list_experiments
from sweep.storage.location import parse_storage


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sweeps in the storage; of what looks like a path the shell completes the rest."""
    if "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    names: list[str] = []
    with suppress(SweepError, OSError):
        if not _is_remote(ctx):
            names = [path.name for path in list_experiments(_storage(ctx))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_trial(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the numbers of the trials of the sweep that was named, with their states."""
    name = str(ctx.params.get("reader") or "")
    trials: list[tuple[str, str]] = []
    with suppress(SweepError, OSError):
        if not _is_remote(ctx) and "://" not in name:
            width = 5 if incomplete.startswith("0") and incomplete != "0" else 1
            reader = find_experiment(name, _storage(ctx))
            trials = [(f"{trial.number:0{width}d}", trial.state) for trial in reader.trials()]
    return [CompletionItem(number, help=state) for number, state in trials if number.startswith(incomplete)]


def _storage(ctx: click.Context) -> str | None:
    return ctx.meta.get("storage") or ctx.params.get("storage")


def _is_remote(ctx: click.Context) -> bool:
    return parse_storage(_storage(ctx)).is_remote  # nothing is brought here for Tab


def _find(ctx: click.Context, parameter: click.Parameter, given: Any) -> Any:
    if ctx.resilient_parsing:  # on Tab
        return given
    find = partial(find_experiment, storage=_storage(ctx))
    return list(map(find, dict.fromkeys(given))) if isinstance(given, tuple) else find(given)


def _remember(ctx: click.Context, parameter: click.Parameter, storage: str | None) -> None:
    ctx.meta["storage"] = storage


name_argument = click.argument("reader", metavar="NAME", shell_complete=complete_name, callback=_find)
"""NAME of an experiment; the command gets a `reader` of it."""
names_argument = click.argument(
    "readers", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_name, callback=_find
)
"""One or more of them; the command gets `readers`."""
trial_argument = partial(click.argument, "trial", shell_complete=complete_trial)

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
port_option = click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1, where it listens.  [default: a free port]"
)
open_option = click.option("--open/--no-open", "is_opened", default=False, help="Open it in a browser.  [default: no]")


class _NamedOption(click.Option):
    def __init__(self, *declarations: Any, table: str, **others: Any) -> None:
        super().__init__(*declarations, **others)
        self._table = table

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        module, _, attribute = self._table.partition(":")
        option, text = super().get_help_record(ctx) or ("", "")
        return option, text.replace("{names}", ", ".join(getattr(importlib.import_module(module), attribute)))


named_option = partial(
    click.option,
    cls=_NamedOption,
    metavar="NAME",
    callback=lambda ctx, parameter, name: name and name.lower(),
)
"""An option that takes a name out of a `table`, `module:attribute`: its help has the names in place of `{names}`."""
