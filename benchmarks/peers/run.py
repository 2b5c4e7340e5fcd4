"""Measures sweep beside its peers and beside what the machine can do, in one run: `make bench`, `make bench-quick`.

Each program is a process of its own; in every round ours and the peers' alternate. What fails is a cell of the table
that says why. A complete run writes benchmarks/RESULTS.md after each round; others print their table.

    python benchmarks/peers/run.py                      three rounds of everything, some 20 minutes
    python benchmarks/peers/run.py --rows asha,resume   only these rows
    python benchmarks/peers/run.py --smoke --rounds 1   every program with next to nothing to do
    python benchmarks/peers/run.py --quick              only ours, short, with this interpreter: below two minutes
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import environment
import table
from rows import FLOOR_SCRIPTS, OURS, ROWS, TOOLS, Program, Row

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "RESULTS.md"
_PACKAGES = ("ray", "optuna", "syne-tune", "torch", "jax", "numpy")
_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_GRACE_S = 10.0  # between asking a program that takes too long to end and killing it


class Failed(Exception):
    """A program did not print its figures; the message says why."""


class TookTooLong(Failed):
    """It was ended for its time, so that it is not tried again."""


class Runner:
    """Runs programs with one interpreter.

    Args:
        python: the interpreter.
        scratch: a directory of ours, in which each program gets one of its own. Nothing there is deleted before the
            end: ext4 does not give a number of a deleted file to a new one for a minute, and creating files, which is
            a part of what is measured, searches past all of them.
    """

    def __init__(self, python: str, scratch: Path) -> None:
        self._python, self._scratch = python, scratch

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that there are."""
        command = [self._python, "-c", _VERSIONS, *_PACKAGES]
        return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))

    def figures(self, script: str, arguments: Sequence[object], timeout_s: float = 180.0) -> dict[str, float]:
        """Return what a script below this directory prints in its last line, and how long its process took.

        Raises:
            Failed: it ended with an error.
            TookTooLong: it took longer than `timeout_s`.
        """
        place = Path(tempfile.mkdtemp(prefix="b", dir=self._scratch))
        (place / "files").mkdir()
        command = [self._python, str(HERE / script), str(place / "files"), *map(str, arguments)]
        # Into files: a pipe would stay open for as long as anything that the program started.
        with open(place / "out", "w") as out, open(place / "err", "w") as err:
            began = time.perf_counter()
            code = _wait(command, out, err, self._environment(place), place, timeout_s)
            process_s = time.perf_counter() - began
        if code is None:
            raise TookTooLong(f"it took longer than {timeout_s:.0f} s")
        printed = (place / "out").read_text(errors="replace").splitlines()
        if code or not printed:
            raise Failed(_last_line((place / "err").read_text(errors="replace")) or f"it ended with {code}")
        return {"process_s": process_s, **json.loads(printed[-1])}

    def _environment(self, place: Path) -> dict[str, str]:
        # Everything is compiled, as it is where it was installed; a checkout is not by itself.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "PYTHONPATH": str(environment.ROOT),
            "SWEEP_CLAIMS": str(place / "claims"),  # what other sweeps of this machine hold does not count
            "RAY_TMPDIR": str(place),  # with names of sockets that are near to what a system allows: keep it short
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AIR_NEW_OUTPUT": "0",
        }


