"""`sweep resume`: go on with a sweep, extend it, or let one go on that runs and was paused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sweep.cli.arguments import parse_count, parse_seconds, seconds_of
from sweep.cli.options import name_argument, some_trials_argument, where_option
from sweep.cli.running.carrying import carried_options, carry_out, note
from sweep.cli.running.cluster import cluster_options, join
from sweep.cli.tables import say
from sweep.errors import ConfigError
from sweep.launch.target import asked
from sweep.record.reader import ExperimentReader
from sweep.requests.attached import Attached
from sweep.storage.filesystems import storage_of


@click.command(short_help="Go on with a sweep, or extend it.")
@name_argument
@some_trials_argument
@click.option("--trials", metavar="N|+N", help="A new number of samples, or so many more.")
@click.option("--time", "span", metavar="SPAN|+SPAN", help="A new time budget such as 2h, or so much more.")
@click.option("--errored", is_flag=True, help="Also start failed trials again.")
@cluster_options
@carried_options
@where_option
def resume(
    reader: ExperimentReader,
    some: tuple[str, ...],
    trials: str | None,
    span: str | None,
    errored: bool,
    engine: str | None,
    address: str | None,
    hosts: str | None,
    cluster: Mapping[str, Any],
    **shown: Any,
) -> int:
    """Go on with a sweep: after Ctrl-C, after a crash, or with more trials or time after its end; and with what `sweep
    pause` has paused, or of that only with TRIAL. A sweep that runs hears it, and none is started anew.

    Works for sweeps that `sweep run` has started, and for those of a Python script: what the script called is recorded.
    Its trainable is imported from the script, which is run up to its first sweep.

    \b
    Examples:
      sweep resume digits
      sweep resume digits --trials +50
      sweep resume digits --time +2h
    """
    reader.refuse_imported()
    running, on_end = Attached(reader), shown.pop("on_end")
    if running.is_running:
        if on_end or engine or address or hosts or cluster or shown["conditions"] or shown["junit"]:
            raise ConfigError(
                f"{reader.name} runs already: its engine, --on-end, --require, --junit are of the call it began with."
            )
        if errored:
            say(reader, "retry", running.retry(), shown["as_json"])
        if trials is not None or span is not None:
            said = running.edit(num_samples=trials, time_budget_s=seconds_of(span))
            say(reader, "edit", said, shown["as_json"])
        elif not errored:
            say(reader, "resume", running.resume(some or None), shown["as_json"])
        return 0
    if some or any(trial.is_by_person for trial in reader.trials()):
        running.resume(some or None)
    storage = storage_of(reader.root) or str(reader.root.parent)
    trainable, given = asked(reader, storage, None if shown["quiet"] or shown["as_json"] else note)
    given |= join(engine, address, hosts, cluster, {})
    before = given.get("num_samples", 1)
    if trials is not None and before < 0 and trials.strip().startswith("+"):
        raise ConfigError(f"{reader.root.name} has no limit of trials that could be raised by {trials}.")
    if trials is not None:
        given["num_samples"] = parse_count(trials, before)
    if span is not None:
        last = reader.last_event() if span.strip().startswith("+") else None
        driven = 0.0 if last is None else last[1]
        given["time_budget_s"] = parse_seconds(span.strip().removeprefix("+")) + driven
    given |= {"resume": "AUTO+ERRORED" if errored else True, "on_end": on_end}
    return carry_out(trainable, given, **shown)
