"""Run a program where nothing that it starts can get away, and count what it leaves: processes and experiments.

As a script this is the first process of a PID namespace: it runs the program, sees who is left, and writes that down.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from orphans import MARK, marked

LIMIT_S = 60.0
GONE_S = 5.0
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Census:
    """What a program did: how it ended, what it said, which processes and how many experiments it left."""

    code: int
    out: str
    err: str
    left: tuple[str, ...]
    experiments: tuple[str, ...]


def census(directory: Path, *command: str, kill_when: Path | None = None, **variables: str) -> Census:
    """Run a command in `directory` and return what it did and left.

    Args:
        kill_when: the command is killed when this file exists.
        variables: of the environment.
    """
    answer = directory / "census.json"
    mark = f"{directory}-{time.monotonic_ns()}"
    environ = {**os.environ, **variables, "PYTHONPATH": f"{ROOT}:{directory}", MARK: mark}
    environ.pop("SWEEP_STORAGE", None)
    order = json.dumps({"command": command, "answer": str(answer), "kill_when": str(kill_when or "")})
    subprocess.run(
        [*_namespace(), sys.executable, __file__, order],
        cwd=directory,
        env=environ,
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S + 30,
    )
    found = json.loads(answer.read_text())
    results = directory / "sweep_results"
    made = sorted(path.name for path in results.iterdir()) if results.exists() else []
    return Census(found["code"], found["out"], found["err"], tuple(found["left"]), tuple(made))


@functools.cache
def _namespace() -> tuple[str, ...]:
    """Return the words before a command that make it the first process of a PID namespace; none where that is refused:
    then what is left is found by a mark in its environment."""
    for user in ((), ("--user", "--map-root-user")):
        words = ("unshare", *user, "--pid", "--fork", "--kill-child", "--mount-proc")
        try:
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
        except FileNotFoundError:
            break
    return ()


def _others() -> list[str]:
    if os.getpid() != 1:
        own = os.getpid()
        return [line for pid, line in marked(os.environ[MARK]).items() if pid != own]
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name == "1":
            continue
        try:
            if (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended just now
    return found


def _run(order: dict[str, str]) -> None:
    kill_when = Path(order["kill_when"]) if order["kill_when"] else None
    with open("census.out", "w+") as out, open("census.err", "w+") as err:
        process = subprocess.Popen(order["command"], stdout=out, stderr=err)
        give_up = time.monotonic() + LIMIT_S
        while process.poll() is None:
            if time.monotonic() > give_up or (kill_when is not None and kill_when.exists()):
                process.kill()
            time.sleep(0.01)
        give_up = time.monotonic() + GONE_S
        while (left := _others()) and time.monotonic() < give_up:
            time.sleep(0.01)
        out.seek(0)
        err.seek(0)
        answer = {"code": process.returncode, "out": out.read(), "err": err.read(), "left": left}
    Path(order["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    _run(json.loads(sys.argv[1]))
