"""Which file system a directory lies on, and whether SQLite's write-ahead log is safe there.

The log's index (`sweep.db-shm`) is memory that all who have the record open share, which machines cannot
(https://sqlite.org/wal.html: "WAL does not work over a network filesystem").
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from sweep.errors import ConfigError

SHARED_VARIABLE = "SWEEP_SHARED_STORAGE"
"""1: the storage is seen by several machines, whatever its file system is called; 0: it is not."""

# Types as the kernel names them (the kernel's Documentation/filesystems, and the manuals of those that are not part of
# it): file systems of a server, then those of a cluster.
_NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ncpfs coda davfs ceph ceph-fuse lustre beegfs fhgfs gpfs orangefs pvfs2 panfs wekafs "
    "quobyte glusterfs ocfs2 gfs gfs2 lizardfs moosefs mfs juicefs cvfs".split()
)
# Programs that serve files of this machine by FUSE; all others are taken for shared. What a host gives to its virtual
# machine (virtiofs, 9p) counts as local: a container may have nothing else.
_LOCAL_FUSE = frozenset(
    "overlayfs fuse-overlayfs ntfs-3g ntfs exfat encfs gocryptfs cryfs mergerfs bindfs unionfs lxcfs squashfuse "
    "squashfuse_ll archivemount fuse2fs zfs apfs".split()
)


class Disk(NamedTuple):
    """Where a directory lies: the type of the file system, as the kernel calls it, and where it is mounted."""

    type: str
    mount: str

    def __str__(self) -> str:
        return f"{self.type or 'an unknown type'} at {self.mount}"

    @property
    def is_network(self) -> bool:
        """Whether other machines may see the same files."""
        base, _, program = self.type.partition(".")
        return program not in _LOCAL_FUSE if base == "fuse" else self.type in _NETWORK


def disk_of(path: Path) -> Disk:
    """Return where a directory lies, or will lie once it is made."""
    import psutil

    place = path.absolute()
    while not place.exists() and place != place.parent:  # looking also mounts what is mounted on demand
        place = place.parent
    place = Path(os.path.realpath(place))
    found = Disk("", "/")
    try:
        mounted = psutil.disk_partitions(all=True)
    except OSError:  # the kernel does not say
        return found
    for part in mounted:
        if place.is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(found.mount):
            found = Disk(part.fstype, part.mountpoint)  # of several at one place the last one covers the others
    return found


def is_shared(root: Path) -> bool:
    """Whether other machines may see a directory: its file system says so, or the user."""
    setting = os.environ.get(SHARED_VARIABLE, "")
    if setting not in ("", "0", "1"):
        raise ConfigError(f"{SHARED_VARIABLE} is {setting!r}; expected 1 (several machines see the storage) or 0.")
    return setting == "1" if setting else disk_of(root).is_network
