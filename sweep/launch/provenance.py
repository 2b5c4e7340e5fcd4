"""Where an experiment comes from: the command that started it, the machine, the versions of what it imported."""

from __future__ import annotations

import os
import platform
import shlex
import sys

from sweep.core.values import sound_text

_MAX_COMMAND = 4096
_NOTEBOOK = ("ipykernel_launcher.py", "colab_kernel_launcher.py")
_PACKAGES = (
    *("sweep", "torch", "jax", "tensorflow", "keras", "lightning", "transformers", "sklearn", "xgboost", "lightgbm"),
    *("numpy", "pandas", "optuna", "hyperopt", "multiprocess"),
)


def command_line() -> str:
    """Return what was typed to start this process, at most 4,096 characters; `a notebook`, `a prompt`."""
    script, *arguments = sys.argv or [""]
    name = os.path.basename(script)
    if name in _NOTEBOOK or "ipykernel" in sys.modules:
        return "a notebook"
    if name in ("", "-"):
        return "a prompt"
    if name == "-c":
        return "python -c ..."
    if name == "__main__.py":  # python -m package
        return sound_text(shlex.join([*map(str, sys.orig_argv)]).replace(sys.executable, "python", 1))[:_MAX_COMMAND]
    program = ["python", script] if name.endswith(".py") or not os.access(script, os.X_OK) else [name]
    return sound_text(shlex.join([*program, *arguments]))[:_MAX_COMMAND]


def machine() -> dict[str, str]:
    """Return the host's name, its operating system and its kind of processor."""
    return {"host": platform.node(), "system": f"{platform.system()} {platform.release()}", "cpu": platform.machine()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the well-known packages that this process has imported: none is for this."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = sound_text(version)
    return found
