"""The user's script, as the `__main__` of the processes that a trial starts with `spawn` or `forkserver`.

Such a process (a worker of a `DataLoader`, of `torch.multiprocessing.spawn`, of a pool) imports the program's script
again to find what it is to run. The script of a trial is the driver's, which the worker never executed: the driver
names it in a variable, the worker names a module of ours as its own `__main__`, and that module runs the script. So a
call in the script that starts a sweep ends it there, as in every import by us; a plain second run would start one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

from sweep.record.importing import DriverCalled, importing
from sweep.worker.environment import SCRIPT_VARIABLE

_SPAWNED_MAIN = "sweep.worker.spawned_main"


def script_of_driver() -> str:
    """Return the script that this process runs, as `package:path`; empty: none that can be run again (a notebook)."""
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not path or (spec is not None and spec.name.rpartition(".")[2] == "__main__"):  # as multiprocessing has it
        return ""
    return f"{'' if spec is None else spec.parent}:{os.path.abspath(path)}"


def become_script() -> None:
    """Have processes that this worker will start find the driver's script, where that can be read from here."""
    path = os.environ.get(SCRIPT_VARIABLE, "").partition(":")[2]
    if os.path.isfile(path):
        main: Any = sys.modules["__main__"]
        main.__file__ = path
        main.__spec__ = ModuleSpec(_SPAWNED_MAIN, None)


def run_script(into: dict[str, Any]) -> None:
    """Run the driver's script, up to its first call that starts a sweep.

    Args:
        into: the globals of the `__main__` to be. Its `__spec__` stays, by which processes that this one starts find
            the script, too.

    Raises:
        OSError: the script is gone. SyntaxError: it has been damaged. Whatever it raises.
    """
    package, _, path = os.environ[SCRIPT_VARIABLE].partition(":")
    loader = SourceFileLoader("__main__", path)
    code = loader.source_to_code(loader.get_data(path), path)
    spec, argument = into["__spec__"], sys.argv[0]
    name = os.path.splitext(os.path.basename(path))[0]
    into.update(
        __file__=path,
        __package__=package or None,
        __spec__=ModuleSpec(f"{package}.{name}", loader) if package else None,
        __loader__=loader,
    )
    sys.argv[0] = path
    try:
        with contextlib.suppress(DriverCalled), importing():
            exec(code, into)
    finally:
        into["__spec__"], sys.argv[0] = spec, argument
