"""Which machines the trials of a command run on: its options, and what a spec file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sweep import checks
from sweep.accelerators.inventory import OF_CLUSTER
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
    click.option("--engine", type=click.Choice(["local", "ray"]), help="ray: on the nodes of a cluster of Ray."),
    click.option("--address", help="Of the cluster of Ray: HOST:PORT, or auto: the one that this machine belongs to."),
    click.option(
        "--cluster", metavar="KEY=VALUE", multiple=True, callback=_pairs, help=f"What to use of it: {', '.join(_KEYS)}."
    ),
)


def cluster_options(command: Any) -> Any:
    """Give a command the options that `join` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def join(engine: str | None, address: str | None, cluster: Mapping[str, Any], of_spec: Mapping[str, Any]) -> None:
    """Have the sweeps of this process run on a cluster, if one is asked for; options win over a spec file.

    Args:
        engine, address, cluster: the options of a command.
        of_spec: what a spec file has under `cluster`.
    """
    for name, given in (("--address", address), ("--cluster", cluster)):
        if engine == "local" and given:
            raise ConfigError(f"{name} is of a cluster of Ray. Give --engine ray, or leave it out.")
    if engine == "ray" or (engine is None and (address or cluster or of_spec)):
        import sweep

        sweep.init(engine="ray", **{**of_spec, **cluster, **({"address": address} if address else {})})
