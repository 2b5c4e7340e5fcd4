"""Imports by this package end a module where it starts a sweep; imports of others go on as ever."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
import threading
import zipfile
from importlib.machinery import SourceFileLoader

import pytest

from sweep.record.importing import (
    DriverCalled,
    end_module,
    ended_at,
    importing,
    is_reached,
    load_file,
    unpickle,
    why_missing,
)

STARTS = "from sweep.record.importing import end_module\nabove = 1\nend_module('sweep.run')\nbelow = 2\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory that modules are imported from, and forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_ends_where_it_starts_a_sweep_and_stays(place):
    (place / "ends.py").write_text(STARTS)
    with importing():
        module = importlib.import_module("ends")
    assert module.above == 1
    assert not hasattr(module, "below")
    assert sys.modules["ends"] is module
    call = ended_at("ends")
    assert str(call) == "ends.py, line 3, starts a sweep: \"end_module('sweep.run')\""
    assert inspect.getsource(module) == STARTS
    assert inspect.getsourcefile(module) == str(place / "ends.py")


def test_an_import_of_others_goes_on_and_what_is_above_its_first_call_is_known(place):
    (place / "goes_on.py").write_text(STARTS)
    module = importlib.import_module("goes_on")
    assert module.below == 2
    assert ended_at("goes_on") is None
    assert is_reached("goes_on", "above.inner")
    assert not is_reached("goes_on", "below")
    assert is_reached("json", "whatever")


def test_only_the_innermost_module_ends(place):
    (place / "pack").mkdir()
    (place / "pack" / "__init__.py").write_text("from pack import inner\nafter = 1\n")
    (place / "pack" / "inner.py").write_text(STARTS)
    with importing():
        module = importlib.import_module("pack")
    assert module.after == 1
    assert module.inner.above == 1
    assert ended_at("pack") is None
    assert ended_at("pack.inner").line == 3


def test_a_module_of_an_archive_ends_with_the_one_that_imports_it(place, monkeypatch):
    with zipfile.ZipFile(place / "zipped.zip", "w") as archive:
        archive.writestr("zipped.py", STARTS)
    monkeypatch.syspath_prepend(str(place / "zipped.zip"))
    (place / "outer.py").write_text("before = 1\nimport zipped\nafter = 2\n")
    with importing():
        module = importlib.import_module("outer")
        with pytest.raises(DriverCalled):
            importlib.import_module("zipped")
    assert module.before == 1
    assert not hasattr(module, "after")


def test_a_file_is_loaded_under_another_name_up_to_its_sweep_and_forgotten_when_it_fails(place):
    (place / "some file.py").write_text(STARTS)
    assert load_file("under_another_name", place / "some file.py").above == 1
    (place / "fails.py").write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_file("failing", place / "fails.py")
    assert "failing" not in sys.modules


def test_nothing_is_left_in_the_import_system(place):
    before = SourceFileLoader.exec_module
    with importing():
        with pytest.raises(ZeroDivisionError), importing():
            raise ZeroDivisionError
        assert SourceFileLoader.exec_module is not before
    assert SourceFileLoader.exec_module is before
    end_module("sweep.run")


def test_a_thread_that_was_there_before_is_not_concerned_and_one_that_is_started_meanwhile_stays_concerned():
    said = {}

    def call(name, wait_for):
        wait_for.wait(30)
        try:
            end_module("sweep.run")
            said[name] = "may"
        except DriverCalled:
            said[name] = "may not"

    is_open, is_closed = threading.Event(), threading.Event()
    threads = [threading.Thread(target=call, args=("before", is_open))]
    threads[0].start()
    with importing():
        threads.append(threading.Thread(target=call, args=("meanwhile", is_open)))
        threads.append(threading.Thread(target=call, args=("late", is_closed)))
        for thread in threads[1:]:
            thread.start()
        is_open.set()
        for thread in threads[:2]:
            thread.join()
    threads.append(threading.Thread(target=call, args=("after", is_closed)))
    threads[-1].start()
    is_closed.set()
    for thread in threads:
        thread.join()
    assert said == {"before": "may", "meanwhile": "may not", "late": "may not", "after": "may"}


def test_what_stands_below_the_call_is_said_to_be_missing_with_its_line(place):
    (place / "pickled.py").write_text(
        STARTS.replace("above = 1", "class Above:\n    pass") + "class Below:\n    pass\n"
    )
    module = importlib.import_module("pickled")
    above, below = pickle.dumps(module.Above()), pickle.dumps(module.Below())
    del sys.modules["pickled"]
    assert type(unpickle(above)).__name__ == "Above"
    with pytest.raises(AttributeError, match=r"Below.*pickled\.py, line 4, starts a sweep.*above that line"):
        unpickle(below)
    (place / "names.py").write_text("from pickled import Below\n")
    with pytest.raises(ImportError) as found:
        importlib.import_module("names")
    assert "pickled.py, line 4" in why_missing(found.value)
    assert why_missing(NameError("x")) == why_missing(KeyError("pickled")) == why_missing(None) == ""
