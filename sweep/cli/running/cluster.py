"""Which machines the trials of a command run on: its options, and what a spec file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sweep import checks
from sweep.accelerators.inventory import OF_CLUSTER, OF_ENGINE, engine_with
from sweep.cli.ranges import put
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError

_KEYS = (*OF_CLUSTER, "runtime_env")
_TEXTS = (
    "accelerator_type",
    "sbatch",
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


class _Engine(click.Choice[str]):
    """A name, or MODULE:NAME."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if ":" in str(value) else super().convert(value, parameter, ctx)


_OPTIONS = (
    click.option(
        "--engine",
        type=_Engine(["local", *OF_ENGINE]),
        metavar="NAME",
        help=f"local, {', '.join(OF_ENGINE)}, or MODULE:NAME, a cluster of your own.",
    ),
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
) -> dict[str, Any]:
    """Have the sweeps of this process run on a cluster, if one is asked for; options win over a spec file.

    Args:
        engine, address, hosts, cluster: the options of a command.
        of_spec: what a spec file has under `cluster`.

    Returns:
        The arguments of `sweep.run` that say so, where `sweep.init` cannot.
    """
    is_own = ":" in (engine or "")
    for name, given in (("--address", address), ("--hosts", hosts), ("--cluster", cluster)):
        if given and (engine == "local" or is_own):
            raise ConfigError(f"{name} is of a cluster. Give --engine ray, agents or slurm, or leave it out.")
    if engine is not None and is_own:
        return {"engine": _made(engine)}
    given = {**of_spec, **cluster, **({"address": address} if address else {})}
    if hosts:
        given["hosts"] = [host.strip() for host in hosts.split(",") if host.strip()]
    if engine != "local" and (engine or given):
        import sweep

        sweep.init(**{"engine": engine or engine_with(given), **given})
    return {}


def _made(text: str) -> Any:
    """Return what MODULE:NAME, or FILE.py:NAME, is or makes."""
    from sweep.engines.base import Engine
    from sweep.engines.cluster.agents import Cluster
    from sweep.launch.target import import_named

    found = import_named(text)
    if not isinstance(found, (Cluster, Engine)) and callable(found):
        try:
            found = found()
        except Exception as error:  # the user's own code
            raise ConfigError(f"--engine {text} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(found, (Cluster, Engine)):
        raise ConfigError(
            f"--engine {text} is a {type(found).__name__}; expected a sweep.Cluster, or what makes one without "
            "arguments."
        )
    return found
