"""`sweep best`: the best trials, their configs to paste, and whether they are as good as is required."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sweep.cli.conditions import condition_of, require_option
from sweep.cli.inspect import joined, trial_table
from sweep.cli.options import goal_option, metric_option, name_argument, where_option
from sweep.cli.tables import emit, format_option, print_rows
from sweep.core.literals import as_arguments, json_text
from sweep.core.ranking import shown_objectives
from sweep.core.results import without_index
from sweep.display.formats import at_step, clean, text, to_yaml
from sweep.errors import ConfigError
from sweep.record.layout import command_of
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.analysis import ExperimentAnalysis
from sweep.results.views import TrialView
from sweep.results.winners import best_by_last, better_earlier, objectives_front


@click.command(short_help="Print the best configuration.")
@name_argument
@click.option(
    "--top", type=click.IntRange(min=1), help="How many, best first.  [default: 1; of several objectives all]"
)
@click.option("--as", "form", type=click.Choice(["args", "yaml", "json"]), help="Print only the configs, to paste.")
@click.option(
    "--scope",
    type=click.Choice(["last", "all", "avg", "last-5-avg", "last-10-avg"]),
    default="last",
    show_default=True,
    help="What of a trial counts: its last report, its best (all), or the mean of all, the last 5 or the last 10.",
)
@metric_option
@goal_option
@require_option
@where_option
@format_option("json", "csv")
def best(
    reader: ExperimentReader,
    top: int | None,
    form: str | None,
    scope: str,
    metric: str | None,
    mode: str | None,
    conditions: Sequence[str],
    style: str,
) -> int:
    """Print the best trials of a sweep, by their last reports, and their configurations. Where a report had been better
    at an earlier step, a line says so. A sweep of several objectives has a Pareto set: the trials that no other beats.

    \b
    Examples:
      sweep best digits
      sweep best digits --top 5 --format json
      sweep best digits --scope all    # by any report, not only the last ones
      sweep best digits --as args      # lr=0.00031 act=gelu
      sweep best digits --as yaml > best.yaml
      sweep best digits --require 'loss<0.1'    # exits with 4 if it is not
    """
    title = note = ""
    winner: int | None = None  # the trial that was confirmed
    found: list[tuple[TrialRow | TrialView, dict[str, Any]]]
    if reader.objectives and metric is None and mode is None and scope == "last":
        front = objectives_front(reader)
        wanted, found = ", ".join(metric for metric, mode in reader.objectives if mode != "obs"), [*front[:top]]
        title = f"Pareto set by {clean(shown_objectives(reader.objectives))}: {len(front)} trial{'s'[: len(front) > 1]}"
    else:
        analysis = ExperimentAnalysis(reader.root)
        metric, mode = analysis.chosen_metric(metric, mode)
        ranked = analysis.ranking(metric, mode, scope)[: top or 1]
        wanted, found = metric, [(trial, {metric: value}) for trial, value in ranked]
        if scope == "last" and (earlier := better_earlier(reader, metric, mode)) is not None:
            where = f"trial {earlier.row.number:05d}{at_step(earlier.step)}   (--scope all)"
            note = f"better earlier: {clean(metric)} {text(earlier.value)}   {where}"
        from sweep.confirmation.outcome import confirmation_of  # numpy

        confirmed = confirmation_of(reader)
        if ranked and confirmed and confirmed.best and (confirmed.metric, confirmed.mode) == (metric, mode):
            winner = confirmed.best["trial"]
            which = "" if winner == ranked[0][0].number else " another"
            note += f"{note and chr(10)}confirmed{which}: {clean(confirmed)}"
    if not found:
        reported = f"Reported were: {', '.join(map(clean, reader.metric_names())) or 'nothing'}."
        raise ConfigError(f"no trial of {reader.name} has a usable number under {wanted!r}. {note or reported}")
    configs = [without_index(trial.config) for trial, _ in found]
    if form is not None:
        _print_configs(configs, form)
        if winner is not None:
            click.echo(note, err=True)
    elif title or style != "table" or (top or 1) > 1:
        if title and style == "table":
            click.echo(title)
        _print_trials(found, style, winner)
        if note and style == "table":
            click.echo(note, err=True)
    else:
        ((trial, values),) = found
        words = {"all": "best report", "last": "last report"}.get(scope, scope)
        click.echo(f"{clean(wanted)} {text(values[wanted])}   trial {trial.number:05d}   ({words}; {trial.state})")
        click.echo(f"{note}\n" if note else "", nl=False)
        click.echo(to_yaml(configs[0]), nl=False)
        if command := command_of(reader.root, trial.trial_id):
            click.echo(f"command: {command}")
    why = unmet(reader, conditions, found if title else found[:1])
    if why:
        click.echo(f"error: {why}", err=True)
    return 4 if why else 0


def unmet(
    reader: ExperimentReader,
    conditions: Sequence[str],
    found: Sequence[tuple[TrialRow | TrialView, Mapping[str, Any]]] | None = None,
) -> str:
    """Return why none of the best trials is as required; empty: one is, or nothing is required. `found`: the best, with
    the values by which they are; None: by their last reports."""
    if found is None:
        best = best_by_last(reader, reader.metric, reader.mode)
        found = [] if best is None else [(best.row, {best.metric: best.value})]
        found = objectives_front(reader) if reader.objectives else found
    what, table = f"--require {' '.join(conditions)}: not met", trial_table(reader)
    known = {row["trial_id"]: row for row in table.rows}
    rows = [{**known[trial.trial_id], **values} for trial, values in found]
    try:
        tests = [condition_of(one, table) for one in conditions]
    except ConfigError as error:
        return f"{what}; {error}"
    if not conditions or any(all(test(row) for _, test in tests) for row in rows):
        return ""
    if not rows:
        return f"{what}; no trial of {reader.name} has a usable number under {reader.metric!r}."
    has = ", ".join(f"{clean(name)}={text(rows[0].get(name))}" for name in dict(tests))
    return f"{what}; the best, trial {rows[0]['trial']}, has {has}."


def _print_trials(
    found: Sequence[tuple[TrialRow | TrialView, Mapping[str, Any]]], style: str, winner: int | None
) -> None:
    """Print trials, the values by which they were chosen, and their configs; of which one was confirmed, if one was."""
    fixed = [
        {"trial": f"{trial.number:05d}", "state": trial.state}
        | ({} if style == "table" else {"status": trial.status})
        | ({} if winner is None else {"confirmed": trial.number == winner})
        for trial, _ in found
    ]
    rows, metrics, params = joined(
        (one, values, trial.config) for one, (trial, values) in zip(fixed, found, strict=True)
    )
    print_rows(rows, [*dict.fromkeys(key for one in fixed for key in one), *metrics, *params], style)


def _print_configs(configs: Sequence[Mapping[str, Any]], form: str) -> None:
    if form == "json":
        emit(json_text(configs[0] if len(configs) == 1 else list(configs)) + "\n")
    elif form == "yaml":
        for index, config in enumerate(configs):
            click.echo(("---\n" if index else "") + (to_yaml(config) or "{}\n"), nl=False)
    else:
        for config in configs:
            emit(as_arguments(config) + "\n")
