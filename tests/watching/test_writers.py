"""What a process writes is shown when it is whole, in the place of what was there before, and never twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.watching import file_store, watched_file
from tests.watching.following import Following, problems, rows
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import RANKS, Running, target
from tests.watching.writer import Writer

PIECE = 4_000


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    return folder


@pytest.fixture
def writer() -> Iterator[Writer]:
    with Writer() as process:
        yield process


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path / "drafts")


def write_all(writer: Writer, running: Running, dumps: Path, step: str = "replace") -> None:
    for rank in range(len(running.ranks)):
        writer.do(step, running.draft(rank), target(dumps, rank))


@pytest.mark.parametrize("poll_s", [None, 0.2])
def test_new_and_rewritten_dumps_are_shown_once(
    dumps: Path, writer: Writer, running: Running, poll_s: float | None
) -> None:
    running.step(3)
    with Following(dumps, poll_s=poll_s) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: rows(u) == {target(Path(), rank).name: 3 for rank in range(RANKS)})
        running.step(2)
        write_all(writer, running, dumps, "copy")
        update = following.until(lambda u: rows(u) == {target(Path(), rank).name: 5 for rank in range(RANKS)})
        assert update.dataset.ops.height == 5 * RANKS
        assert update.dataset.ops.select("rank", "seq").is_unique().all()
        assert (update.reading.polled_s is None) == (poll_s is None)


def test_what_is_written_slowly_is_shown_when_it_is_whole(dumps: Path, writer: Writer, running: Running) -> None:
    clock = HandClock()
    running.step(4)
    with Following(dumps, clock=clock) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 4 * RANKS)
        running.step(300)
        whole = running.draft(1).read_bytes()
        writer.do("truncate", target(dumps, 1))
        for at in range(0, len(whole), PIECE):
            (piece := dumps.parent / "piece").write_bytes(whole[at : at + PIECE])
            writer.do("append", piece, target(dumps, 1))
            following.seen(target(dumps, 1))
            # it is read again, and comes to its end before it would be called cut short
            following.turn(watched_file.SMALL_WAIT)
        update = following.until(lambda u: rows(u)[target(Path(), 1).name] == 304)
    assert {rows(u).get(target(Path(), 1).name) for u in following.updates} <= {None, 4, 304}
    assert not any(problems(u) for u in following.updates)
    assert len(update.dataset.ops) == 304 + 4 * (RANKS - 1)


def test_what_stays_cut_short_is_said_at_last(dumps: Path, writer: Writer, running: Running) -> None:
    clock = HandClock()
    running.step(50)
    with Following(dumps, clock=clock) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 50 * RANKS)
        writer.do("part", running.draft(2), target(dumps, 2), 0.5)
        following.seen(target(dumps, 2))
        # a reading in the middle of the write is repeated after a wait
        following.turn(watched_file.SMALL_WAIT)
        following.until_read(lambda r: r.writing == 1)
        name = target(Path(), 2).name
        assert not any(map(problems, following.turn(watched_file.SETTLED_S - watched_file.SMALL_WAIT - 0.1)))
        update = following.turn(0.1)[-1]
        assert name in problems(update) and 0 < rows(update)[name] < 50
        writer.do("copy", running.draft(2), target(dumps, 2))
        following.seen(target(dumps, 2))
        following.turn(watched_file.SMALL_WAIT)
        following.until(lambda u: not problems(u))


def test_an_empty_file_of_a_full_disk_is_survived(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(5)
    with Following(dumps, clock=HandClock()) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 5 * RANKS)
        writer.do("truncate", target(dumps, 0))
        assert not any(map(problems, following.seen(target(dumps, 0))))
        update = following.turn(watched_file.SETTLED_S)[-1]
        assert problems(update) == {target(Path(), 0).name: "empty file"}
        assert update.dataset.seen_ranks == (1, 2, 3)


def test_deleted_files_go_and_come_back(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(3)
    with Following(dumps) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        writer.do("delete", target(dumps, 3))
        following.until(lambda u: u.dataset.seen_ranks == (0, 1, 2))
        writer.do("replace", running.draft(3), target(dumps, 3))
        following.until(lambda u: u.dataset.seen_ranks == (0, 1, 2, 3))


def test_one_that_is_deleted_only_to_be_written_again_never_goes(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(3)
    with Following(dumps, clock=HandClock()) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        running.step()
        count = len(following.updates)
        writer.do("delete", target(dumps, 3))
        following.missed(target(dumps, 3))
        following.turn(file_store.GRACE_S - 0.1)
        writer.do("copy", running.draft(3), target(dumps, 3))
        following.seen(target(dumps, 3))
        following.turn(file_store.GRACE_S)
        assert rows(following.updates[-1]).get(target(Path(), 3).name) == 4
        assert all(3 in u.dataset.seen_ranks for u in following.updates[count:])


def test_a_renamed_dump_is_not_read_again(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(3)
    with Following(dumps) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        read = following.watcher.bytes_read
        writer.do("rename", target(dumps, 0), dumps / "moved_rank_0")
        following.until(lambda u: "moved_rank_0" in rows(u) and target(Path(), 0).name not in rows(u))
        assert following.watcher.bytes_read == read


def test_only_what_changed_is_read(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(200)
    with Following(dumps) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 200 * RANKS)
        read = following.watcher.bytes_read
        running.step()
        draft = running.draft(1)
        writer.do("replace", draft, target(dumps, 1))
        following.until(lambda u: u.dataset.ops.height == 200 * RANKS + 1)
        assert following.watcher.bytes_read - read <= 2 * draft.stat().st_size


def test_many_files_at_once_are_all_there_with_the_first_update(tmp_path: Path, dumps: Path) -> None:
    many = Running(tmp_path / "drafts", ranks=60)
    many.step(5)
    for rank in range(60):
        many.draft(rank).rename(target(dumps, rank))
    with Following(dumps) as following:
        first = following.until(lambda _: True)
        assert first.dataset.seen_ranks == tuple(range(60))


def test_a_directory_that_goes_and_comes_back_is_said_and_survived(
    tmp_path: Path, dumps: Path, writer: Writer, running: Running
) -> None:
    running.step(3)
    with Following(dumps) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        writer.do("rename", dumps, tmp_path / "away")
        gone = following.until_read(lambda r: r.away)
        assert str(dumps) in gone.trouble and "what was read is shown" in gone.trouble
        assert following.updates[-1].dataset.ops.height == 3 * RANKS
        running.step()
        for rank in range(RANKS):
            writer.do("replace", running.draft(rank), target(tmp_path / "away", rank))
        writer.do("rename", tmp_path / "away", dumps)
        update = following.until(lambda u: u.dataset.ops.height == 4 * RANKS)
        assert update.reading.away is None
        running.step()
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 5 * RANKS)


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path, writer: Writer, running: Running) -> None:
    running.step(3)
    dumps = tmp_path / "later"
    with Following(dumps) as following:
        following.until_read(lambda r: r.away)
        writer.do("make", dumps)
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)


def test_a_restarted_job_takes_the_place_of_the_one_before(
    tmp_path: Path, dumps: Path, writer: Writer, running: Running
) -> None:
    running.step(20)
    with Following(dumps) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 20 * RANKS)
        again = Running(tmp_path / "drafts", "again", start_ns=running.ranks[0].clock + 2_000_000_000)
        again.step(2)
        writer.do("replace", again.draft(0), target(dumps, 0))
        update = following.until(lambda u: u.dataset.ops.height == 2)
        assert "earlier attempt" in problems(update)[target(Path(), 1).name]
        assert not update.analysis.is_critical
        write_all(writer, again, dumps)
        following.until(lambda u: u.dataset.ops.height == 2 * RANKS)


def test_a_single_file_can_be_followed(dumps: Path, writer: Writer, running: Running) -> None:
    running.step(3)
    write_all(writer, running, dumps)
    with Following(target(dumps, 2)) as following:
        following.until(lambda u: u.dataset.seen_ranks == (2,))
        running.step()
        writer.do("replace", running.draft(2), target(dumps, 2))
        following.until(lambda u: u.dataset.ops.height == 4)
