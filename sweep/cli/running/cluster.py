"""Which machines the trials of a command run on: its options, and what a spec file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sweep import checks
from sweep.accelerators.inventory import OF_CLUSTER, OF_ONE_ENGINE
from sweep.cli.ranges import put
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError

_KEYS = (*OF_CLUSTER, "runtime_env")
_TEXTS = (
    "accelerator_type",
    "label_selector.",
    "runtime_env.env_vars.",
)  # whose values are texts, whatever they look like


def cluster_of(value: Any) -> dict[str, Any]:
    """Return what a spec file says of a cluster, for `join`."""
    if not isinstance(value, Mapping):
        checks.refuse("", value, "keys with values, such as {address: auto, max_nodes: 4}")
    for key in value:
        checks.one_of("a key", key, ("address", *_KEYS))
    return {"cluster": dict(value)}


def _pairs(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    cluster: dict[str, Any] = {}
    for text in given:
        key, is_pair, value = text.partition("=")
        if not is_pair:
            raise ConfigError(f"--cluster {text}: expected KEY=VALUE, such as max_nodes=4.")
        checks.one_of("--cluster: the key", key.partition(".")[0], _KEYS)
        put(cluster, key, value if key.startswith(_TEXTS) else parse_literal(value))
    return cluster


_OPTIONS = (
    click.option("--engine", type=click.Choice(["local", *OF_ONE_ENGINE]), help="ray, agents: on several machines."),
    click.option("--address", help="Of the cluster of Ray: HOST:PORT, or auto: the one that this machine belongs to."),
    click.option("--hosts", metavar="HOST,HOST", help="Start agents on these machines, too, by ssh."),
    click.option(
        "--cluster", metavar="KEY=VALUE", multiple=True, callback=_pairs, help=f"What to use of it: {', '.join(_KEYS)}."
    ),
)


def cluster_options(command: Any) -> Any:
    """Give a command the options that `join` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def join(
    engine: str | None,
    address: str | None,
    hosts: str | None,
    cluster: Mapping[str, Any],
    of_spec: Mapping[str, Any],
) -> None:
    """Have the sweeps of this process run on a cluster, if one is asked for; options win over a spec file.

    Args:
        engine, address, hosts, cluster: the options of a command.
        of_spec: what a spec file has under `cluster`.
    """
    for name, given in (("--address", address), ("--hosts", hosts), ("--cluster", cluster)):
        if engine == "local" and given:
            raise ConfigError(f"{name} is of a cluster. Give --engine ray or agents, or leave it out.")
    given = {**of_spec, **cluster, **({"address": address} if address else {})}
    if hosts:
        given["hosts"] = [host.strip() for host in hosts.split(",") if host.strip()]
    if engine != "local" and (engine or given):
        import sweep

        of_agents = given.keys() & OF_ONE_ENGINE["agents"]
        sweep.init(**{"engine": engine or ("agents" if of_agents else "ray"), **given})
