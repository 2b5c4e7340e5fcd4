"""Callbacks named in the environment: `SWEEP_CALLBACKS="package.module.Class,other.Class"`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from sweep.callbacks.base import Callback
from sweep.errors import ConfigError
from sweep.record.importing import importing

_VARIABLES = ("SWEEP_CALLBACKS", "RAY_TUNE_CALLBACKS")


def callbacks_from(environ: Mapping[str, str]) -> list[Callback]:
    """Return an object of every class that the environment names, made without arguments.

    Raises:
        ConfigError: a name is no path of a class, or its class is no callback (a ValueError).
    """
    variable = next((name for name in _VARIABLES if environ.get(name)), "")
    return [_made(variable, path.strip()) for path in environ.get(variable, "").split(",") if path.strip()]


def _made(variable: str, path: str) -> Callback:
    module, _, name = path.rpartition(".")
    try:
        with importing():
            found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{variable} names {path!r}, which cannot be imported: {error}. Expected module.Class."
        ) from error
    if not isinstance(found, type) or not issubclass(found, Callback):
        raise ConfigError(f"{variable} names {path!r}, which is {found!r:.100}; expected a subclass of sweep.Callback.")
    return found()
