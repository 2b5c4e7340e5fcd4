"""An import goes on where the kernel allows no thread to watch it."""

from __future__ import annotations

import os
import threading

import pytest

from sweep.engines.local.fork_server import watched


def test_without_a_thread_for_the_watch_the_import_goes_on(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImportError), watched(0, 0):
        raise ImportError
    assert len(os.listdir("/proc/self/fd")) == before
