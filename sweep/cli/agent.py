"""`sweep agent`: give this machine to a sweep that runs elsewhere, or on it."""

from __future__ import annotations

from dataclasses import replace

import click

from sweep.accelerators import inventory
from sweep.cli.arguments import parse_seconds
from sweep.cli.options import name_argument, where_option
from sweep.cli.running.carrying import note
from sweep.core.resources import Node
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.storage.filesystems import storage_of


@click.command(short_help="Give this machine to a sweep that runs.")
@click.argument("action", metavar="join", type=click.Choice(["join"]))
@name_argument
@click.option("--cpus", type=click.FloatRange(min=0), help="CPUs to give.  [default: all that this process may use]")
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs to give, the first ones.  [default: all]")
@click.option("--wait", metavar="SPAN", default="10m", help="How long to wait for a driver.  [default: 10m]")
@where_option
def agent(action: str, reader: ExperimentReader, cpus: float | None, gpus: int | None, wait: str) -> int:
    """Give this machine to the sweep NAME, which runs with --engine agents, on any machine that sees its directory.

    Ctrl-C or SIGTERM once: it leaves when its trials have saved, which go on elsewhere. Twice: they are ended. If the
    driver dies, this machine waits for `sweep resume NAME --engine agents`.

    \b
    Examples:
      sweep agent join /shared/sweeps/digits
      sweep agent join digits --cpus 8 --gpus 1
    """
    from sweep.engines.cluster.join import Joining

    if home := storage_of(reader.root):
        raise ConfigError(f"{reader.name} lies in {home}: machines join where they see the directory of a sweep.")
    return Joining(reader.root.absolute(), _given(cpus, gpus), note).run(parse_seconds(wait))


def _given(cpus: float | None, gpus: int | None) -> Node:
    """Return what this machine has, or as much of it as is given."""
    (node,) = inventory.detected()
    if cpus is not None:
        node = replace(node, cpus=cpus)
    if gpus is not None:
        found = [device for device in node.devices if device.kind == "gpu"]
        if gpus > len(found):
            raise ConfigError(f"--gpus {gpus}: this machine has {len(found)}.")
        rest = [device for device in node.devices if device.kind != "gpu"]
        node = replace(node, devices=(*found[:gpus], *rest))
    return node
