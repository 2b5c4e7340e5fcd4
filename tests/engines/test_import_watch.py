"""An import goes on where the kernel allows no process to watch it."""

from __future__ import annotations

import errno
import os

import pytest

from sweep.engines.local.fork_server import watched


@pytest.mark.parametrize("name", ["fork", "pidfd_open"])
def test_without_a_process_or_descriptor_for_the_watch_the_import_goes_on(monkeypatch, name):
    def refuse(*arguments):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setenv("SWEEP_IMPORTER", "7.8.boot.1/1")
    monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(os, "kill", lambda *arguments: pytest.fail("there is nobody to kill"))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImportError), watched(-1, -1, ()):
        raise ImportError
    assert "SWEEP_IMPORTER" not in os.environ
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_processes_are_few_the_watch_takes_none_that_the_driver_needs(monkeypatch):
    monkeypatch.setattr("sweep.engines.local.fork_server.are_processes_few", lambda: True)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a thread of the driver found no room then"))
    with watched(-1, -1, ()):
        pass
