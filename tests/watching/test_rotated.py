"""Logs that are rotated while they are watched: what a process printed stays together."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.watching.update import JobUpdate
from tests.features.logs.rows.job import init, step
from tests.watching.following import Following
from tests.watching.test_logs import text
from tests.watching.writer import Writer

RANKS, FIRST, MORE = 4, 120, 40
Lanes = dict[int, list[int | None]]


def lanes(update: JobUpdate) -> Lanes:
    """Sequence numbers by rank, as they stand."""
    return dict(update.dataset.ops.group_by("rank", maintain_order=True).agg("seq").iter_rows())


def all_of(count: int, *, behind: int = 0) -> Lanes:
    """Lanes of whole logs; rank 2 is behind."""
    return {rank: list(range(1, count + 1 - (behind if rank == 2 else 0))) for rank in range(RANKS)}


class Logs:
    """A file of each rank, written by another process."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self.folder, self.writer, self.printed = folder / "logs", writer, 0
        self.folder.mkdir()
        self._new = folder / "new"
        for rank in range(RANKS):
            text(self.log(rank), [init(rank)])

    def log(self, rank: int, age: int = 0) -> Path:
        return self.folder / (f"nccl.{rank}.log" + (f".{age}" if age else ""))

    def say(self, rank: int, count: int, at: int | None = None) -> None:
        """A rank prints operations, behind what there is or `at` an offset."""
        lines = text(self._new, [step(rank, n % 7) for n in range(self.printed, self.printed + count)])
        if at is None:
            self.writer.do("append", lines, self.log(rank))
        else:
            self.writer.do("write-at", lines, self.log(rank), at)

    def turn(self, rank: int, how: str, ages: int) -> int | None:
        """Rotates a log with `ages` older ones; where the rank writes next, None for the end."""
        for age in range(ages, 0, -1):
            self.writer.do("rename", self.log(rank, age), self.log(rank, age + 1))
        if how == "rename":
            self.writer.do("rename", self.log(rank), self.log(rank, 1))
            return None
        size = self.log(rank).stat().st_size
        if how != "emptied":
            self.writer.do("copy", self.log(rank), self.log(rank, 1))
        self.writer.do("truncate", self.log(rank))
        return size if how == "written on" else None

    def go_on(self, count: int, how: str, ages: int, behind: int = 0) -> None:
        """Every rank goes on in a log that was rotated; rank 2 prints less."""
        for rank in range(RANKS):
            at = self.turn(rank, how, ages) if how else None
            self.say(rank, count - (behind if rank == 2 else 0), at)
        self.printed += count


@pytest.mark.parametrize("how", ["rename", "copy and empty", "written on"])
def test_operations_go_on_in_the_next_file(tmp_path: Path, how: str) -> None:
    with Writer() as writer:
        logs = Logs(tmp_path, writer)
        with Following(logs.folder) as following:
            logs.go_on(FIRST, "", 0)
            following.until(lambda u: lanes(u) == all_of(FIRST))
            logs.go_on(MORE, how, 0)
            following.until(lambda u: lanes(u) == all_of(FIRST + MORE))
            logs.go_on(MORE, how, 1, behind=3)
            update = following.until(lambda u: lanes(u) == all_of(FIRST + 2 * MORE, behind=3))
    assert update.dataset.frontiers["last_enqueued"].to_list() == [200, 200, 197, 200]
    assert update.dataset.comms["collectives"].to_list() == [200, 200, 197, 200]


def test_whose_they_are_is_known_when_the_old_text_is_gone(tmp_path: Path) -> None:
    with Writer() as writer:
        logs = Logs(tmp_path, writer)
        with Following(logs.folder) as following:
            logs.go_on(FIRST, "", 0)
            following.until(lambda u: lanes(u) == all_of(FIRST))
            logs.go_on(MORE, "emptied", 0)
            update = following.until(
                lambda u: {r: len(own) for r, own in lanes(u).items()} == dict.fromkeys(range(RANKS), MORE)
            )
    assert [group.ranks for group in update.dataset.group_list] == [(0, 1, 2, 3)]


def test_whose_they_are_is_known_when_the_oldest_file_is_deleted(tmp_path: Path) -> None:
    with Writer() as writer:
        logs = Logs(tmp_path, writer)
        with Following(logs.folder) as following:
            logs.go_on(FIRST, "", 0)
            logs.go_on(MORE, "rename", 0)
            logs.go_on(MORE, "rename", 1)
            following.until(lambda u: lanes(u) == all_of(FIRST + 2 * MORE))
            for rank in range(RANKS):
                writer.do("delete", logs.log(rank, 2))
            left = dict.fromkeys(range(RANKS), 2 * MORE)
            update = following.until(lambda u: {r: len(own) for r, own in lanes(u).items()} == left)
    assert [group.ranks for group in update.dataset.group_list] == [(0, 1, 2, 3)]
