"""`sweep dashboard`: sweeps as studies in Optuna's dashboard, in a browser on this machine."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import click

from searchers.optuna_space import quiet
from sweep.callbacks.loggers import required
from sweep.cli.options import announce, page_options
from sweep.core.ranking import Objectives
from sweep.errors import ConfigError, MetricError
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_study import objectives_for, study_in
from sweep.results.optuna_trials import frozen_trials

_App = Callable[..., Iterable[bytes]]
_Experiment = tuple[ExperimentReader, Objectives]
_HOST = "127.0.0.1"
_OWN_NAMES = (_HOST, "localhost")


@click.command(short_help="Look at sweeps in Optuna's dashboard.")
@page_options
def dashboard(
    readers: list[ExperimentReader], port: int, metric: str | None, mode: str | None, is_opened: bool, as_json: bool
) -> None:
    """Show sweeps in Optuna's dashboard until Ctrl-C: history, intermediate values, importances, every trial. NAME is a
    sweep, or the path of one; it may run, have ended or have crashed. The page shows what was recorded up to now, and
    nothing can be changed through it.

    It needs the package optuna-dashboard, and listens on 127.0.0.1 only. It asks for no password: whoever has an
    account on this machine can look at it while it runs.

    \b
    Examples:
      sweep dashboard digits
      sweep dashboard digits digits-2 --port 8080
      sweep dashboard ./sweep_results/digits --metric acc --goal maximize
    """
    dashboards = required("optuna_dashboard", "sweep dashboard", "optuna-dashboard")
    server = _server([(reader, objectives_for(reader, metric, mode)) for reader in readers], port, dashboards)
    with server:
        address = f"http://{_HOST}:{server.server_port}/dashboard" + ("/studies/0" if len(readers) == 1 else "")
        note = "optuna-dashboard asks for no password: whoever is on this machine can look. Ctrl-C ends it."
        announce(readers, address, note, as_json=as_json, is_opened=is_opened)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            click.echo("ended")


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own, and waits for none when it ends."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for a request."""


def _server(experiments: list[_Experiment], port: int, dashboards: Any) -> WSGIServer:
    """Return a server that listens."""
    app = _guarded(_with_importances(_live(experiments, dashboards), experiments))
    try:
        return make_server(_HOST, port, app, _Server, _Quiet)
    except OSError as error:
        raise ConfigError(
            f"port {port} of {_HOST} cannot be used: {error.strerror}. Leave --port out for a free one."
        ) from error


def _live(experiments: list[_Experiment], dashboards: Any) -> _App:
    """Return the dashboard of what is recorded by then: the studies are made anew when something has happened."""
    made: dict[tuple[int, ...], _App] = {}
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            seqs = tuple(reader.snapshot().seq for reader, _ in experiments)
            if seqs not in made:
                made.clear()
                made[seqs] = dashboards.wsgi(_studies(experiments))
            app = made[seqs]
        return app(environ, start_response)

    return answer


def _studies(experiments: list[_Experiment]) -> Any:
    from optuna.storages import InMemoryStorage

    storage = InMemoryStorage()
    names = [reader.name for reader, _ in experiments]
    for (reader, objectives), name in zip(experiments, names, strict=True):
        unique = name if names.count(name) == 1 else f"{name} ({reader.root})"
        with quiet():
            study_in(storage, unique, objectives, reader).add_trials(frozen_trials(reader, objectives))
    return storage


def _with_importances(app: _App, experiments: list[_Experiment]) -> _App:
    """Return the application with the importances of our figures: its own leave out trials that were stopped early, and
    say something of two trials."""
    from sweep.figures.importance import importances
    from sweep.figures.trials import Field

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        asked = re.fullmatch(r"/api/studies/(\d+)/param_importances", environ.get("PATH_INFO", ""))
        if asked is None or int(asked[1]) >= len(experiments):
            return app(environ, start_response)
        reader, objectives = experiments[int(asked[1])]
        found: list[list[dict[str, Any]]] = []
        for metric, mode in objectives:
            found.append([])
            with suppress(ConfigError, MetricError):  # of too few trials there is nothing to show
                shares, varied, _ = importances(Field(reader, metric, mode))
                kinds = {name: "Float" if one.labels is None else "Categorical" for name, one in varied.items()}
                found[-1] = [
                    {"name": name, "importance": share, "distribution": f"{kinds[name]}Distribution"}
                    for name, share in shares.items()
                ]
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"param_importances": found}).encode()]

    return answer


def _guarded(app: _App) -> _App:
    """Return an application that answers only who calls it by a name of this machine, as a page from elsewhere, whose
    own name was pointed to 127.0.0.1, must not read the sweeps; and that changes nothing."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        why = ""
        if urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname not in _OWN_NAMES:
            why = f"Call it by the name {_HOST} or localhost."
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            why = "A sweep is shown here as it was recorded; nothing of it can be changed."
        if not why:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why}\n".encode()]

    return answer
