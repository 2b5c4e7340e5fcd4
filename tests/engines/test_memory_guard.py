"""Who is ended when a machine's memory is nearly full, and what counts as in use."""

from __future__ import annotations

import os
from contextlib import closing

from conformance.engines import trial

from sweep.core.messages import ExitKind
from sweep.engines.local import watchdogs
from sweep.engines.local.supervisors import Attempt
from sweep.engines.local.watchdogs import Watchdogs, memory_in_use, resident_bytes
from sweep.engines.loop import Loop

GIB = 1 << 30


def ended(monkeypatch, sizes, readings):
    """Return the kills where attempts have these sizes, at these readings, one after another."""
    left = list(readings)
    monkeypatch.setattr(watchdogs, "_LOOK_S", 0.0)
    monkeypatch.setattr(watchdogs, "memory_in_use", lambda: left.pop(0))
    monkeypatch.setattr(watchdogs, "resident_bytes", lambda pids: sizes[pids[0]])
    attempts = {one.key: one for one in (Attempt(n, trial(n), pids=(pid,)) for n, pid in enumerate(sizes))}
    killed = []

    def kill(attempt, command):
        attempt.kill = command
        killed.append(command)

    with closing(Loop()) as loop:
        Watchdogs(loop, attempts, kill=kill, memory_limit=0.9)
        while left:
            loop.run_once(1.0)
    return killed


def test_the_largest_is_ended_and_then_the_next_if_that_was_not_enough(monkeypatch):
    killed = ended(monkeypatch, {11: 2 * GIB, 12: 5 * GIB, 13: GIB}, [(8 * GIB, 10 * GIB), *[(19 * GIB, 20 * GIB)] * 2])
    assert [command.trial_id for command in killed] == ["abcde_00001", "abcde_00000"]
    assert killed[0].kind is ExitKind.OUT_OF_MEMORY
    said = "the machine had 19GiB of 20GiB in use, and this trial held more than the others, 5GiB. Run fewer trials"
    assert killed[0].reason.startswith(said)


def test_nobody_is_ended_where_others_fill_the_memory_or_there_is_room(monkeypatch):
    assert ended(monkeypatch, {11: GIB // 4}, [(19 * GIB, 20 * GIB)]) == []
    assert ended(monkeypatch, {11: 5 * GIB}, [(9 * GIB, 10 * GIB)]) == []
    assert ended(monkeypatch, {}, [(10 * GIB, 10 * GIB)]) == []


def test_a_container_counts_what_it_may_have_without_what_it_has_only_read(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n")
    assert memory_in_use(tmp_path) == (600 << 10, 1000 << 10)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step\n")
    place = tmp_path / "sys/fs/cgroup/job"
    (place / "step").mkdir(parents=True)
    (place / "memory.max").write_text("max\n")
    assert memory_in_use(tmp_path) == (600 << 10, 1000 << 10)
    (place / "memory.max").write_text("512000\n")
    (place / "memory.current").write_text("300000\n")
    (place / "memory.stat").write_text("anon 100\ninactive_file 50000\n")
    assert memory_in_use(tmp_path) == (600 << 10, 1000 << 10)  # the machine is fuller
    (place / "memory.current").write_text("500000\n")
    assert memory_in_use(tmp_path) == (450_000, 512_000)


def test_this_process_holds_memory_and_one_that_is_gone_holds_none():
    assert resident_bytes([os.getpid()]) > 1 << 20
    assert resident_bytes([]) == 0
    used, total = memory_in_use()
    assert 0 < used < total
