"""Runs when an interpreter of a trial's program starts, and reads what is logged there: PYTHONPATH names its directory.

First it runs the user's own `sitecustomize`, whose place it took. It stands alone, as `../hooks.py` does.
"""

from __future__ import annotations

import os
import sys


def _run_the_next() -> None:
    """Import the `sitecustomize` that is found without this directory; it replaces this one in `sys.modules`."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    own = sys.modules.pop(__name__)
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, own)


def _read_what_is_logged(socket: str) -> None:
    from importlib.machinery import SourceFileLoader

    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hooks.py")
    hooks = type(sys)("sweep_hooks")
    code = SourceFileLoader(hooks.__name__, path).get_code(hooks.__name__)
    if code is None or sys.modules.setdefault(hooks.__name__, hooks) is not hooks:
        return
    exec(code, vars(hooks))
    hooks.connect(socket)
    directory = os.environ.get("SWEEP_TRIAL_DIR")
    if directory and hooks.rank() > 0:  # the first of its group prints what all of them would
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what the user's own sitecustomize has printed is not of the rank
        log = os.open(os.path.join(directory, f"rank{hooks.rank()}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)


try:
    _run_the_next()
finally:
    _socket = os.environ.get("SWEEP_SOCKET")
    if _socket:
        try:
            _read_what_is_logged(_socket)
        except Exception as error:  # the program runs as it would without us
            sys.stderr.write(f"sweep: what the program logs is not read: {error!r}\n")
