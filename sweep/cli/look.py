"""`sweep html` and `sweep watch`: sweeps as a page to look at, in a file or live."""

from __future__ import annotations

import os
import platform
import secrets
from pathlib import Path

import click

from sweep.cli.inspect import storage_option
from sweep.display.formats import clean
from sweep.errors import ConfigError
from sweep.page.build import write_page
from sweep.record.reader import ExperimentReader, find_experiment

__all__ = ["html", "watch"]


@click.command(short_help="Write a sweep, or several compared, as one page.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--output", "-o", metavar="FILE", help="Where to.  [default: NAME.html; of several compared.html]")
@storage_option
def html(names: tuple[str, ...], output: str | None, storage: str | None) -> None:
    """Write one page that needs nothing else: what ran, the winner to paste, figures and a table that know of each
    other, what failed, what was waited for, what it cost. Several NAMEs are compared. It opens without a network.

    \b
    Examples:
      sweep html digits
      sweep html digits -o report.html
      sweep html before after -o compared.html
    """
    readers = [find_experiment(name, storage) for name in names]
    path = Path(output or (f"{readers[0].root.name}.html" if len(readers) == 1 else "compared.html"))
    written = write_page(readers, path)
    click.echo(f"{clean(written)}  {written.stat().st_size / 1e6:.1f} MB")


@click.command(short_help="Look at sweeps live, in a browser or here.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1.  [default: one that is free]")
@storage_option
def watch(names: tuple[str, ...], port: int, storage: str | None) -> None:
    """Serve the page of `sweep html` on this machine, and keep it up to date while it is looked at. It only reads;
    Ctrl-C ends the page, not the sweep. The address holds a token: whoever has it can look, and nobody else.

    \b
    Examples:
      sweep watch digits
      sweep watch before after --port 8765
    """
    serve([find_experiment(name, storage) for name in names], port)


def serve(readers: list[ExperimentReader], port: int) -> None:
    """Serve the pages of experiments until Ctrl-C.

    Raises:
        ConfigError: a package is missing, or the port cannot be used.
    """
    from sweep.figures.style import graph_objects
    from sweep.page.live import LivePage, application, listening_socket

    graph_objects()
    token = secrets.token_urlsafe(24)
    app = application(LivePage(readers), token)
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError(
            "sweep watch needs uvicorn, which is not installed. Run: pip install starlette uvicorn"
        ) from error
    with listening_socket(port) as listener:
        taken = listener.getsockname()[1]
        name = ", ".join(clean(reader.name) for reader in readers)
        click.echo(f"{name}: http://127.0.0.1:{taken}/?token={token}")
        click.echo(
            f"from another machine: ssh -L {taken}:127.0.0.1:{taken} {platform.node() or 'HOST'}, then the same address"
        )
        click.echo("Ctrl-C ends this page; a sweep that runs goes on")
        os.nice(5)  # the sweep has the machine first
        config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            return
