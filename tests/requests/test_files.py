"""A request is written whole or not at all, read with care, and answered once."""

from __future__ import annotations

import os
import time

import pytest

from sweep.errors import ConfigError, ExperimentError
from sweep.requests.files import Answer, answer, forget_answers, read, take_answer, waiting, write


def test_requests_are_read_in_the_order_in_which_they_were_written(tmp_path):
    written = [write(tmp_path, verb, values={"n": verb}) for verb in ("pause", "resume", "stop")]
    names, others = waiting(tmp_path)
    assert [read(tmp_path, name) for name in names] == written
    assert others == []
    assert "@" in written[0].by


def test_an_answer_is_taken_once_and_takes_the_request_away(tmp_path):
    request = write(tmp_path, "pause")
    assert take_answer(tmp_path, request) is None
    answer(tmp_path, request, Answer(False, "no"))
    assert waiting(tmp_path) == ([], [])
    assert take_answer(tmp_path, request) == Answer(False, "no")
    assert take_answer(tmp_path, request) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"verb": "pau',
        "[]",
        "null",
        '{"verb": "explode"}',
        '{"verb": "pause", "values": 3}',
        '{"verb": "pause", "shell": "rm"}',
        '{"verb": "pause", "trials": 7}',
        "[" * 100_000,
        "\0\xff",
        " " * 2_000_000,
    ],
    ids=["empty", "half", "list", "null", "verb", "values", "unknown", "trials", "deep", "binary", "large"],
)
def test_a_file_that_is_no_request_is_refused(tmp_path, content):
    (tmp_path / "requests").mkdir()
    name = f"{time.time_ns()}-0abc.json"
    (tmp_path / "requests" / name).write_text(content)
    with pytest.raises(ConfigError, match=f"{name} is no request"):
        read(tmp_path, name)


def test_a_link_is_not_followed(tmp_path):
    request = write(tmp_path, "pause")
    path = tmp_path / "requests" / f"{request.id}.json"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no file"):
        read(tmp_path, path.name)


def test_a_pipe_is_not_waited_for(tmp_path):
    (tmp_path / "requests").mkdir()
    os.mkfifo(tmp_path / "requests" / f"{time.time_ns()}-0abc.json")
    with pytest.raises(ConfigError, match="no file"):
        read(tmp_path, waiting(tmp_path)[0][0])


def test_files_of_others_are_told_apart_and_half_written_ones_are_not_seen(tmp_path):
    (tmp_path / "requests").mkdir()
    for name in ("notes.txt", ".1764196800000000000-1f0a.json.77", "x.json"):
        (tmp_path / "requests" / name).write_text("{}")
    assert waiting(tmp_path) == ([], ["notes.txt", "x.json"])


def test_what_is_no_json_is_refused_before_it_is_written(tmp_path):
    with pytest.raises(ConfigError, match="expected values of JSON"):
        write(tmp_path, "enqueue", values={"config": {"lr": float("nan")}})
    with pytest.raises(ConfigError, match="expected values of JSON"):
        write(tmp_path, "enqueue", values={"config": {"net": object()}})
    assert not (tmp_path / "requests").exists()


def test_a_directory_that_takes_no_file_says_so(tmp_path):
    (tmp_path / "requests").write_text("a file")
    with pytest.raises(ExperimentError, match="Nothing was asked for"):
        write(tmp_path, "pause")


def test_answers_that_nobody_has_taken_are_forgotten_and_requests_are_not(tmp_path):
    forget_answers(tmp_path)
    old, new = write(tmp_path, "pause"), write(tmp_path, "resume")
    answer(tmp_path, old, Answer(True, "yes"))
    forget_answers(tmp_path)
    assert os.listdir(tmp_path / "requests") == [f"{new.id}.json"]
