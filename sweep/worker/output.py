"""Where what a trial prints goes: `log_to_file=`."""

from __future__ import annotations

import os
from typing import Any

from sweep.errors import ConfigError

OUTPUT_NAME = "output.log"


def parse_log_to_file(value: Any) -> tuple[str, str] | None:
    """Return the names of the files for standard output and standard error; None: both go to `output.log`.

    Raises:
        ConfigError: it is no bool, name or pair of names, or a name is a path.
    """
    if value is None or value is False:
        return None
    if value is True:
        return ("stdout", "stderr")
    is_one = isinstance(value, (str, os.PathLike))
    names = (value, value) if is_one else tuple(value) if isinstance(value, (list, tuple)) else ()
    found = tuple(os.fspath(name) if isinstance(name, (str, os.PathLike)) else "" for name in names)
    if len(found) != 2 or not all(found):
        raise ConfigError(
            f"log_to_file is {value!r:.100}; expected True (files stdout and stderr), the name of a file for both, or "
            "a pair of names: ('out.txt', 'err.txt')."
        )
    for name in found:
        if os.path.basename(name) != name or name in (".", ".."):
            raise ConfigError(
                f"log_to_file names {name!r}, which is no name of a file in the trial's directory; leave the path out."
            )
    return found[0], found[1]
