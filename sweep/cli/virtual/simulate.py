"""`sweep simulate`: what another scheduler, machine or limit would have made of a recorded sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from sweep.cli.arguments import scheduler_of
from sweep.cli.options import name_argument, named_option, where_option
from sweep.cli.replay import decided_again
from sweep.cli.tables import json_option
from sweep.core.literals import parse_literal
from sweep.core.resources import Device, Node
from sweep.display.formats import aligned, duration, text
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.results.winners import best_by_last
from sweep.schedulers import SCHEDULERS
from sweep.simulation.curves import Curves
from sweep.simulation.replay import rerun
from sweep.simulation.virtual import Simulation
from sweep.simulation.virtual import simulate as run_simulation


@click.command(short_help="Try another scheduler or machine on a recorded sweep.")
@name_argument
@named_option("--scheduler", names=SCHEDULERS, help="Another scheduler: {names}.")
@click.option("--eta", type=float, help="Its reduction factor.")
@click.option("--max-t", type=float, help="Reports after which it ends a trial.")
@click.option("--grace", type=float, help="Reports before it may stop a trial.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Any other argument of it.")
@click.option("--cpus", type=float, help="CPUs of the machine.  [default: as recorded]")
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs of the machine.  [default: as recorded]")
@click.option("--concurrency", type=click.IntRange(min=1), help="How many trials may run at a time.")
@click.option("--trials", type=click.IntRange(min=1), help="Only the first so many trials.")
@json_option()
@where_option
def simulate(reader: ExperimentReader, as_json: bool, **options: Any) -> int:
    """Run a recorded sweep again in virtual time, under other rules, and compare: what would have been saved, and would
    the winner have been kept?

    The trials report what they reported, in the time that it took them; the sweep's own code decides. What a trial
    that was stopped would have reported afterwards is not known: record one without a scheduler for a full answer.
    Without options the sweep is run again as it was, and every decision is compared with the recorded one; the exit
    code is 1 when one came out differently. That loads searcher and scheduler from the sweep's directory, which runs
    code from there.

    \b
    Examples:
      sweep simulate digits --scheduler asha --eta 4 --cpus 8
      sweep simulate digits --concurrency 2
      sweep simulate digits
    """
    if not any(value not in (None, ()) for value in options.values()):
        return _again(reader, as_json)
    curves = Curves.from_experiment(reader.root)
    found = run_simulation(
        curves,
        scheduler=_scheduler(options),
        nodes=_machine(curves, options["cpus"], options["gpus"]),
        max_concurrent_trials=options["concurrency"],
        num_samples=options["trials"],
    )
    summary = _summary(reader, curves, found)
    click.echo(json.dumps(summary) if as_json else _table(reader.name, curves, found, summary))
    return 0


def _again(reader: ExperimentReader, as_json: bool) -> int:
    found = decided_again(rerun, reader)
    difference = None if found.difference is None else str(found.difference)
    if as_json:
        click.echo(json.dumps({"events": found.num_events, "seconds": found.seconds, "difference": difference}))
    else:
        what = "every decision as recorded" if difference is None else f"the first difference is at {difference}"
        again = f"{duration(found.seconds)} run again in virtual time, {found.num_events} facts"
        click.echo(f"{reader.name}: {again}: {what}")
    return 0 if difference is None else 1


def _scheduler(options: dict[str, Any]) -> Any:
    given = {"reduction_factor": options["eta"], "max_t": options["max_t"], "grace_period": options["grace"]}
    arguments = {key: value for key, value in given.items() if value is not None}
    for setting in options["settings"]:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: expected NAME=VALUE, such as --set brackets=2.")
        arguments[key] = parse_literal(value)
    return scheduler_of(options["scheduler"], arguments)


def _machine(curves: Curves, cpus: float | None, gpus: int | None) -> Sequence[Node] | None:
    if cpus is None and gpus is None:
        return None
    known = curves.nodes[0] if curves.nodes else Node("local", 1.0)
    node = replace(known, cpus=known.cpus if cpus is None else cpus)
    if gpus is None:
        return [node]
    others = tuple(device for device in node.devices if device.kind != "gpu")
    return [replace(node, devices=(*others, *(Device(f"gpu-{i}", "gpu") for i in range(gpus))))]


def _summary(reader: ExperimentReader, curves: Curves, found: Simulation) -> dict[str, Any]:
    """Return what was, what would have been, and what became of the winner."""
    first = next(reader.facts(before=2), None)
    before = {
        "trials": len(curves.curves),
        "reports": sum(len(curve.points) for curve in curves.curves),
        "trial_seconds": curves.seconds,
        "seconds": 0.0 if first is None else reader.driven_s() - first.at,
    }
    now = {
        "trials": len(found.trials),
        "reports": len(found.arrivals),
        "trial_seconds": found.trial_seconds,
        "seconds": found.seconds,
    }
    summary: dict[str, Any] = {"recorded": before, "simulated": now, "cut": curves.num_cut}
    best = None if reader.objectives else best_by_last(reader, found.metric, found.mode)
    if best is not None:
        before["best"] = best.value
        trial = next(iter(found.trials[best.row.number :]), None)
        last = None if trial is None or trial.last_result is None else trial.last_result.get(found.metric)
        kept = last == best.value
        summary["winner"] = {"trial": best.row.trial_id, "is_kept": kept}
        if trial is not None and not kept:
            summary["winner"]["reason"] = trial.reason
        if found.best_result is not None:
            now["best"] = found.best_result[found.metric]
    return summary


def _table(name: str, curves: Curves, found: Simulation, summary: dict[str, Any]) -> str:
    before, now = summary["recorded"], summary["simulated"]
    rows = [("", "recorded", "simulated", "")]
    for key, label, show in (
        ("trials", "trials", str),
        ("reports", "reports", str),
        ("trial_seconds", "time of trials", duration),
        ("seconds", "time in all", duration),
    ):
        share = f"{100 * now[key] / before[key]:.0f}%" if before[key] else ""
        rows.append((label, show(before[key]), show(now[key]), share))
    if "best" in before:
        rows.append((f"best {found.metric}", text(before["best"]), text(now.get("best", "-")), ""))
    lines = aligned(rows, {1, 2, 3})
    winner = summary.get("winner")
    if winner is not None:
        number = winner["trial"].rpartition("_")[2]
        why = f": {winner['reason']}" if winner.get("reason") else ""
        lines.append(f"the winner {number} would have been {'kept' if winner['is_kept'] else 'lost' + why}")
    if curves.num_cut:
        lines.append(
            f"note: {curves.num_cut} of {len(curves.curves)} recorded trials had been stopped; what they would have "
            "reported afterwards is not known, so they end there"
        )
    lines += [f"note: {notice}" for notice in found.notices]
    return "\n".join([f"{name}:", *lines])
