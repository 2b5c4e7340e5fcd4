"""`sweep logs`: what a trial printed, also while it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep.cli.logs import print_logs
from sweep.cli.main import sweep
from sweep.errors import ConfigError


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    made = MadeExperiment(tmp_path, "digits")
    (started(made) / "output.log").write_bytes(b"one\ntwo\nthree\n")
    made.trial({}, reason="waits")
    made.commit()
    return made


def logs(made: MadeExperiment, *arguments: str) -> str:
    return CliRunner().invoke(sweep, ["logs", str(made.root), *arguments], catch_exceptions=False).output


def started(made: MadeExperiment) -> Path:
    """Start a trial and return its directory."""
    trial = made.trial({})
    made.start(trial)
    made.commit()
    (made.root / trial).mkdir()
    return made.root / trial


@pytest.mark.parametrize(
    ("tail", "printed"), [("9", "one\ntwo\nthree\n"), ("3", "one\ntwo\nthree\n"), ("2", "two\nthree\n"), ("0", "")]
)
def test_the_whole_log_or_its_tail_is_printed(made: MadeExperiment, tail: str, printed: str) -> None:
    assert logs(made, "0") == "one\ntwo\nthree\n"
    assert logs(made, "0", "--tail", tail) == printed


def test_what_is_printed_is_one_json_object(made: MadeExperiment) -> None:
    assert json.loads(logs(made, "0", "--tail", "1", "--json")) == {
        "trial": "abcde_00000",
        "state": "running",
        "status": "RUNNING",
        "output": {"output.log": "three\n"},
    }
    with pytest.raises(ConfigError, match="give one of them"):
        logs(made, "0", "--follow", "--json")


def test_a_trial_that_printed_nothing_says_why(made: MadeExperiment) -> None:
    with pytest.raises(ConfigError, match=r"has printed nothing: .* It is waiting: waits\."):
        logs(made, "1")


def followed(steps: list[tuple[Path, bytes]], paths: list[Path], **given: Any) -> bytes:
    """Return what following prints when the trial writes one of these just before each look, and ends with the last."""
    written: list[bytes] = []
    left = list(steps)

    def has_ended() -> bool:
        path, text = left.pop(0)
        with path.open("ab") as file:
            file.write(text)
        return not left

    print_logs(paths, written.append, has_ended=has_ended, wait=lambda seconds: None, **given)
    return b"".join(written)


def test_following_prints_what_is_added_until_the_trial_ends(tmp_path: Path) -> None:
    path, other = tmp_path / "stdout", tmp_path / "stderr"
    steps = [(path, text) for text in (b"first\n", b"sec", b"ond\n", b"", b"last words\n")]
    assert followed(steps, [path]) == b"first\nsecond\nlast words\n"
    steps = [(path, b"out 2\n"), (other, b"err 1\n"), (path, b"out 3\n")]
    assert followed(steps, [path, other], tail=1) == (
        b"==> stdout <==\nlast words\nout 2\n==> stderr <==\nerr 1\n==> stdout <==\nout 3\n"
    )


def test_the_tail_of_a_large_log_is_found_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)) + b"no newline")
    written: list[bytes] = []
    print_logs([path], written.append, tail=20_000)
    lines = b"".join(written).splitlines()
    assert len(lines) == 20_000
    assert lines[0] == b"line 30001"
    assert lines[-1] == b"no newline"


def test_of_a_group_every_rank_is_printed_or_the_one_that_is_asked_for(made: MadeExperiment) -> None:
    directory = started(made)
    for rank in (0, 2, 10):
        (directory / f"rank{rank}.log").write_bytes(b"first\nfrom %d\n" % rank)

    assert logs(made, "2", "--tail", "1") == (
        "==> rank0.log <==\nfrom 0\n==> rank2.log <==\nfrom 2\n==> rank10.log <==\nfrom 10\n"  # by number
    )
    assert logs(made, "2", "--rank", "2") == "first\nfrom 2\n"
    with pytest.raises(ConfigError, match=r"rank7\.log is not there; there are rank0\.log, rank2\.log, rank10\.log"):
        logs(made, "2", "--rank", "7")


def test_of_a_lane_what_its_process_printed_is_printed(made: MadeExperiment) -> None:
    started(made)
    (made.root / "code").mkdir()
    (made.root / "code" / "lanes_0.log").write_bytes(b"of many\n")
    assert logs(made, "0") == "one\ntwo\nthree\n"
    assert logs(made, "2") == "of many\n"


def test_files_that_log_to_file_names_are_printed_one_after_the_other(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "named", log_to_file=["out.txt", "err.txt"])
    directory = started(made)
    with pytest.raises(ConfigError, match=r"has printed nothing: .*/out\.txt is not there"):
        logs(made, "0")
    (directory / "err.txt").write_bytes(b"a warning\n")
    assert logs(made, "0") == "a warning\n"
    (directory / "out.txt").write_bytes(b"one\ntwo\n")
    assert logs(made, "0", "--tail", "1") == "==> out.txt <==\ntwo\n==> err.txt <==\na warning\n"
    (directory / "output.log").write_bytes(b"from before\n")  # of an earlier run of the sweep
    assert logs(made, "0").startswith("==> output.log <==\nfrom before\n==> out.txt <==\none\n")
    both = MadeExperiment(tmp_path, "both", log_to_file=["all.txt", "all.txt"])
    (started(both) / "all.txt").write_bytes(b"everything\n")
    assert logs(both, "0") == "everything\n"  # once
