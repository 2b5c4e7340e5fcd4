"""What a stored checkpoint consists of, and how damage is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sweep.checkpoints import manifest
from sweep.checkpoints.manifest import MANIFEST, METADATA, DamagedError, set_aside, verify, write_manifest


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint_000001"
    (directory / "inner").mkdir(parents=True)
    (directory / "model").write_bytes(bytes(range(256)) * 4096)
    (directory / "inner" / "empty").touch()
    write_manifest(str(directory))
    return directory


def test_the_manifest_has_the_size_and_the_checksum_of_each_file(stored: Path):
    files = json.loads((stored / MANIFEST).read_text())["files"]
    assert files == {"inner/empty": [0, "crc32:00000000"], "model": [1 << 20, files["model"][1]]}
    verify(stored)


@pytest.mark.parametrize("offset", [0, 700_000, (1 << 20) - 1])
def test_a_changed_byte_is_found_wherever_it_is(stored: Path, offset: int):
    with open(stored / "model", "r+b") as file:
        file.seek(offset)
        file.write(b"?" if offset % 256 != ord("?") else b"!")
    with pytest.raises(DamagedError, match="contents of model have changed"):
        verify(stored)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (99, 100), (40, 60)])
def test_of_a_large_file_pieces_are_compared_its_beginning_and_its_end_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, end: int
):
    monkeypatch.setattr(manifest, "FULL_BYTES", 1000)
    monkeypatch.setattr(manifest, "_PIECE_BYTES", 16)
    place = tmp_path / "model"
    place.write_bytes(os.urandom(100_000))
    write_manifest(str(tmp_path))
    verify(tmp_path)
    with open(place, "r+b") as file:  # a percent of it, or more, is zeroed
        file.seek(start * 1000)
        file.write(bytes((end - start) * 1000))
    assert json.loads((tmp_path / MANIFEST).read_text())["files"]["model"][1].startswith("pieces:")
    with pytest.raises(DamagedError, match="contents of model have changed"):
        verify(tmp_path)


def test_what_has_no_manifest_or_more_than_was_stored_passes_where_that_is_no_damage(stored: Path, tmp_path: Path):
    (stored / "more").touch()
    with pytest.raises(DamagedError, match="more was added"):
        verify(stored)
    verify(stored, is_exact=False)
    (stored / MANIFEST).unlink()
    with pytest.raises(DamagedError, match="has no manifest"):
        verify(stored)
    verify(stored, is_exact=False)
    (tmp_path / "nothing").mkdir()
    for name, says in (("nothing", "is empty"), ("gone", "is missing")):
        with pytest.raises(DamagedError, match=says):
            verify(tmp_path / name, is_exact=False)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (PermissionError(13, "Permission denied"), PermissionError),  # for now
        (OSError(5, "Input/output error"), DamagedError),
    ],
)
def test_an_error_of_the_disk_is_damage_and_what_cannot_be_read_for_now_is_not(
    stored: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, raised: type[Exception]
):
    def refuse(path: str) -> int:
        raise error

    monkeypatch.setattr(os.path, "getsize", refuse)
    with pytest.raises(raised, match=str(error.strerror)):
        verify(stored)


def test_metadata_and_what_its_writer_left_half_done_are_no_part_of_what_was_stored(stored: Path):
    for name in (METADATA, f".{METADATA}.4242"):
        (stored / name).write_text("{")
    verify(stored)


def test_what_is_damaged_is_moved_aside_once_under_a_name_that_is_free(stored: Path, tmp_path: Path):
    assert set_aside(str(tmp_path), stored.name) == str(tmp_path / "damaged_checkpoint_000001")
    assert set_aside(str(tmp_path), stored.name) == ""
    stored.mkdir()
    assert set_aside(str(tmp_path), stored.name) == str(tmp_path / "damaged_checkpoint_000001.2")
    assert sorted(os.listdir(tmp_path)) == ["damaged_checkpoint_000001", "damaged_checkpoint_000001.2"]
