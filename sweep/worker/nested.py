"""Whether this process belongs to a trial of a sweep that is still driven: a sweep inside a trial is refused.

The driver marks what it starts in the environment: `SWEEP_DRIVER` says which process it is, so that the mark counts
only while that process lives. What a trial leaves behind (a daemon, a batch job on another machine) may run sweeps. An
inline trial shares its process with the driver, where a variable would mark everything: there it is a context variable.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from sweep.errors import ExperimentError
from sweep.record.proc import stat_of
from sweep.worker.environment import DRIVER_VARIABLE, IMPORTER_VARIABLE, TRIAL_VARIABLE

_inline_trial: ContextVar[str] = ContextVar("sweep_inline_trial", default="")


def process_mark(pid: int) -> str:
    """Return a text that names a process for good: its number, when it started, since when the machine is up, and the
    PID namespace in which that number is its."""
    return f"{pid}.{_started_at(pid)}.{_boot()}.{namespace_of('self')}"


def is_living(mark: str) -> bool:
    """Whether the process that `process_mark` named lives, on this machine and visible from here."""
    pid = mark.partition(".")[0]
    return pid.isdecimal() and _started_at(int(pid)) != "" and mark == process_mark(int(pid))


@contextlib.contextmanager
def inside_trial(trial_id: str) -> Iterator[None]:
    """Be inside an inline trial."""
    token = _inline_trial.set(trial_id)
    try:
        yield
    finally:
        _inline_trial.reset(token)


def refuse_nested() -> None:
    """Refuse to drive a sweep in a process of a trial, or in one that was started by an import in advance.

    Raises:
        ExperimentError: this is such a process, and its driver lives.
    """
    trial = _inline_trial.get()
    if not trial and _counts(os.environ.get(DRIVER_VARIABLE)):
        trial = os.environ.get(TRIAL_VARIABLE, "")
    if trial:
        raise ExperimentError(
            f"sweep.run was called inside trial {trial}. If this is your script being run again by a child process, "
            "put the call under `if __name__ == '__main__':`; a sweep inside a trial is not supported."
        )
    if _counts(os.environ.get(IMPORTER_VARIABLE)):
        raise ExperimentError(
            "sweep.run was called in a process that a module started while a sweep imported it for its trials. Put "
            "what starts the process under `if __name__ == '__main__':`."
        )


def _counts(mark: str | None) -> bool:
    """Whether a mark is there, names another process, and that one lives."""
    process = (mark or "").partition("/")[0]
    return process != process_mark(os.getpid()) and is_living(process)


def _started_at(pid: int) -> str:
    """Return when a process started, in ticks since the machine did; empty: there is none."""
    try:
        fields = stat_of(pid)
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def is_dead(mark: str) -> bool:
    """Whether the process that `process_mark` named is gone, as far as can be told for sure: it lived on this machine,
    since this was started, and its number would be seen from here."""
    parts = mark.split(".")
    here = (_boot(), namespace_of("self"))
    return len(parts) == 4 and all(here) and (parts[2], parts[3]) == here and not is_living(mark)


def namespace_of(pid: int | str) -> str:
    """Return the number of a process's PID namespace; empty: it is gone, or somebody else's."""
    try:
        return str(os.stat(f"/proc/{pid}/ns/pid").st_ino)
    except OSError:
        return ""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""
