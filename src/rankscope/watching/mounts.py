"""On which file systems nobody is told of a file that another machine writes: there one has to look again and again.

The types are those of the fourth field after the dash of /proc/self/mountinfo (proc(5)).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
_SILENT = frozenset([
    "nfs", "nfs4", "lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "pvfs2", "orangefs", "ceph", "cifs", "smb3",
    "smbfs", "9p", "virtiofs", "afs", "glusterfs", "panfs", "wekafs", "dfs", "ocfs2", "gfs2", "vboxsf", "prl_fs",
    "drvfs", "overlay", "aufs", "unionfs",
])  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system a path lies on, as the kernel calls it; "" where that is not told."""
    try:
        text = MOUNTINFO.read_text(errors="surrogateescape") if mountinfo is None else mountinfo
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), parts[4])
        # of two mounts on one point the later one is seen
        if _lies_below(real, point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _lies_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def is_silent(kind: str) -> bool:
    """Whether writes of other machines, or below what is shown, raise no event."""
    return kind in _SILENT or kind.startswith("fuse")
