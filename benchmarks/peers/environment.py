"""The Python environment of `make bench`: what sweep is compared with, and what sweep itself needs.

It is built once and kept outside of the repository: where `SWEEP_BENCH_ENVIRONMENT` says, else in the user's cache. The
checkout is not installed into it, so that several may share it; programs find theirs by `PYTHONPATH`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_CONSTRAINTS = ROOT / "constraints.txt"


def directory() -> Path:
    """Return where the environment is, or would be built."""
    if named := os.environ.get("SWEEP_BENCH_ENVIRONMENT"):
        return Path(named).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sweep-engine" / f"bench-cp{sys.version_info.major}{sys.version_info.minor}"


def requirements() -> list[str]:
    """Return the lines of `requirements.txt` that name something."""
    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines())
    return [line for line in lines if line]


def build() -> tuple[Path, dict[str, str]]:
    """Return the environment's interpreter, and by requirement why it could not be installed.

    Takes minutes and the network once; afterwards only what failed is tried again.

    Raises:
        SystemExit: not even what sweep needs can be installed, or the directory holds something else.
    """
    where = directory()
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{where.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two `make` at once build one
        return _build(where)


def _build(where: Path) -> tuple[Path, dict[str, str]]:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = requirements()
    key = hashlib.sha256("\n".join([*ours, *wanted, _CONSTRAINTS.read_text(), sys.version]).encode()).hexdigest()
    python, stamp = where / "bin" / "python", where / "installed.json"
    known = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if known.get("key") != key:
        if where.exists() and any(where.iterdir()) and not (where / "pyvenv.cfg").is_file():
            raise SystemExit(
                f"{where} holds something else than a Python environment; name an empty or a new directory"
            )
        print(f"building {where}, which takes some minutes once", flush=True)
        venv.create(where, clear=True, with_pip=True)
        if reason := _install(python, *ours):
            raise SystemExit(f"what sweep needs cannot be installed into {where}: {reason}")
        known = {"key": key, "failed": dict.fromkeys(wanted, "")}
    # One after the other, so that one that cannot be had does not cost the others.
    failed = {name: reason for name in known["failed"] if (reason := _install(python, name))}
    stamp.write_text(json.dumps({"key": key, "failed": failed}))
    return python, failed


def _install(python: Path, *names: str) -> str:
    """Install packages; return the last line of what went wrong, empty when nothing did."""
    command = [str(python), "-m", "pip", "install", "-q", "-c", str(_CONSTRAINTS), *names]
    print("+ pip install", *names, flush=True)
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    errors = [line for line in ended.stdout.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed without a word"])[-1] if ended.returncode else ""


if __name__ == "__main__":
    print(*build())
