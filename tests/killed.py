"""Work that is killed between any two changes of a file, or in the middle of one."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree"}
KILLED = 9
MOST = 400


def fork() -> int:
    """Return the child's pid, and 0 in the child, which must not use what a former test imported: jax, in which it
    could hang, warns of that at every fork.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return os.fork()


def ends_itself(work: Callable[[], None], root: Path, at: int, is_torn: bool) -> bool:
    """Do the work in a child process that is killed before its `at`-th change of a file; whether that was reached.

    Args:
        is_torn: a file that would be opened for writing then is left with a part of something in it.
    """
    pid = fork()
    if pid == 0:
        count = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if not (event in CHANGES or is_write) or not str(arguments[0]).startswith(str(root)):
                return
            count += 1
            if count == at:
                if is_torn and is_write and not str(arguments[0]).endswith("driver.lock"):
                    count = -MOST
                    with open(str(arguments[0]), "wb") as file:
                        file.write(b'{"torn": ')
                os._exit(KILLED)

        sys.addaudithook(watch)
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED
