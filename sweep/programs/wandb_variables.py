"""The variables by which a trial's `wandb.init()` takes the trial's values, and needs no account."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def prepare_wandb(
    environ: MutableMapping[str, str], config: Mapping[str, Any], directory: str, name: str, group: str, home: str
) -> None:
    """Set what W&B reads at `wandb.init()` in a trial.

    `wandb.config` has the trial's values; they win over those that the program gives, as under W&B's own agent. Without
    an account, and unless the user has set a mode, W&B runs offline and leaves files that `wandb sync` uploads. Then it
    prints less, since its summary looks like metrics, and does not list the installed packages. Offline takes 0.2 s of
    CPU time more than `disabled`; a process that has imported `wandb.sdk.launch` beforehand saves most of it.

    Args:
        environ: variables of the trial; what the user has set in this process's own is left as it is.
        directory: of the trial; W&B's files go below it, unless the user has chosen a place.
        name: of the run. group: the sweep.
        home: where the program lies: W&B names a project after that place in a git repository, and would take the
            trial's directory for it.
    """
    path = os.path.join(directory, "wandb-sweep-params.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{_yaml(key)}: {{value: {_yaml(value)}}}\n" for key, value in config.items())
    environ["WANDB_SWEEP_PARAM_PATH"] = path
    known = {**os.environ, **environ}
    defaults = {"WANDB_RUN_GROUP": group, "WANDB_NAME": name}
    local = _text("wandb/settings")
    if not local:  # W&B looks for it below WANDB_DIR
        defaults["WANDB_DIR"] = directory
    settings = local + _text(os.path.join(known.get("WANDB_CONFIG_DIR", "~/.config/wandb"), "settings"))
    if "project" not in settings:
        defaults["WANDB_PROJECT"] = _project(home)
    host = urlsplit(known.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    is_set = any(known.get(key) for key in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))
    is_set = is_set or "mode" in settings or "api_key" in settings or host in _text(known.get("NETRC", "~/.netrc"))
    if not is_set:
        defaults |= {"WANDB_MODE": "offline", "WANDB_QUIET": "true", "WANDB_X_SAVE_REQUIREMENTS": "false"}
    environ.update((key, value) for key, value in defaults.items() if value and not known.get(key))


def _project(home: str) -> str:
    """Return the project that W&B names after a directory of a git repository; empty: it is in none."""
    for root in (path := Path(os.path.abspath(home)), *path.parents):
        if (root / ".git").exists():
            return "-".join(filter(None, (root.name, "_".join(path.relative_to(root).parts))))
    return ""


def _text(path: str) -> str:
    """Return what is in a file; nothing if it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _yaml(value: Any) -> str:
    """JSON, but for its floats: YAML takes 1e-05 for a text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(str(key))}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return f"!!float '{float(value)}'" if isinstance(value, float) else json.dumps(value, default=str)
