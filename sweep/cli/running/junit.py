"""A sweep as a JUnit file, which CI servers show: each trial is a test case."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click

from sweep.cli.best import unmet
from sweep.core.literals import as_arguments
from sweep.core.results import flatten, own_metrics
from sweep.core.values import as_float, printed
from sweep.errors import SweepError
from sweep.record.files import write_atomically
from sweep.record.reader import ExperimentReader
from sweep.results.winners import best_by_last

_NOT_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, reader: ExperimentReader, conditions: Sequence[str], error: BaseException | None) -> None:
    """Write a test suite; what was required of the best, and what ended the sweep before its time, are cases, too.

    It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), which knows no properties of a test case: its
    config and its last report are its `system-out`. Raises SweepError where the file cannot be written; where `error`
    is raised anyway, this is only printed.
    """
    root = ElementTree.Element("testsuites")
    suite = _add(root, "testsuite", name=reader.name, hostname=platform.node() or "localhost")
    properties = _add(suite, "properties")
    best = None if reader.objectives else best_by_last(reader, reader.metric, reader.mode)
    about: dict[str, Any] = {"metric": reader.metric, "mode": reader.mode, "directory": reader.root}
    if best is not None:
        about |= {"best": best.value, "best_trial": f"{best.row.number:05d}"}
        about |= {f"config/{name}": value for name, value in flatten(best.row.config).items()}
    for name, value in about.items():
        _add(properties, "property", name=name, value="" if value is None else printed(value))
    for trial in reader.trials():
        report = trial.last_metrics or {}
        seconds = as_float(report.get("time_total_s")) or 0.0
        case = _add(suite, "testcase", name=f"trial {trial.number:05d}", classname=reader.name, time=f"{seconds:.3f}")
        if trial.status == "ERROR":
            ended = reader.last_exit(trial.trial_id)
            _add(case, "failure", ended.traceback if ended else "", type=trial.failure, message=trial.reason)
        elif not trial.is_ended:
            _add(case, "skipped", type=trial.state, message=trial.reason)
        said = f"config: {as_arguments(trial.config)}\nlast report: {as_arguments(own_metrics(report))}\n"
        _add(case, "system-out", said)
    ends = [(f"require {one}", "failure", "require", unmet(reader, [one])) for one in conditions]
    ends += [] if error is None else [("sweep", "error", type(error).__name__, str(error))]
    for name, tag, kind, why in ends:
        case = _add(suite, "testcase", name=name, classname=reader.name, time="0")
        if why:
            _add(case, tag, type=kind, message=why)
    for name, found in {"tests": "", "failures": "/failure", "errors": "/error", "skipped": "/skipped"}.items():
        suite.set(name, str(len(suite.findall(f"testcase{found}"))))
    suite.set("time", f"{reader.driven_s():.3f}")
    suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(reader.meta.get("created"))))
    ElementTree.indent(root)
    content = ElementTree.tostring(root, encoding="unicode")
    try:
        write_atomically(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{content}\n')
    except OSError as problem:
        why = f"--junit {path} cannot be written: {problem.strerror}."
        if error is None:
            raise SweepError(why) from problem
        click.echo(f"error: {why}", err=True)


def _add(parent: Any, tag: str, text: str = "", **attributes: str) -> Any:
    """Add an element, what XML cannot hold written as `\\x1b`."""
    legal = partial(_NOT_XML.sub, lambda one: ascii(one[0])[1:-1])
    child = ElementTree.SubElement(parent, tag, {name: legal(value) for name, value in attributes.items()})
    child.text = legal(text) or None
    return child
