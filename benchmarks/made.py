"""A finished experiment of many trials with 100 reports each, written as a driver would have recorded it."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sweep.core import messages as m
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.results import TrialResult, add_measured, fill
from sweep.core.trial import Cause, Status, Trial
from sweep.record.checksums import Totals, crc_of, linked, total
from sweep.record.codec import encode_event
from sweep.record.encoding import encode
from sweep.record.journal import create, row_of
from sweep.record.layout import DATABASE

REPORTS = 100
RUNGS = (1, 4, 16, 64)
_T0 = 1.75e9
_META = {
    "prefix": "abcde",
    "metric": "loss",
    "mode": "min",
    "created": _T0,
    "scheduler": "pbt",  # so that every figure has something to show
    "variables": ["lr", "width", "dropout", "optimizer", "weight_decay"],
    "space": {"lr": "Float(1e-05, 1).LogUniform()", "width": "Categorical[16, 32, 64, 128].Uniform()"},
}
_NODE = Node("local", cpus=8, devices=tuple(Device(f"gpu-{index}") for index in range(8)))


def trials(number: int) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Give config and losses of each trial: one in twenty was stopped at a rung, so most curves are whole."""
    draw = random.Random(0)
    for index in range(number):
        config = {
            "lr": 10 ** draw.uniform(-5, 0),
            "width": draw.choice([16, 32, 64, 128]),
            "dropout": draw.random(),
            "optimizer": draw.choice(["sgd", "adam"]),
            "weight_decay": 10 ** draw.uniform(-6, -2),
        }
        last = RUNGS[index // 20 % 4] if index % 20 == 0 else REPORTS
        base = (math.log10(config["lr"]) + 2) ** 2 + config["dropout"]
        yield config, [base + 1 / step + draw.random() / 10 for step in range(1, last + 1)]


def experiment(root: Path, number: int) -> Path:
    """Return an experiment in which every trial has ended, eight at a time on eight GPUs; made unless it is there."""
    if root.exists():
        return root
    root.mkdir(parents=True)
    create(root / DATABASE)
    events: list[tuple[Any, ...]] = []
    rows = []
    chain, begin = 0, 0.0

    def add(at: float, event: m.Event, commands: Any = None, metrics: Any = None) -> int:
        nonlocal chain
        seq, trial_id = len(events) + 1, getattr(event, "trial_id", None)
        data = encode_event(event, at, _T0 + at, commands, metrics)
        chain = linked(seq, trial_id, data, chain)
        events.append((seq, trial_id, data, chain))
        return seq

    request = Resources((Bundle(gpu=1),))
    add(0.0, m.PlanChanged(Plan(prefix="abcde", num_trials=number, metric="loss", mode="min")))
    add(0.0, m.NodesChanged((_NODE,)))
    for index, (config, losses) in enumerate(trials(number)):
        name, end = f"abcde_{index:05d}", begin + 0.5 * len(losses)
        place = Placement((BundlePlacement("local", ((f"gpu-{index % 8}", 1.0),)),))
        add(begin, m.Suggested(name, config, request), [["Start", name, 1, place.to_json()]])
        add(begin + 0.1, m.Started(name, 1, 4242))
        last = best = TrialResult({"loss": math.inf})
        for step, loss in enumerate(losses, start=1):
            told: dict[str, Any] = {"loss": loss, "eval": {"acc": step / REPORTS}}
            at, before = begin + 0.5 * step, 0.5 * (step - 1)
            add_measured(told, wall=_T0 + at, seconds=0.5, pid=4242, hostname="vm")
            metrics = fill(told, trial_id=name, count=step, since_restore=step, time_before_s=before, restored_s=0.0)
            last = TrialResult(metrics, add(at, m.Reported(name, 1, step, metrics), metrics=metrics))
            best = last if loss < best["loss"] else best
        add(end, m.Exited(name, 1, m.Exit(m.ExitKind.FINISHED)), [["Notify", "trial_complete", name]])
        add(end + 0.1, m.Released(name, 1))
        why = (f"stopped early: loss=3 at {len(losses)}, cutoff 2", Cause.EARLY) if len(losses) < REPORTS else ("", "")
        ended = Trial(name, config, request, Status.TERMINATED, attempt=1, count=len(losses), judged_to=len(losses))
        rows.append(row_of(ended._replace(last_result=last, best_result=best, reason=why[0], cause=Cause(why[1])), ""))
        begin += 0.5 * len(losses) / 8
    meta = [(key, encode(value)) for key, value in (_META | {"name": root.name}).items()]
    with closing(sqlite3.connect(root / DATABASE)) as db, db:
        db.executemany("INSERT INTO meta VALUES (?, ?, ?)", [(*row, crc_of(row)) for row in meta])
        db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", events)
        db.executemany("INSERT INTO trial VALUES (?, ?, ?, ?, ?, ?)", rows)
        Totals(len(events), chain, total([*map(crc_of, meta), *(row[-1] for row in rows)])).write(db)
    return root
