"""`sweep replay`: what happened and what followed from it, fact by fact; or decide it again and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import click

from searchers.base import Signal
from searchers.errors import readable
from sweep.cli.options import name_argument, where_option
from sweep.cli.tables import json_option
from sweep.core.history import Fact
from sweep.core.literals import jsonable
from sweep.core.messages import Exited, Failed, Reported, Suggested
from sweep.core.results import flatten, own_metrics
from sweep.display.formats import pairs
from sweep.launch.target import import_trainable, split_target
from sweep.record.facts import read_facts
from sweep.record.layout import ExperimentLayout
from sweep.record.reader import ExperimentReader
from sweep.simulation.replay import Replay
from sweep.simulation.replay import replay as decide_again


@click.command(short_help="Show every fact and what followed, or decide it all again.")
@name_argument
@click.option("--trial", metavar="N", help="Only what concerns one trial.")
@click.option("--verify", is_flag=True, help="Decide everything again from the facts, and compare.")
@json_option("Print one JSON object per fact; with --verify one for all.")
@where_option
def replay(reader: ExperimentReader, trial: str | None, verify: bool, as_json: bool) -> int:
    """Show what happened in a sweep, fact by fact, with the commands that followed from each.

    With --verify the facts alone (reports, exits, the machine, the time) are handled again by new objects: packing,
    scheduler and searcher must decide what they decided then. That proves that a resume continues what a killed sweep
    would have done. It loads searcher and scheduler from the sweep's directory, which runs code from there. The exit
    code is 1 when something comes out differently.

    \b
    Examples:
      sweep replay digits
      sweep replay digits --trial 7
      sweep replay digits --verify
    """
    if verify:
        return _verify(reader, as_json)
    wanted = reader.trial(trial).trial_id if trial is not None else None
    for fact in read_facts(ExperimentLayout(reader.root).database, trust=False):
        trial_id = getattr(fact.event, "trial_id", None)
        if wanted is not None and wanted not in (trial_id, *(row[1] for row in fact.caused or () if len(row) > 1)):
            continue
        facts = {"at": fact.at, "fact": type(fact.event).__name__, "trial": trial_id, "about": _about(fact)}
        facts["commands"] = list(_commands(fact))
        click.echo(json.dumps(jsonable(facts)) if as_json else readable(_line(fact)))
    return 0


def decided_again(decide: Callable[..., Replay], reader: ExperimentReader) -> Replay:
    """Return what `replay` or `rerun` finds; where the trainable cannot be loaded, it is imported from its script."""
    click.echo(
        f"note: loading the searcher and the scheduler of {reader.name} runs code from {reader.root}, and perhaps from "
        "the script of its trainable.",
        err=True,
    )
    try:
        return decide(reader.root)
    except Exception:
        script = str(reader.meta.get("import_path") or "")
        if not split_target(script):  # or it is a program
            raise
        return decide(reader.root, trainable=import_trainable(script))  # a trainer has a config of its own


def _verify(reader: ExperimentReader, as_json: bool) -> int:
    found = decided_again(decide_again, reader)
    for text in found.notices:
        click.echo(f"note: {text}", err=True)
    if as_json:
        differences = list(map(str, found.differences))
        facts = {"is_same": found.is_same, "facts": found.num_events, "differences": differences}
        click.echo(json.dumps(jsonable(facts)))
        return 0 if found.is_same else 1
    runs = f" in {found.num_runs} runs" if found.num_runs > 1 else ""
    decided = f"{found.num_commands} commands and {found.num_suggestions} suggestions that followed"
    result = "all as recorded" if found.is_same else f"{found.num_differences} came out differently"
    click.echo(f"{reader.name}: {found.num_events} facts{runs}, {decided}: {result}")
    for difference in found.differences:
        click.echo(readable(f"  {difference}"))
    return 0 if found.is_same else 1


def _line(fact: Fact) -> str:
    name = str(getattr(fact.event, "trial_id", "")).rpartition("_")[2]
    what = f"{fact.at:10.3f} s  {type(fact.event).__name__:<12} {name:<6} {_about(fact)}".rstrip()
    followed = ", ".join(_commands(fact))
    return f"{what}  -> {followed}" if followed else what


def _about(fact: Fact) -> str:
    match fact.event:
        case Suggested(_, config) if isinstance(config, Signal):
            return config.value
        case Suggested(_, Failed(error)):
            return error
        case Suggested(_, config):
            return pairs(flatten(dict(config)))  # type: ignore[arg-type]
        case Reported(_, _, seq, _, checkpoint):
            saved = ", with a checkpoint" if checkpoint else ""
            return f"#{seq} {pairs(own_metrics(fact.metrics or {}))}{saved}"
        case Exited(_, _, exit_):
            return f"{exit_.kind.value} {exit_.error}".strip()
    return ""


def _commands(fact: Fact) -> Iterator[str]:
    for row in fact.caused or ():
        match row:
            case ["Notify", *_] | ["Continue", *_]:
                continue
            case ["Fail" | "Discard" as kind, what, *_]:
                yield f"{kind} {what}"
            case [kind, trial_id, *_]:
                yield f"{kind} {str(trial_id).rpartition('_')[2]}"
