"""On which file systems one has to look again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.watching import observer
from rankscope.watching.observer import file_system, is_silent
from tests.watching.following import Following
from tests.watching.jobs import Running, target

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 27 0:40 / /scratch rw,relatime shared:2 - lustre 10.0.0.1@tcp:/scratch rw
41 27 0:41 / /scratch/local rw shared:3 - xfs /dev/sdb rw
42 27 0:42 / /home rw - nfs4 server:/home rw
43 27 0:43 / /with\\040space rw - fuse.sshfs host:/ rw
44 27 0:44 / /over rw - ext4 /dev/sdc rw
45 44 0:45 / /over rw - overlay overlay rw
not a line
"""


@pytest.mark.parametrize(
    ("path", "kind", "silent"),
    [
        ("/data/dumps", "ext4", False),
        ("/scratch", "lustre", True),
        ("/scratch/job/dumps", "lustre", True),
        ("/scratch/local/dumps", "xfs", False),
        ("/scratchy", "ext4", False),
        ("/home/someone", "nfs4", True),
        ("/with space/dumps", "fuse.sshfs", True),
        ("/over/dumps", "overlay", True),
    ],
)
def test_the_mount_that_a_path_lies_on_tells(path: str, kind: str, silent: bool) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    assert is_silent(kind) == silent


def test_nothing_is_told_without_a_table_of_mounts() -> None:
    assert file_system(Path("/data"), "") == ""
    assert not is_silent("")


def test_where_nothing_is_told_it_is_looked_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "file_system", lambda _path: "lustre")
    monkeypatch.setattr(observer, "POLL_S", 0.2)
    dumps, running = tmp_path / "dumps", Running(tmp_path / "drafts")
    dumps.mkdir()
    running.step(2)
    with Following(dumps) as following:
        running.draft(0).rename(target(dumps, 0))
        update = following.until(lambda u: u.dataset.seen_ranks == (0,))
        assert update.reading.how == "looking every 200 ms (lustre reports no changes)"
        running.draft(1).rename(target(dumps, 1))
        following.until(lambda u: u.dataset.seen_ranks == (0, 1))
