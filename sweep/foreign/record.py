"""Record an experiment of another tool as one of ours: the sweep's own loop is driven by what happened there, in
virtual time, so that facts, commands and trials fit together as in any record, and can be decided again."""

from __future__ import annotations

import heapq
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sweep.core import messages as m
from sweep.core.config import CheckpointConfig
from sweep.core.resources import Node
from sweep.core.results import TrialResult
from sweep.core.sweep import Sweep
from sweep.core.trial import Trial, number_of
from sweep.engines.base import EngineCommand
from sweep.engines.simulator import Simulator
from sweep.errors import ConfigError, ExperimentError, RecordError
from sweep.foreign.sources import Foreign, ForeignTrial
from sweep.launch.build import build
from sweep.launch.description import meta_of_run
from sweep.launch.drive import drive
from sweep.launch.place import Place
from sweep.launch.spec import RunSpec
from sweep.record.guard import make_writable
from sweep.record.journal import Journal
from sweep.record.layout import ExperimentLayout, check_name
from sweep.record.saved_spec import pack_saved_spec, write_saved_spec
from sweep.schedulers.base import Scheduler
from sweep.simulation.curves import InOrder
from sweep.simulation.virtual import Unobserved
from sweep.storage.location import parse_storage
from sweep.worker.trainable import PreparedTrainable

_MOMENT_S = 1e-6  # a place comes free so long before its next trial begins


class AsPruned(Scheduler):
    """Stop the trials that were stopped; `last` has the number of the last report by the number of the trial."""

    is_stateless = True

    def __init__(self, last: Mapping[int, int]) -> None:
        self._last = dict(last)

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[m.Decision]:
        return [m.StopTrial(trial.id)] if trial.count == self._last.get(trial.number) else ()


class _AsItWas(Simulator):
    """What happened, whatever is commanded: commands are what led to it.

    A trial starts when its place comes free, so the place of one that has ended is released just then; where there is
    none a node is added. So there are as many as ever ran at a time.
    """

    def __init__(self, trials: Sequence[ForeignTrial], prefix: str) -> None:
        nodes, ended = [Node("imported-1", 1.0)], list[tuple[float, int, m.Event]]()
        super().__init__(lambda config, done: iter(()), nodes)
        for number, trial in enumerate(trials):
            free, name = trial.start - trials[0].start, f"{prefix}_{number:05d}"
            at = free + _MOMENT_S
            if ended and ended[0][0] <= free:
                self._at(free, heapq.heappop(ended)[2])
            elif number:
                nodes.append(Node(f"imported-{len(nodes) + 1}", 1.0))
                self._at(free, m.NodesChanged(tuple(nodes)))
            self._at(at, m.Started(name, 1))
            for seq, (seconds, metrics) in enumerate(trial.reports, 1):
                at += seconds
                filled = {"time_this_iter_s": seconds, "timestamp": int(trials[0].start + at), **metrics}
                self._at(at, m.Reported(name, 1, seq, filled))
            kind = m.ExitKind.STOPPED if trial.is_pruned else m.ExitKind.FINISHED
            at += trial.rest_s
            self._at(at, m.Exited(name, 1, m.Exit(m.ExitKind.FAILED, trial.error) if trial.error else m.Exit(kind)))
            heapq.heappush(ended, (at, number, m.Released(name, 1)))
        for at, _, released in ended:
            self._at(at, released)

    def execute(self, command: EngineCommand) -> None:
        pass

    def _is_current(self, event: m.Event) -> bool:
        return True


def record_foreign(foreign: Foreign, source: str, *, name: str | None, storage: str | None) -> Path:
    """Record an experiment of another tool, whole or not at all; returns its directory. Its trials are in the order in
    which they began, and their times are those of then. `source` is where it was read from, for people.

    Raises:
        ConfigError: it has no trials, the name is none, or the storage is elsewhere.
        ExperimentError: there is one of that name, or it cannot be written.
    """
    if not (trials := sorted(foreign.trials, key=lambda trial: trial.start)):
        raise ConfigError(f"{source} has no trial that ever began; there is nothing to import.")
    check_name(name := name or foreign.name)
    searcher = InOrder([trial.config for trial in trials])
    searcher.is_adaptive = True  # asked when a place is free, and not before
    pruned = {number: len(trial.reports) for number, trial in enumerate(trials) if trial.is_pruned}
    policies: dict[str, Any] = {"search_alg": searcher, "scheduler": AsPruned(pruned), "num_samples": len(trials)}
    policies |= {"config": foreign.space, "metric": foreign.metric, "mode": foreign.mode}
    saved = pack_saved_spec(policies)  # for `sweep replay --verify`
    policies |= {"strict_metric": False, "checkpoint_config": CheckpointConfig(checkpoint_at_end=False)}
    policies |= {"storage_path": storage, "max_identical_failures": -1}
    spec, trainable = RunSpec(trainable=foreign.tool, **policies), PreparedTrainable(foreign.tool, "function", b"")
    place = Place(parse_storage(storage), ExperimentLayout(parse_storage(storage).local_root / name), False, "")
    if place.storage.remote is not None or place.layout.root.exists():
        raise ExperimentError(f"{place.storage} is elsewhere, or holds {name}: give another --storage or --name.")
    engine, began = _AsItWas(trials, prefix := uuid.uuid4().hex[:5]), trials[0].start - _MOMENT_S
    built = build(spec, trainable, engine.nodes(), seed=0, prefix=prefix)
    meta = meta_of_run(built, place, trainable, None, {"created": began})
    meta |= dict.fromkeys(("scheduler", "machine", "versions")) | {"searcher": foreign.tool}
    meta["imported"] = {"tool": foreign.tool, "source": source, "at": time.time()}
    made = ExperimentLayout(place.layout.root.with_name(f".importing-{prefix}"))
    try:
        make_writable(made)
        write_saved_spec(made.root, saved)
        journal = Journal(
            made.database,
            began=began,
            name_of=lambda trial: trials[number_of(trial.id)].name,
            is_interrupted=lambda: True,  # no trial waits for a disk that is full
        )
        with closing(journal):
            journal.set_meta(meta)
            sweep = Sweep(built.plan, built.policies.scheduler, built.packer)
            drive(sweep, engine, built.policies.searcher, Unobserved(), journal, request_of=built.request_of)
        os.rename(made.root, place.layout.root)
    except (OSError, RecordError) as error:
        raise ExperimentError(
            f"{place.storage} cannot hold it, and has none of it: {error.__cause__ or error}"
        ) from error
    finally:
        shutil.rmtree(made.root, ignore_errors=True)
    return place.layout.root
