"""How an exit is told from what is known."""

from __future__ import annotations

import pytest

from sweep.core.messages import ExitKind, Kill
from sweep.core.trial import Outcome
from sweep.engines.exits import classify, describe_signal, num_oom_kills


@pytest.mark.parametrize("outcome", [Outcome("FOO"), Outcome("NEEDS_MORE", needs={"bundles": 3})])
def test_a_last_word_that_means_nothing_is_a_failure(outcome):
    ended = classify(outcome, 0)
    assert ended.kind is ExitKind.FAILED
    assert "cannot be understood" in ended.error


@pytest.mark.parametrize(
    ("outcome", "status", "facts", "kind", "says"),
    [
        (Outcome("FINISHED"), 9, {}, ExitKind.FINISHED, ""),
        (Outcome("FAILED", "E: x", class_name="E"), 0, {"kill": Kill("a", 1)}, ExitKind.FAILED, "E: x"),
        (None, 9, {"kill": Kill("a", 1, "late")}, ExitKind.KILLED, "late"),
        (None, None, {}, ExitKind.LOST, "so is the fork server"),
        (None, None, {"supervisor": 9}, ExitKind.LOST, "supervised it was killed by SIGKILL"),
        (None, None, {"supervisor": 70 << 8}, ExitKind.LOST, "ended (exit code 70), and code/fork-server.log"),
        (None, 9, {}, ExitKind.KILLED, "SIGKILL"),
        (None, 9, {"has_oom_kill": True, "peak_rss_bytes": 1 << 30}, ExitKind.OUT_OF_MEMORY, "up to 1GiB"),
        (None, 11, {"has_oom_kill": True}, ExitKind.KILLED, "SIGSEGV"),
        (None, 3 << 8, {}, ExitKind.KILLED, "exit code 3"),
    ],
)
def test_an_exit_is_told_by_the_last_word_then_by_our_kill_then_by_the_kernel(outcome, status, facts, kind, says):
    told = classify(outcome, status, **facts)
    assert told.kind is kind
    assert says in told.error


def test_a_signal_without_a_name_is_told_by_its_number():
    assert describe_signal(50) == "killed by signal 50"


def test_the_kernels_counts_are_added_up_and_missing_ones_are_none(tmp_path):
    assert num_oom_kills(tmp_path) == 0
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("pgfault 5\noom_kill 2\n")
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/a\n0::/b\n")
    for path, text in (("memory/a/memory.oom_control", "oom_kill 3\n"), ("b/memory.events", "oom 9\noom_kill 4\n")):
        file = tmp_path / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert num_oom_kills(tmp_path) == 9
