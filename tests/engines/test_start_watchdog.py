"""What does nothing at all, and what only takes long."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from conformance.driving import play
from conformance.engines import collect, context, has_released, trial

from sweep.core.messages import ExitKind, Kill, Start
from sweep.engines.local import watchdogs
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.supervisors import Attempt, Slot
from sweep.engines.local.watchdogs import Watchdogs, processor_s
from sweep.engines.loop import Loop
from sweep.worker.session import report


@pytest.mark.parametrize(
    ("used", "looks"),
    [
        ([10.0 * look for look in range(20)], None),  # it computes, however late it reports
        ([3.0] * 7, 2),
        ([0.0, 1.0, 2.0, 3.0, 3.05, 3.1], 5),  # a thread that looks for something now and then
        ([3.0, None, 3.0, None, 3.0, None], None),  # it has reported meanwhile
    ],
)
def test_what_has_used_no_processor_from_one_look_to_the_next_hangs(monkeypatch, used, looks):
    slot = Slot(1, None, None, pid=1, link=object())
    attempt = Attempt(1, trial(0), slot=slot)
    left, said = list(used), []

    def use(pid):
        return left[0]

    monkeypatch.setattr(watchdogs, "processor_s", use)
    with closing(Loop()) as loop:
        monkeypatch.setattr(loop, "alarm", lambda after_s, action: None)
        watch = Watchdogs(loop, {attempt.key: attempt}, kill=None, say=said.append)
        watch.begin(1, ["threaded"])
        for number in range(2, len(used) + 1):
            del left[0]
            attempt.has_reported = left[0] is None
            if not said:
                watch._look_at_starts()
                assert bool(said) == (number == looks)
    assert bool(said) == (looks is not None)


def test_the_processor_time_is_that_of_the_whole_tree():
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {inner!r}]); p.wait()"
    inner = "import time\nwhile time.process_time() < 0.3: pass\nprint('used', flush=True)\ninput()"
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(inner=inner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"used\n"
        assert processor_s(process.pid) >= 0.25  # the kernel's count is rounded
        process.communicate(b"\n")
    assert processor_s(process.pid) == 0.0


THREADED = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"


def test_threads_of_an_import_are_no_news_while_trials_go_on(tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text(THREADED)
    monkeypatch.syspath_prepend(tmp_path)
    story = play(tmp_path / "exp", lambda config: 1, [trial(0), trial(1)], preload=["threaded"])
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED] * 2
    assert story.notices == []


def test_threads_of_an_import_are_named_when_a_trial_hangs(tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text(THREADED)
    monkeypatch.syspath_prepend(tmp_path)
    os.mkfifo(tmp_path / "never")
    gate = str(tmp_path / "never")
    said: list[str] = []

    def train(config):
        Path(gate).read_text()

    given = context(tmp_path / "exp", train, preload=["threaded"], notice=said.append)
    with closing(LocalEngine(given, hang_s=0.3)) as engine:
        engine.execute(Start(trial(7)))
        while not said:
            engine.next_events(engine.now() + 0.05)
        engine.execute(Kill("abcde_00007", 1))
        collect(engine, has_released(1))
    (notice,) = said
    assert notice.startswith("trial 00007 has neither reported nor computed for 0.3 s, and importing threaded")
    assert notice.endswith("started threads (1), whose locks it may wait for; if it hangs, use start_method='spawn'")
    assert engine.notices == []


def test_a_trial_that_waits_after_its_first_report_does_not_hang(tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text(THREADED)
    monkeypatch.syspath_prepend(tmp_path)

    def train(config):
        report({"loss": 1.0})

    with closing(LocalEngine(context(tmp_path / "exp", train, preload=["threaded"]), hang_s=0.1)) as engine:
        engine.execute(Start(trial()))
        collect(engine, lambda seen: any(hasattr(event, "metrics") for event in seen), answer=None)
        for _ in range(10):  # nobody answers its report
            engine.next_events(engine.now() + 0.05)
        assert engine.notices == []
