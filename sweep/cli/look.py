"""`sweep html` and `sweep watch`: sweeps as a page to look at, in a file or live."""

from __future__ import annotations

import importlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.options import announce, goal_option, metric_option, names_argument, page_options, where_option
from sweep.cli.running.requests import ask
from sweep.cli.tables import json_option
from sweep.core.history import History
from sweep.core.messages import NodesChanged, PlanChanged
from sweep.core.plan import Plan
from sweep.core.resources import Node
from sweep.core.trial import Trial
from sweep.display.formats import clean
from sweep.errors import ConfigError
from sweep.page.build import write_page
from sweep.page.subject import Subject
from sweep.record.db import last_event
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader
from sweep.record.resume import read_trials

if TYPE_CHECKING:
    from sweep.display.progress import Progress


@click.command(short_help="Write a sweep, or several compared, as one page.")
@names_argument
@click.option("--output", "-o", metavar="FILE", help="Where to.  [default: NAME.html; of several compared.html]")
@metric_option
@goal_option
@json_option()
@where_option
def html(
    readers: list[ExperimentReader], output: str | None, metric: str | None, mode: str | None, as_json: bool
) -> None:
    """Write one page that needs nothing else: what ran, the winner to paste, figures and a table that know of each
    other, what failed, what was waited for, what it cost. Several NAMEs are compared. It opens without a network.

    \b
    Examples:
      sweep html digits
      sweep html digits -o report.html
      sweep html before after -o compared.html
    """
    subjects = [Subject(reader, metric, mode) for reader in readers]
    path = Path(output or (f"{subjects[0].reader.root.name}.html" if len(subjects) == 1 else "compared.html"))
    written = write_page(subjects, path)
    if written.is_file() and as_json:  # else a pipe, perhaps this one
        click.echo(json.dumps({"path": str(written), "bytes": written.stat().st_size}))
    elif written.is_file():
        click.echo(f"{clean(written)}  {written.stat().st_size / 1e6:.1f} MB")


@click.command(short_help="Look at sweeps live, in a browser or here.")
@page_options
@click.option("--text", "is_text", is_flag=True, help="Here in the terminal, as `sweep run` shows it; one sweep.")
@click.option("--read-only", "is_read_only", is_flag=True, help="Without the buttons that ask a sweep for something.")
def watch(
    readers: list[ExperimentReader],
    port: int,
    is_text: bool,
    is_opened: bool,
    as_json: bool,
    is_read_only: bool,
    **by: Any,
) -> None:
    """Serve the page of `sweep html` on this machine, and keep it up to date while it is looked at. It has buttons that
    stop a sweep or a trial, pause, retry, try a config. Ctrl-C ends the page, not the sweep. The address holds a token:
    whoever has it can look and press them, and nobody else.

    \b
    Examples:
      sweep watch digits
      sweep watch before after --port 8765
      sweep watch digits --text
    """
    if not is_text or as_json:
        if is_text:
            raise ConfigError("--text is for people, and --json for programs; give one of them.")
        subjects = [Subject(reader, **by) for reader in readers]
        _serve(subjects, port, is_opened=is_opened, as_json=as_json, ask=None if is_read_only else ask)
        return
    if len(readers) > 1:
        raise ConfigError(f"--text shows one sweep, and {len(readers)} are named. Leave --text out to see them all.")
    from sweep.display.progress import Progress  # rich is heavy for a help text

    display = Progress(hint="^C leaves; the sweep goes on")
    try:
        attach(readers[0], display)
    except KeyboardInterrupt:
        display.leave()
        click.echo("the sweep goes on" if readers[0].state() == "running" else "")


def _serve(subjects: list[Subject], port: int, *, is_opened: bool, as_json: bool, ask: Any) -> None:
    """Serve the pages of experiments until Ctrl-C."""
    from sweep.figures.style import graph_objects
    from sweep.page.live import LivePage, application, listening_socket

    graph_objects()
    token = secrets.token_urlsafe(24)
    app = application(LivePage(subjects), token, ask)
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError("sweep watch needs uvicorn. Run: pip install starlette uvicorn") from error
    with listening_socket(port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={token}"
        note = "Ctrl-C ends this page; a sweep that runs goes on"
        announce([subject.reader for subject in subjects], address, note, as_json=as_json, is_opened=is_opened)
        # What draws importances takes seconds to import: a thread of its own, so that no figure waits for it.
        threading.Thread(target=importlib.import_module, args=("optuna.importance",), daemon=True).start()
        os.nice(5)  # the sweep has the machine first
        config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


_POLL_S = 0.5
_REST = 10  # times what one look took: 10% of one CPU at most


@dataclass
class _Seen:
    """What a look at the record found; `at` in seconds of driving, `seq` of the last event."""

    plan: Plan
    nodes: tuple[Node, ...] = ()
    seq: int = 0
    at: float = 0.0
    trials: dict[str, Trial] = field(default_factory=dict)


def attach(reader: ExperimentReader, display: Progress, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show a sweep until nobody drives it any more, then what came of it. Nothing is written to it."""
    seen = _look(reader, None)
    about = {name: reader.meta.get(name) for name in ("searcher", "scheduler", "seed", "resume_command")}
    about |= {"name": reader.name, "nodes": seen.nodes, "objectives": reader.objectives}
    display.setup(experiment_dir=str(reader.root), plan=seen.plan, num_trials=seen.plan.num_trials, **about)
    display.on_step(seen.trials, seen.at, [name for name, trial in seen.trials.items() if not trial.is_ended])
    is_running = True
    while is_running:
        is_running, began = reader.state() == "running", time.monotonic()
        news = _look(reader, seen)
        if news is not seen:
            changed = [name for name, trial in news.trials.items() if seen.trials.get(name) != trial]
            display.on_step(news.trials, news.at, changed)
            seen = news
        if is_running:
            sleep(max(_POLL_S, _REST * (time.monotonic() - began)))
    display.on_experiment_end(list(seen.trials.values()))
    if hint := reader.state_hint():
        click.echo(hint, err=True)


def _look(reader: ExperimentReader, before: _Seen | None) -> _Seen:
    """Return how the sweep stands; `before` itself where nothing has happened since."""
    with reader.connect() as connection:
        last = last_event(connection)
        if before is not None and last is not None and last[0] == before.seq:
            return before
        machine = History.of(read_facts(connection, kinds=(PlanChanged, NodesChanged), trust=False))
        if last is None or not machine.seq:
            raise ConfigError(f"{reader.name} has not begun: nothing is recorded of it yet. Try again in a moment.")
        trials = {trial.id: trial for trial in read_trials(connection, reader.layout.database, trust=False)}
    return _Seen(machine.plan, machine.nodes, last[0], last[1], trials)
