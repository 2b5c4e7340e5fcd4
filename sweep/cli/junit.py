"""A sweep as a JUnit file, which CI servers show: each trial is a test case."""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sweep.cli.inspect import unmet
from sweep.core.literals import as_arguments
from sweep.core.results import flatten, own_metrics
from sweep.core.values import printed
from sweep.errors import SweepError
from sweep.record.files import write_atomically
from sweep.record.reader import ExperimentReader
from sweep.results.winners import best_by_last

_NOT_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, reader: ExperimentReader, conditions: Sequence[str], error: BaseException | None) -> None:
    """Write a test suite: a trial that failed is a failure with its traceback, one that has not ended is skipped; what
    was required of the best, and what ended the sweep before its time, are test cases of their own.

    It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), which knows no properties of a test case: its
    config and its last report are its `system-out`. The suite's properties are those of the best trial.

    Raises:
        SweepError: the file cannot be written.
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
    counts: Counter[str] = Counter()

    def add_case(
        name: str, seconds: Any = 0.0, kind: str = "", type: str = "", message: str = "", text: str = ""
    ) -> Any:
        counts.update(("test", kind))
        case = _add(suite, "testcase", name=name, classname=reader.name, time=f"{seconds:.3f}")
        if kind:
            _add(case, kind, text, type=type, message=message)
        return case

    for trial in reader.trials():
        kind, trace, report = "", "", trial.last_metrics or {}
        if trial.status == "ERROR":
            ended = reader.last_exit(trial.trial_id)
            kind, trace = "failure", ended.traceback if ended is not None else ""
        elif not trial.is_ended:
            kind = "skipped"
        seconds, why = report.get("time_total_s", 0.0), trial.failure or trial.state
        case = add_case(f"trial {trial.number:05d}", seconds, kind, why, trial.reason or trial.state, trace)
        said = f"config: {as_arguments(trial.config)}\nlast report: {as_arguments(own_metrics(report))}\n"
        _add(case, "system-out", said)
    for condition in conditions:
        why = unmet(reader, [condition])
        add_case(f"require {condition}", kind="failure" if why else "", type="require", message=why)
    if error is not None:
        add_case("sweep", kind="error", type=type(error).__name__, message=str(error))
    numbers = {"tests": "test", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, kind in numbers.items():
        suite.set(name, str(counts[kind]))
    suite.set("time", f"{reader.driven_s():.3f}")
    suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(reader.meta.get("created"))))
    ElementTree.indent(root)
    content = ElementTree.tostring(root, encoding="unicode")
    try:
        write_atomically(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{content}\n')
    except OSError as problem:
        raise SweepError(f"--junit {path} cannot be written: {problem.strerror}.") from problem


def _add(parent: Any, tag: str, text: str = "", **attributes: str) -> Any:
    """Add an element, what XML cannot hold written as `\\x1b`."""
    legal = {name: _NOT_XML.sub(lambda one: ascii(one[0])[1:-1], value) for name, value in attributes.items()}
    child = ElementTree.SubElement(parent, tag, legal)
    child.text = _NOT_XML.sub(lambda one: ascii(one[0])[1:-1], text) or None
    return child
