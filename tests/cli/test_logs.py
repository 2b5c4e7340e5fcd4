"""`sweep logs`: what a trial printed, also while it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep.cli.logs import print_log
from sweep.cli.main import sweep
from sweep.errors import ConfigError


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    made = MadeExperiment(tmp_path, "digits")
    trial = made.trial({})
    made.start(trial)
    (made.root / trial).mkdir()
    (made.root / trial / "output.log").write_bytes(b"one\ntwo\nthree\n")
    made.trial({}, reason="waits")
    made.commit()
    return made


def test_the_whole_log_or_its_tail_is_printed(made: MadeExperiment) -> None:
    def logs(*arguments: str) -> str:
        return CliRunner().invoke(sweep, ["logs", str(made.root), "0", *arguments]).output

    assert logs() == "one\ntwo\nthree\n"
    assert logs("--tail", "2") == "two\nthree\n"
    assert logs("--tail", "9") == "one\ntwo\nthree\n"
    assert logs("--tail", "0") == ""


def test_a_trial_that_printed_nothing_says_why(made: MadeExperiment) -> None:
    result = CliRunner().invoke(sweep, ["logs", str(made.root), "1"])
    assert isinstance(result.exception, ConfigError)
    assert "has printed nothing" in str(result.exception)
    assert "It is PENDING: waits." in str(result.exception)


def test_following_prints_what_is_added_until_the_trial_ends(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    written: list[bytes] = []
    steps = iter([b"first\n", b"sec", b"ond\n", b""])

    def wait(seconds: float) -> None:
        with path.open("ab") as file:
            file.write(next(steps))

    ends = iter([False, False, False, False, True])
    print_log(path, written.append, has_ended=lambda: next(ends), wait=wait)
    assert b"".join(written) == b"first\nsecond\n"


def test_what_is_printed_just_before_the_end_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"a\n")
    written: list[bytes] = []

    def has_ended() -> bool:
        with path.open("ab") as file:
            file.write(b"last words\n")
        return True

    print_log(path, written.append, has_ended=has_ended)
    assert b"".join(written) == b"a\nlast words\n"


def test_the_tail_of_a_large_log_is_found_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)) + b"no newline")
    written: list[bytes] = []
    print_log(path, written.append, tail=20_000)
    lines = b"".join(written).splitlines()
    assert len(lines) == 20_000
    assert lines[0] == b"line 30001"
    assert lines[-1] == b"no newline"


def test_of_a_group_every_rank_is_printed_or_the_one_that_is_asked_for(made: MadeExperiment) -> None:
    trial = made.trial({})
    made.start(trial)
    made.commit()
    directory = made.root / trial
    directory.mkdir()
    for rank in (0, 2, 10):
        (directory / f"rank{rank}.log").write_bytes(b"first\nfrom %d\n" % rank)

    def logs(*arguments: str) -> str:
        return CliRunner().invoke(sweep, ["logs", str(made.root), "2", *arguments], catch_exceptions=False).output

    everything = logs("--tail", "1")
    assert everything == (
        "==> rank0.log <==\nfrom 0\n==> rank2.log <==\nfrom 2\n==> rank10.log <==\nfrom 10\n"  # by number
    )
    assert logs("--rank", "2") == "first\nfrom 2\n"
    with pytest.raises(ConfigError, match=r"rank7\.log is not there; there are rank0\.log, rank2\.log, rank10\.log"):
        logs("--rank", "7")
