"""Which file system a directory lies on, as the kernel lists what is mounted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sweep.errors import ConfigError, ExperimentError
from sweep.storage.disks import Disk, disk_of, is_shared
from sweep.storage.shared import shared_record


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Let a directory be the root of a file system of some type."""
    root = tmp_path / "shared"
    (root / "my disk").mkdir(parents=True)

    def mount(kind: str) -> Path:
        mounts = {"/proc": "proc", "/": "ext4", f"{root}": "autofs", f"{root}/": kind, f"{root}/my disk": "xfs"}
        found = [
            SimpleNamespace(mountpoint=path, fstype=kind) for path, kind in {**mounts, f"{root}er": "lustre"}.items()
        ]
        monkeypatch.setattr("psutil.disk_partitions", lambda **_: found)
        return root

    return mount


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *[(kind, True) for kind in ("nfs", "nfs4", "cifs", "lustre", "ceph", "fuse.glusterfs", "fuse.ceph-fuse")],
        *[(kind, False) for kind in ("ext4", "btrfs", "overlay", "zfs", "tmpfs", "virtiofs", "9p", "fuseblk")],
        *[(kind, False) for kind in ("fuse.fuse-overlayfs", "fuse.gocryptfs")],
        *[(kind, True) for kind in ("fuse.sshfs", "fuse.somebodys", "fuse")],
    ],
)
def test_the_type_of_the_innermost_mount_says_whether_other_machines_see_it(mounted, kind, expected):
    root = mounted(kind)
    assert disk_of(root / "not" / "made yet") == Disk(kind, f"{root}/")
    assert is_shared(root) is expected
    assert disk_of(root / "my disk") == Disk("xfs", f"{root}/my disk")
    assert disk_of(root.parent) == Disk("ext4", "/")
    (root.parent / "link").symlink_to(root)
    assert disk_of(root.parent / "link" / "results").type == kind


def test_where_the_kernel_lists_nothing_a_disk_counts_as_local(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "none"))
    assert is_shared(tmp_path) is False


def test_the_user_has_the_last_word(mounted, monkeypatch):
    root = mounted("nfs4")
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "0")
    assert shared_record(root) is None
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "1")
    assert is_shared(root.parent)
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "yes")
    with pytest.raises(ConfigError, match=r"SWEEP_SHARED_STORAGE is 'yes'; expected 1 .* or 0"):
        is_shared(root)


def test_the_record_is_worked_on_in_the_cache_where_that_is_on_a_disk_of_this_machine(mounted, monkeypatch, tmp_path):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    for kind in ("nfs4", "fuse.sshfs"):
        record = shared_record(mounted(kind) / "made")
        assert record is not None
        assert record.database.is_relative_to(tmp_path / "cache" / "records")
    assert shared_record(mounted("ext4") / "made") is None


def test_a_cache_that_other_machines_see_too_is_refused_with_a_place_to_use(mounted, monkeypatch):
    root = mounted("nfs4")
    monkeypatch.setenv("SWEEP_CACHE", str(root / "cache"))
    monkeypatch.setenv("TMPDIR", str(root))
    with pytest.raises(
        ExperimentError, match=r"\(nfs4 at .*SWEEP_CACHE to a directory .*SWEEP_CACHE=/var/tmp/sweep-\d+; or set .*=0"
    ):
        shared_record(root / "made")
