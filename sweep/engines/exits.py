"""How an attempt ended: from its worker's last message and from what the kernel says of its process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from sweep.accelerators.host import control_groups
from sweep.core.messages import Exit, ExitKind, Kill
from sweep.core.resources import Resources, format_bytes
from sweep.core.trial import Outcome

_ADVICE: Mapping[int, str] = {
    signal.SIGSEGV: "it crashed in compiled code; the trial's output shows where",
    signal.SIGABRT: "compiled code gave up; the trial's output may say why",
    signal.SIGBUS: "it crashed in compiled code, or a file that it had mapped was cut",
    signal.SIGFPE: "it crashed in compiled code; the trial's output shows where",
    signal.SIGILL: "compiled code used an instruction that this processor lacks",
    signal.SIGKILL: "somebody killed it from outside, or the machine ran out of memory",
}


def classify(
    outcome: Outcome | None,
    status: int | None,
    *,
    peak_rss_bytes: int = 0,
    kill: Kill | None = None,
    has_oom_kill: bool = False,
    supervisor: int | None = None,
) -> Exit:
    """Return how an attempt ended.

    Args:
        outcome: the worker's last word, None when there was none. It counts before everything else: the user's code had
            returned or raised by then.
        status: wait status of the worker; None: not known, because its supervisor was lost.
        kill: the command that was carried out.
        has_oom_kill: the kernel's count of processes killed for memory rose meanwhile.
        supervisor: wait status of a lost supervisor; None: not known, because the fork server is gone as well.
    """
    if outcome is not None:
        kind, error, traceback, class_name, pickled, needs = outcome
        try:
            request = None if needs is None else Resources.from_json(needs)
            as_said = ExitKind(kind)
        except Exception as problem:  # user code can write into the worker's socket
            return Exit(ExitKind.FAILED, f"its last word cannot be understood: {problem!r}")
        return Exit(as_said, error, traceback, class_name, pickled, peak_rss_bytes=peak_rss_bytes, needs=request)
    if kill is not None:
        return Exit(kill.kind, error=kill.reason or "killed", signal=int(signal.SIGKILL), peak_rss_bytes=peak_rss_bytes)
    if status is None:
        how = "is gone, and so is the fork server"
        if supervisor is not None and os.WIFSIGNALED(supervisor):
            how = f"was {describe_signal(os.WTERMSIG(supervisor))}"
        elif supervisor is not None:
            how = f"ended (exit code {os.waitstatus_to_exitcode(supervisor)}), and code/fork-server.log may say why"
        return Exit(ExitKind.LOST, error=f"the process that supervised it {how}; what it ran was ended")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and has_oom_kill:
            peak = f"; it held up to {format_bytes(peak_rss_bytes)}" if peak_rss_bytes else ""
            return Exit(
                ExitKind.OUT_OF_MEMORY,
                error=f"the machine ran out of memory and the kernel killed it{peak}. Run fewer trials at a time "
                "(max_concurrent_trials), or ask for memory in resources_per_trial",
                signal=number,
                peak_rss_bytes=peak_rss_bytes,
            )
        return Exit(ExitKind.KILLED, error=describe_signal(number), signal=number, peak_rss_bytes=peak_rss_bytes)
    code = os.waitstatus_to_exitcode(status)
    return Exit(
        ExitKind.KILLED,
        error=f"it ended without returning (exit code {code}); something called os._exit",
        peak_rss_bytes=peak_rss_bytes,
    )


def unstarted(kill: Kill | None) -> Exit:
    """Return how an attempt ended that was to end, by a Kill or a Stop, before it had started."""
    if kill is None:
        return Exit(ExitKind.STOPPED, error="stopped before it started")
    return classify(None, None, kill=kill)


def describe_signal(number: int) -> str:
    """Return a line for people: `killed by SIGSEGV: it crashed in compiled code; ...`."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    advice = _ADVICE.get(number)
    return f"killed by {name}" + (f": {advice}" if advice else "")


def num_oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has killed for memory so far; what rises counts, since levels count again.

    Args:
        root: where `proc` and `sys` lie; another one in tests.
    """
    files = [root / "proc/vmstat"]
    for group in control_groups("memory", root):
        files += [group / "memory.events", group / "memory.oom_control"]
    total = 0
    for file in files:
        with contextlib.suppress(OSError):  # there is none
            total += sum(map(int, re.findall(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE)))
    return total
