"""Make golden experiments of this format: `python tests/golden/make.py v1 class` writes `tests/golden/v1/class/`.

Each is an experiment as its killed driver left it, with one trial that finished, one that was stopped early, one in
ERROR, one that was running and one that had not begun; `function/` of a function, `class/` of a class, `trainer/` of a
training group of two workers. They are made once for a format of the
files, committed, and never made again: `tests/test_golden.py` proves that whatever this package becomes, it reads,
resumes and replays them. Make a new one, beside the old, when what is written changes.

Their pickles name what `golden_work.py` defines, by reference alone, so they do not depend on the version of Python.
Places and names of the machine that made them are replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from sealed import changed  # noqa: E402

from sweep.record.layout import MARK  # noqa: E402

PLACE = "/golden"  # stands for where they were made


def main(version: str, *names: str) -> None:
    target = HERE / version
    names = names or ("function", "class", "trainer")
    missing = [name for name in names if not (target / name).exists()]  # none is made again
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(HERE / "golden_work.py", place)
        for name in missing:
            _run(name, place)
            _neutral(Path(place, name), place)
        for name in missing:
            shutil.copytree(Path(place, name), target / name, symlinks=True)
    print(f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()) / 1e3:.0f} kB")


def _run(name: str, place: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[1]}:{place}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import golden_work; golden_work.first({name!r}, '.')"], cwd=place, env=environment
    )
    if done.returncode != -signal.SIGKILL:
        raise SystemExit(f"the driver of {name} was to be killed by its trial; it ended with {done.returncode}.")


def _neutral(root: Path, place: str) -> None:
    """Put the write-ahead log into the record, and replace what names this machine, in it and in the text files."""
    words = {os.path.realpath(place): PLACE, place: PLACE, str(HERE.parents[1]): PLACE, sys.prefix: PLACE}
    words |= {sys.base_prefix: PLACE, socket.gethostname(): "golden"}
    # only whole words: the name of a machine may be a part of another word
    pattern = re.compile(rf"({'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})(?![A-Za-z0-9])")

    def neutral(text: str | None) -> str | None:
        return None if text is None else pattern.sub(lambda found: words[found[0]], text)

    with changed(root / "sweep.db") as database:
        database.create_function("neutral", 1, neutral)
        for table, column in (("meta", "value"), ("event", "data"), ("trial", "state")):
            database.execute(f"UPDATE {table} SET {column} = neutral({column})")
    with closing(sqlite3.connect(root / "sweep.db", isolation_level=None)) as database:
        database.execute("VACUUM")
    (root / "sweep.db").with_suffix(MARK).unlink(missing_ok=True)
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.name == "sweep.db" or path.suffix == ".pkl":
            continue
        data = path.read_bytes()
        try:
            text = neutral(data.decode())
        except UnicodeDecodeError:
            continue
        assert text is not None
        if text.encode() != data:
            path.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
