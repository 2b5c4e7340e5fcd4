"""`sweep mcp`: a server of the Model Context Protocol on standard input and output, by which an agent runs sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sweep import __version__
from sweep.cli.arguments import parse_count, parse_seconds
from sweep.cli.clients.tools import Desk
from sweep.cli.options import storage_option
from sweep.errors import ConfigError, SweepError
from sweep.storage.location import parse_storage


def _budget(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    counts = [parse_count(text.removesuffix("trials"), 0) for text in given if text.endswith("trials")]
    spans = [parse_seconds(text) for text in given if not text.endswith("trials")]
    return {"most_trials": min(counts, default=None), "most_s": min(spans, default=None)}


@click.command(short_help="Let an agent look at sweeps and run them (MCP).")
@click.option("--allow-run", is_flag=True, help="Also run scripts, start sweeps and talk to them.  [default: read]")
@click.option(
    "--programs",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    help="Only scripts below it are run.",
)
@click.option(
    "--budget",
    metavar="SPAN|'N trials'",
    multiple=True,
    callback=_budget,
    help="What all sweeps in the storage may take together; more is refused. May be given for both.",
)
@storage_option()
def mcp(storage: str | None, programs: Path | None, allow_run: bool, budget: Mapping[str, Any]) -> None:
    """Serve the Model Context Protocol on standard input and output, for the agent that starts this command. Its tools
    are what the other commands do, within one storage. It needs the package mcp.

    \b
    Examples:
      sweep mcp --storage ./sweep_results
      sweep mcp --allow-run --programs ./scripts --budget 2h --budget '200 trials'
    """
    place = parse_storage(storage)
    if place.remote is not None:
        raise ConfigError(f"{place} is not a directory of this machine; give one with --storage.")
    if allow_run != (programs is not None):
        raise ConfigError("--allow-run and --programs DIRECTORY belong together: only scripts below it are run.")
    if programs is not None and not programs.is_dir():
        raise ConfigError(f"--programs {programs}: there is no such directory.")
    try:
        import anyio
        import mcp_types as types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise ConfigError(f"sweep mcp needs the package mcp. Run: pip install 'mcp>=2' ({error})") from error
    place.local_root.mkdir(parents=True, exist_ok=True)
    desk = Desk(place.local_root.resolve(), programs and programs.resolve(), **budget)

    if desk.programs is not None:
        os.chdir(desk.programs)  # where scripts run

    async def tools(context: Any, params: Any) -> Any:
        offered = desk.tools.items()
        made = [types.Tool(name=name, description=about, input_schema=takes) for name, (about, takes) in offered]
        return types.ListToolsResult(tools=made)

    async def call(context: Any, params: Any) -> Any:
        try:
            text, is_error = await anyio.to_thread.run_sync(desk.call, params.name, dict(params.arguments or {})), False
        except (SweepError, OSError, RecursionError) as error:
            text, is_error = str(error), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def serve() -> None:
        server = Server("sweep", version=__version__, on_list_tools=tools, on_call_tool=call)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
