"""Names of sweeps and of trials for Tab, as far as they lie on this machine."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sweeps in the storage; of what looks like a path the shell completes the rest."""
    from sweep.errors import SweepError
    from sweep.record.reader import list_experiments

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    names: list[str] = []
    with suppress(SweepError, OSError):
        if not _is_remote(ctx):
            names = [path.name for path in list_experiments(ctx.params.get("storage"))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_trial(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the numbers of the trials of the sweep that was named, with their states."""
    from sweep.errors import SweepError
    from sweep.record.reader import find_experiment

    name = str(ctx.params.get("name") or "")
    found: list[tuple[str, str]] = []
    with suppress(SweepError, OSError):
        if not _is_remote(ctx) and "://" not in name:
            width = 5 if incomplete.startswith("0") and incomplete != "0" else 1
            reader = find_experiment(name, ctx.params.get("storage"))
            found = [(f"{trial.number:0{width}d}", trial.state) for trial in reader.trials()]
    return [CompletionItem(number, help=state) for number, state in found if number.startswith(incomplete)]


def _is_remote(ctx: click.Context) -> bool:
    from sweep.storage.location import parse_storage

    return parse_storage(ctx.params.get("storage")).is_remote  # nothing is brought here for Tab