def _wait(
    command: list[str], out: Any, err: Any, variables: Mapping[str, str], place: Path, timeout_s: float
) -> int | None:
    """Run a command in a process group of its own and return its exit status; None when it was ended for its time."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables, cwd=place, start_new_session=True
    )
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:  # it took too long, or this run is interrupted
            os.killpg(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _last_line(errors: str) -> str:
    """Return the last line that says something, at most 200 characters of it."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def missing(program: Program, versions: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """Return why a program cannot run: what is not installed, and why not when that is known; empty when it can."""
    for package in (TOOLS[program.tool][1], program.package):
        if package and package not in versions:
            reason = next((why for line, why in reasons.items() if line.startswith(package)), "")
            return f"{package} is not installed" + (f": {reason}" if reason else "")
    return ""


def measure_floors(runner: Runner, versions: Mapping[str, str], is_short: bool) -> tuple[dict[str, float], list[str]]:
    """Return what the machine can do, without what needs a package that is not there, and what failed."""
    found: dict[str, float] = {}
    broken = []
    for script, (full, short, package) in FLOOR_SCRIPTS.items():
        if not package or package in versions:
            try:
                found |= runner.figures(script, short if is_short else full)
            except Failed as error:
                broken.append(f"{script} failed: {error}")
    found.pop("process_s", None)
    return found, broken


def measure(
    runner: Runner, programs: Sequence[tuple[Row, Program]], rows: Mapping[str, Any], is_short: bool
) -> list[str]:
    """Run every program once more and add what it printed, or why it did not; return which of ours failed.

    What is not installed or took too long before is left out.
    """
    broken = []
    for row, program in programs:
        found = rows[row.name][program.tool]
        if found["is_over"]:
            continue
        arguments = program.short if is_short else program.full
        times = min(program.repeats, 3) if is_short else program.repeats
        print(f"  {row.name} with {TOOLS[program.tool][0]}: ", end="", flush=True)
        try:
            runs = [runner.figures(row.script(program), arguments, program.timeout_s) for _ in range(times)]
        except Failed as error:
            found |= {"failure": str(error), "is_over": isinstance(error, TookTooLong)}
            print(f"failed: {error}", flush=True)
            if program.tool == OURS:
                broken.append(f"{row.script(program)} failed: {error}")
        else:
            figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            found["figures"].append(figures)
            print(", ".join(f"{key} {value:.4g}" for key, value in figures.items()), flush=True)
    return broken


def heading(versions: Mapping[str, str], rounds: int, is_short: bool, commit: str) -> list[str]:
    """Return what the figures were measured with and on."""
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    short = " **Shortened to see whether everything works: the figures say little.**" if is_short else ""
    return [
        f"{when}, commit {commit}, {rounds} {'round' if rounds == 1 else 'rounds'}.{short} {os.cpu_count()} CPUs "
        f"({platform.machine()}), kernel {platform.release()}, load {os.getloadavg()[0]:.1f} at the beginning.",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {packages}.",
    ]


def _commit() -> str:
    command = ["git", "-C", str(environment.ROOT), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def chosen_rows(names: str, *, is_long: bool) -> list[Row]:
    """Return the rows that are named, separated by commas; of no names all but the long ones.

    Raises:
        SystemExit: there is no row of that name.
    """
    if not names:
        return [row for row in ROWS if is_long or not row.is_long]
    known = {row.name: row for row in ROWS}
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no row is called {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="A,B", help=f"of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--rounds", type=int, default=3, help="3 unless told; the median counts")
    parser.add_argument("--smoke", action="store_true", help="next to nothing to do for every program")
    parser.add_argument("--quick", action="store_true", help="only ours, as short, with this interpreter, one round")
    parser.add_argument("--long", action="store_true", help="the rows that take minutes, too")
    parser.add_argument("--output", type=Path, help="where the table goes; RESULTS.md when nothing is left out")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    return given


def main() -> int:
    """Measure and return the exit status: 1 when a program of ours has failed."""
    given = parsed()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what runs is ended
    rounds, is_short = 1 if given.quick else given.rounds, given.smoke or given.quick
    chosen = chosen_rows(given.rows, is_long=given.long)
    output = given.output or (None if is_short or given.rows else RESULTS)
    python, reasons = (sys.executable, {}) if given.quick else environment.build()
    # The path is short because of the sockets that Ray keeps in it.
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("SWEEP_BENCH_DIR")))
    try:
        for package in ("sweep", "searchers"):
            subprocess.run([str(python), "-m", "compileall", "-q", str(environment.ROOT / package)], check=True)
        runner = Runner(str(python), scratch)
        versions = runner.versions()
        recorded: dict[str, Any] = {"heading": heading(versions, rounds, is_short, _commit()), "floors": [], "rows": {}}
        print("\n".join(recorded["heading"]), flush=True)
        every = [(row, program) for row in chosen for program in row.programs]
        programs = [(row, program) for row, program in every if program.tool == OURS or not given.quick]
        for row, program in programs:
            absent = missing(program, versions, reasons)
            says = program.says.format(*(program.short if is_short else program.full))
            found = {"figures": [], "failure": absent, "is_over": bool(absent), "says": says}
            recorded["rows"].setdefault(row.name, {})[program.tool] = found
        broken: list[str] = []
        began = time.perf_counter()
        for number in range(1, rounds + 1):
            print(f"round {number} of {rounds}, after {(time.perf_counter() - began) / 60:.1f} minutes", flush=True)
            floors, failed = measure_floors(runner, versions, is_short)
            recorded["floors"].append(floors)
            broken += failed + measure(runner, programs, recorded["rows"], is_short)
            if output:
                output.write_text(table.markdown(recorded))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(table.text(recorded) if given.quick else f"written to {output}" if output else table.markdown(recorded))
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
