"""What is read of files that grow while a program runs."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.programs.files import Files


def told(files: Files, **options: Any) -> list[tuple[dict[str, Any], float | None, str]]:
    return [(values, step, os.path.basename(path)) for values, step, path in files.poll(**options)]


def field(number: int, content: bytes | int) -> bytes:
    """Write a field of a protocol buffer whose numbers and lengths are below 128."""
    if isinstance(content, int):
        return bytes((number << 3, content))
    return bytes((number << 3 | 2, len(content))) + content


def event(step: int, tag: str, value: bytes) -> bytes:
    summary = field(1, field(1, tag.encode()) + value)
    message = b"\x09" + struct.pack("<d", 1.5) + field(2, step) + field(5, summary)
    return struct.pack("<Q", len(message)) + b"crc1" + message + b"crc2"


def simple(number: float) -> bytes:
    return b"\x15" + struct.pack("<f", number)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files([str(tmp_path)], time.time() - 60, report=str(tmp_path / "report.jsonl"))


def test_lines_of_the_report_file_are_given_once_and_whole(files: Files, tmp_path: Path) -> None:
    assert told(files) == []
    with open(tmp_path / "report.jsonl", "w") as stream:
        stream.write('{"loss": 1, "step": 2}\nnot json\n[1]\n{"loss"')
        stream.flush()
        assert told(files) == [({"loss": 1, "step": 2}, None, "report.jsonl")]
        assert told(files) == []
        stream.write(': 0.5}\n{"loss": 0.25}')
    assert told(files) == [({"loss": 0.5}, None, "report.jsonl")]
    assert told(files, is_last=True) == [({"loss": 0.25}, None, "report.jsonl")]


def test_other_files_of_json_lines_are_read_too(files: Files, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"loss": 0.5}\n')
    assert told(files) == [({"loss": 0.5}, None, "metrics.jsonl")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_of_a_table_are_given_by_its_names(files: Files, tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "out" / "progress.csv"
    path.parent.mkdir()
    path.write_text('# {"t": 1}\nEpoch,note,"val loss"\n1,good,0.5\n2,,\n3,x,1e'.replace(",", delimiter))
    assert told(files) == [({"epoch": 1.0, "val loss": 0.5}, None, "progress.csv")]
    with open(path, "a") as stream:
        stream.write("-3\n")
    assert told(files) == [({"epoch": 3.0, "val loss": 1e-3}, None, "progress.csv")]


def test_of_a_table_written_anew_with_more_columns_only_what_is_new_is_given(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,loss\n0,9,0.5\n1,19,0.25\n")
    assert [values["loss"] for values, _, _ in told(files)] == [0.5, 0.25]
    path.write_text("epoch,step,loss,val_loss\n0,9,0.5,\n1,19,0.25,0.75\n1,19,,0.5\n")
    assert [values for values, _, _ in told(files)] == [
        {"epoch": 1.0, "step": 19.0, "val_loss": 0.75},
        {"epoch": 1.0, "step": 19.0, "val_loss": 0.5},
    ]


def test_a_file_begun_anew_is_read_anew(files: Files, tmp_path: Path) -> None:
    table, report = tmp_path / "log.csv", tmp_path / "report.jsonl"
    table.write_text("step,loss\n1,0.5\n2,0.4\n")
    report.write_text('{"loss": 1}\n{"loss": 2}\n')
    assert len(told(files)) == 4
    table.write_text("step,loss\n1,0.75\n2,0.625\n3,0.5\n")
    report.write_text('{"loss": 3}\n')
    assert [values["loss"] for values, _, _ in told(files)] == [3, 0.75, 0.625, 0.5]


def test_what_was_there_before_is_not_given(tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("step,loss\n1,0.5\n")
    os.utime(old, (1, 1))
    (tmp_path / "link.csv").symlink_to(old)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.csv").write_text("loss\n1\n")
    files = Files([str(tmp_path)], time.time() - 60)
    assert told(files) == []
    with open(old, "a") as stream:
        stream.write("2,0.25\n")
    assert told(files) == [({"step": 2.0, "loss": 0.25}, None, "old.csv")]
    old.write_text("step,loss\n1,0.125\n")
    assert told(files) == [({"step": 1.0, "loss": 0.125}, None, "old.csv")]


def test_scalars_of_one_step_are_given_together(files: Files, tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "a"
    directory.mkdir(parents=True)
    tensor = field(8, field(1, 1) + field(2, b"") + field(5, struct.pack("<f", 0.75)))
    double = field(8, field(1, 2) + field(4, struct.pack("<d", 0.1)))
    text = field(8, field(1, 7) + field(8, b"words"))
    two = field(8, field(1, 1) + field(4, struct.pack("<ff", 1, 2)))
    records = [
        event(1, "loss", simple(0.5)), event(1, "acc", tensor), event(2, "text", text), event(2, "two", two),
        event(2, "loss", simple(0.25)), event(3, "loss", double),
    ]  # fmt: skip
    whole = b"".join(records)
    name = "events.out.tfevents.1.host"
    (directory / name).write_bytes(whole[:-5])
    assert told(files) == [({"loss": 0.5, "acc": 0.75}, 1, name), ({"loss": 0.25}, 2, name)]
    (directory / name).write_bytes(whole)
    assert told(files) == [({"loss": 0.1}, 3, name)]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00" * 999, b'"a\x00,b\n"\n1,"2\n', b"\n\n\n,,,\n1,2\n", os.urandom(5000)]
)
def test_damaged_files_give_nothing_that_harms(files: Files, tmp_path: Path, content: bytes) -> None:
    for name in ("a.csv", "events.out.tfevents.1", "report.jsonl"):
        (tmp_path / name).write_bytes(content)
    told(files)
    broken = event(1, "a", simple(1))[:-9] + b"\xff" * 9 + event(2, "b", simple(2))
    (tmp_path / "events.out.tfevents.2").write_bytes(broken)
    assert ({"b": 2.0}, 2, "events.out.tfevents.2") in told(files)
    for name in ("a.csv", "report.jsonl"):
        (tmp_path / name).unlink()
    told(files, is_last=True)


def test_a_large_file_is_read_in_parts(files: Files, tmp_path: Path) -> None:
    (tmp_path / "large.csv").write_text("loss\n" + f"{0.125:>200}\n" * 12_000)
    counts = [len(told(files)), len(told(files)), len(told(files))]
    assert sum(counts) == 12_000
    assert max(counts) < 6_000


@pytest.mark.slow
@pytest.mark.parametrize("module", ["torch.utils.tensorboard", "tensorboardX"])
def test_event_files_of_real_writers_are_read(files: Files, tmp_path: Path, module: str) -> None:
    writer = pytest.importorskip(module).SummaryWriter(str(tmp_path / "tb"))
    for step in range(300):
        writer.add_scalar("train/loss", step / 4, step)
    writer.add_text("note", "words", 1)
    writer.close()
    assert [(values["train/loss"], step) for values, step, _ in told(files)] == [
        (step / 4, step) for step in range(300)
    ]
