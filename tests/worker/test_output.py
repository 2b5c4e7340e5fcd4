"""`log_to_file=`: every form that users type, and the two files that a process writes into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.errors import ConfigError
from sweep.worker.output import parse_log_to_file


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, None),
        (False, None),
        (True, ("stdout", "stderr")),
        ("all.log", ("all.log", "all.log")),
        (Path("all.log"), ("all.log", "all.log")),
        (("out", "err"), ("out", "err")),
        (["out", "err"], ("out", "err")),
    ],
)
def test_each_form_names_two_files(given, names):
    assert parse_log_to_file(given) == names


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "log_to_file is 3; expected True"),
        ("", "log_to_file is ''; expected True"),
        (("out",), "expected True"),
        (("a", "b", "c"), "expected True"),
        (("out", None), "expected True"),
        ({"out", "err"}, "expected True"),
        ("/tmp/out", "names '/tmp/out', which is no name of a file"),
        ("logs/out", "names 'logs/out'"),
        (("out", ".."), r"names '\.\.'"),
    ],
)
def test_what_is_no_name_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        parse_log_to_file(given)


@pytest.mark.parametrize(
    ("out", "err", "expected"),
    [
        ("o", "e", {"o": "out\nfrom below\nHEAD out\nfrom below\n", "e": "err\nHEAD err\n"}),
        ("both", "both", {"both": "HEAD out\nerr\nfrom below\n" * 2}),
    ],
)
def test_each_stream_goes_to_the_end_of_its_file_and_a_header_tells_attempts_apart(tmp_path, out, err, expected):
    code = (
        "import os, sys; from sweep.worker.main import redirect_output; "
        f"redirect_output({out!r}, {err!r}, 'x attempt 1'); "
        "print('out', flush=True); print('err', file=sys.stderr); os.write(1, b'from below\\n')"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})
    found = {}
    for name in os.listdir(tmp_path):
        lines = (tmp_path / name).read_text().splitlines()
        found[name] = "".join(("HEAD " if line.startswith("---") else line + "\n") for line in lines)
    assert found == expected
