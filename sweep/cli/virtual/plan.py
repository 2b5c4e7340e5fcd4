"""`sweep plan`: what a sweep would do on this machine or on others, and how long it would take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from searchers.variants import has_domains
from sweep.cli.options import complete_name
from sweep.cli.programs import ProgramCommand
from sweep.cli.run import asked_for, run
from sweep.cli.running.carrying import note
from sweep.cli.tables import emit, json_option
from sweep.core.literals import json_text, parse_literal
from sweep.core.resources import Device, Node, format_bytes, parse_resources
from sweep.core.trial import Trial
from sweep.core.values import shown
from sweep.display.formats import aligned, clean, duration
from sweep.errors import ConfigError, ExperimentError
from sweep.launch.build import Built, build, describe
from sweep.launch.description import surprises
from sweep.launch.launcher import Launch
from sweep.launch.spec import RunSpec
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.schedulers import ASHAScheduler
from sweep.simulation.curves import InOrder
from sweep.simulation.forecast import Known, forecast, pilots, sketch
from sweep.worker.trainable import prepare

_PILOTS, _SIMULATED = 32, 40
_OF_RUN = ("is_dry", "resume", "on_end", "conditions", "junit", "quiet", "is_wordy", "as_json")  # its options alone
_FIRST, _LONGEST = 5, 10_000  # trials that are shown, and characters of a call
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time in all", duration),
    "trials": ("trials that run", "{:.0f}".format),
    "idle_cpu": ("idle CPUs", "{:.0%}".format),
    "idle_gpu": ("idle GPUs", "{:.0%}".format),
    "idle_tpu": ("idle TPU chips", "{:.0%}".format),
    "checkpoint_bytes": ("checkpoints", lambda value: format_bytes(int(value))),
}


def _nodes(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> list[Node]:
    """Return the machines that texts such as `2*cpu=64,gpu=8` stand for."""
    nodes: list[Node] = []
    for text in given:
        times, _, amounts = text.rpartition("*")
        asked = {name: parse_literal(value) for name, _, value in (part.partition("=") for part in amounts.split(","))}
        counts = {kind: asked.pop(kind, 0) for kind in ("gpu", "tpu")}
        are_counts = all(isinstance(one, int) and one >= 0 for one in counts.values())
        if not (times or "1").isdigit() or not are_counts or "" in asked.values():
            raise ConfigError(f"--on {text}: expected amounts such as cpu=64,gpu=8,memory=256G, or 2*cpu=64,gpu=8.")
        there = parse_resources({"cpu": 1.0, **asked}).bundles[0]
        devices = tuple(Device(f"{kind}{at}", kind) for kind, number in counts.items() for at in range(number))
        for _ in range(int(times or 1)):
            nodes.append(Node(f"node-{len(nodes)}", there.cpu, there.memory, devices, dict(there.custom)))
    return nodes


@click.command(
    cls=ProgramCommand,
    short_help="Say what a sweep would do, and how long it would take.",
    params=[one for one in run.params if one.name not in _OF_RUN],
)
@click.option("--on", "nodes", metavar="[N*]AMOUNTS", multiple=True, callback=_nodes, help="Plan for such machines.")
@click.option(
    "--from", "earlier", metavar="NAME", shell_complete=complete_name, help="Forecast from trials of a sweep."
)
@click.option(
    "--pilot",
    type=click.IntRange(min=2),
    is_flag=False,
    flag_value=_PILOTS,
    help=f"Run so many trials now, to their end, and forecast from them; without a number {_PILOTS}.",
)
@json_option()
@click.pass_context
def plan(
    ctx: click.Context, /, nodes: list[Node], earlier: str | None, pilot: int | None, as_json: bool, **options: Any
) -> int:
    """Check a sweep as `sweep run` does, start nothing of it, and print what it would do: its first calls or commands,
    how trials are packed and what can never be used, how many trials get to which rung.

    With --from or --pilot also how long it takes, how much of the machine is idle, and how much checkpoints take: the
    sweep's own code packs and schedules trials in virtual time, drawn from those that have run. A range holds what will
    happen in about 4 of 5 cases.

    \b
    Examples:
      sweep plan train.py 'lr=loguniform(1e-5,1e-1)' --minimize loss --trials 200 --scheduler asha --max-epochs 27
      sweep plan train.py:train 'lr=uniform(0,1)' --gpus 5 --on '4*cpu=64,gpu=8'
      sweep plan spec.yaml --pilot 16
      sweep plan spec.yaml --from digits --trials 500 --json
    """
    trainable, kwargs = asked_for(ctx, None if as_json else note, **options)
    if pilot and (earlier or nodes):
        raise ConfigError(f"--pilot runs trials here; leave it out, or {'--from' if earlier else '--on'}.")
    if nodes:
        are_lanes = prepare(trainable).lanes and kwargs.get("engine") in (None, "lanes")
        kwargs |= {"nodes": nodes, "engine": "lanes" if are_lanes else "local"}
    spec = RunSpec.of(trainable, kwargs)
    policies = {"search_alg": spec.search_alg, "scheduler": spec.scheduler}  # as they are before they are used
    launch = Launch(replace(spec, **deepcopy(policies)), None)  # type: ignore[arg-type]
    launch.close()
    prepared, built = launch.trainable, launch.built

    def make(**other: Any) -> Built:
        asked = replace(launch.spec, **deepcopy(policies | other))
        return build(asked, prepared, built.packer.nodes, seed=built.seed)

    reader = find_experiment(earlier, options["storage_path"]) if earlier else None
    # What a searcher would learn from results that are drawn means nothing, and may take long.
    blind = {"search_alg": None} if built.policies.searcher.is_adaptive and has_domains(spec.config or {}) else {}
    trials, sketched = sketch(make(**blind))
    first = sketch(make(), _FIRST)[0] if blind else trials[:_FIRST]
    call = prepared.command_line or (lambda config: f"{prepared.name}({shown(dict(config), _LONGEST)})")
    found: dict[str, Any] = {
        "name": launch.place.name,
        "seed": built.seed,
        "searcher": describe(built.policies.searcher, built.spec.config),
        "scheduler": describe(built.policies.scheduler),
        "calls": [
            {"trial": one.id[-5:], "config": one.config, "call": call(one.config), "resources": str(one.resources)}
            for one in first
        ],
    }
    found |= sketched | {"warnings": [*sketched["warnings"], *surprises(built, launch.place, prepared)]}
    if not as_json:
        emit(_text(found))
    if reader or pilot:
        if reader:
            known: Known | None = Known.of(reader, built.policies.optimised)
        else:
            known = _piloted(trainable, kwargs, built, pilots(trials, pilot or 0, built.seed), as_json)
        if known is None:
            return 130
        found["forecast"] = forecast(lambda: make(**blind), known, _SIMULATED)
        if not as_json:
            emit(_forecast_text(found["forecast"]))
    if as_json:
        emit(json_text(found) + "\n")
    return 0


def _piloted(
    trainable: Any, kwargs: Mapping[str, Any], built: Built, trials: Sequence[Trial], is_quiet: bool
) -> Known | None:
    """Run some trials of a sweep, each as long as the scheduler lets any of them; None: they were interrupted."""
    import sweep

    scheduler = built.policies.scheduler.inner or built.policies.scheduler
    most = getattr(scheduler, "max_t", None)
    asked = {name: value for name, value in kwargs.items() if name != "config"}
    asked["scheduler"] = ASHAScheduler(scheduler.time_attr, max_t=most, grace_period=most) if most else None
    asked |= {"search_alg": InOrder([trial.config for trial in trials]), "num_samples": -1, "seed": built.seed}
    with tempfile.TemporaryDirectory(prefix="sweep-plan-") as place:
        asked |= {"name": "pilot", "storage_path": place, "verbose": 0 if is_quiet else 1, "on_interrupt": "return"}
        analysis = sweep.run(trainable, **asked, raise_on_failed_trial=False)
        if analysis.interrupted:
            return None
        if failed := [trial for trial in analysis.trials if trial.status == "ERROR"]:
            what = f"{len(failed)} of {len(analysis.trials)} pilot trials failed: {clean(failed[0].error)}"
            if len(failed) == len(analysis.trials):
                raise ExperimentError(what)
            note(what)
        return Known.of(ExperimentReader(Path(place, "pilot")), built.policies.optimised)


def _text(found: Mapping[str, Any]) -> str:
    number = found["num_trials"] or "any number of"
    lines = [f"{found['name']}: {number} trials, {found['searcher']}, {found['scheduler']}"]
    lines.append(f"first trials, with --seed {found['seed']}:")
    lines += aligned([(f"  {one['trial']}", clean(one["call"]), clean(one["resources"])) for one in found["calls"]])
    lines.append(f"packing: {found['at_once']} at a time")
    for name, node in found["nodes"].items():
        cpus = f"{node['cpus_held']:g} of {node['cpus']:g} CPUs"
        held = {"lanes" if "lane=1" in [one["resources"] for one in found["calls"]] else cpus: node["trials"]}
        held |= {f"device {one}" if one.isdigit() else one: some for one, some in node["devices"].items()}
        by: dict[str, list[str]] = {}  # what the same trials hold is named together
        for what, numbers in held.items():
            some = list(dict.fromkeys(numbers))
            by.setdefault(f"{' '.join(map(str, some[:8]))}{' ...' * (len(some) > 8)}", []).append(what)
        shown = (f"{' '.join(names)}{f': {numbers}' if numbers else ' idle'}" for numbers, names in by.items())
        lines.append(f"  {clean(name)}: {'; '.join(shown)}")
    if len(found["rungs"]) > 1:
        rungs = ", ".join(f"{trials} get to {level}" for level, trials in found["rungs"].items())
        lines.append(f"rungs: of {found['num_sketched']} trials {rungs}")
    return "\n".join([*lines, *(f"warning: {clean(text)}" for text in found["warnings"]), ""])


def _forecast_text(found: Mapping[str, Any]) -> str:
    rows = [("", "median", "80% range")]
    for name, (label, show) in _SHOWN.items():
        if name in found and found[name]["high"]:
            low, median, high = map(show, found[name].values())
            rows.append((f"  {label}", median, f"{low} - {high}"))
    known = f"{found['known']} trial{'s' * (found['known'] > 1)}"
    lines = [f"forecast from {known}, by {found['simulated']} sweeps in virtual time:"]
    cut = f"note: {found['cut']} of them had not come to their end; here they go on like those that had"
    return "\n".join([*lines, *aligned(rows, {1, 2}), *([cut] if found["cut"] else []), ""])
