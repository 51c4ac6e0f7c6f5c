"""Dumps are cut to the memory: the same in any order, without a wrong accusation, and never without a word."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis import analyse
from rankscope.assemble import read_parts
from rankscope.assemble.held_sources import NoMemoryError, RingRoom, SparseReading, needed_bytes
from rankscope.assemble.load import InputError, LoadOptions, load
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.input_kinds import DUMP
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.ring_cut import RingChoice, cut_ring
from rankscope.report.json import render_json
from rankscope.schema import Dataset
from tests.assemble.test_read_parts import COVERING, culprits, scenario
from tests.parsers.dumps import Groups, Recorder
from tests.simulator.options import ALL_MODES

GROUPS: Groups = {"0": ("default_pg", [0, 1])}
SPARSE = LoadOptions(detail="collectives")


def source(completed: int, pending: int = 0) -> SourceFile:
    """A file with a dump of so many operations."""
    recorder = Recorder(0, GROUPS)
    for place in range(completed + pending):
        recorder.collective("0", state="completed" if place < completed else "scheduled")
    return SourceFile("dump", DUMP.name, 1, 1, None, decode_dump(recorder.pickle()))


def rows(one: SourceFile) -> int:
    """The entries that a file holds."""
    assert one.dump is not None
    return one.dump.rows


def needed(sources: list[SourceFile], last: int) -> int:
    """The memory of files with the last entries of each dump."""
    dumps = [one.dump for one in sources if one.dump is not None]
    return sum(needed_bytes(cut_ring(dump, RingChoice(last))) for dump in dumps)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_the_cut_depends_on_the_dumps_and_not_on_their_order(
    counts: list[tuple[int, int]], data: st.DataObject
) -> None:
    files = [source(*count) for count in counts]
    least, most = needed(files, 1), needed(files, 1 << 10)
    memory = data.draw(st.integers(least, most + 1))
    room, other = RingRoom(memory), RingRoom(memory)
    for one in files:
        room.take(SourceFile("dump", DUMP.name, 1, 1, None, one.dump))
    for one in (ours := [files[i] for i in data.draw(st.permutations(range(len(files))))]):
        other.take(one)
    assert room.last == other.last
    whole = [source(*count) for count in counts]
    fitting = [1 << power for power in range(10) if needed(whole, 1 << power) <= memory]
    assert room.last == (None if most <= memory else max(fitting))
    assert needed(ours, 1 << 10) <= memory


def test_dumps_without_room_for_an_entry_are_refused_by_name() -> None:
    room = RingRoom(50_000)
    with pytest.raises(NoMemoryError, match=r"3 dumps need .* of memory even with their last entries only.*--ranks"):
        for _ in range(3):
            room.take(source(5))
    room = RingRoom(50_000)
    with pytest.raises(NoMemoryError):
        room.take(source(1, pending=500))  # who waits for whom stays whole


def test_a_part_that_turns_out_damaged_takes_no_room() -> None:
    room = RingRoom(needed([source(40)], 40) + 1000)
    room.take(source(40))
    room.forget(0)
    room.take(last := source(40))
    assert (room.last, rows(last)) == (None, 40)


def test_facts_of_a_dump_before_its_cut_are_forgotten() -> None:
    one = source(40)
    assert one.complete is not None and one.complete.wrapped is False
    room = RingRoom(needed([one], 16))
    room.take(one)
    assert (room.last, one.complete.wrapped) == (16, True)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job in which a host stopped."""
    scenario("host-stuck", "full").write(tmp_path, ALL_MODES["full"])
    return tmp_path


def memory_for(job: Path, last: int) -> int:
    """Memory for the last entries of each dump of a job, and not for twice as many."""
    room = load([job], LoadOptions(last=last, jobs=1)).ops.height
    dumps = [decode_dump(path.read_bytes()) for path in sorted(job.iterdir())]
    assert sum(cut_ring(dump, RingChoice(last)).rows for dump in dumps) == room
    return sum(needed_bytes(cut_ring(dump, RingChoice(last))) for dump in dumps)


def dumps_in_memory() -> int:
    """Number of dumps that anything holds."""
    gc.collect()
    return sum(isinstance(one, Dump) for one in gc.get_objects())


def report(dataset: Dataset) -> bytes:
    """The JSON report."""
    return render_json(dataset, analyse(dataset), False)


def test_a_job_larger_than_the_memory_is_judged_by_the_last_entries(job: Path) -> None:
    whole, last = load([job]), 32
    assert last < COVERING
    cut = load([job], LoadOptions(memory=memory_for(job, last)))
    asked = load([job], LoadOptions(last=last))
    assert cut.ops.equals(asked.ops) and cut.ops.height < whole.ops.height
    assert (cut.parts.words, cut.parts.cuts_rings) == ("the last 32 entries of each dump, as memory is short", True)
    said = analyse(cut)
    assert said.verdict.endswith("(read: the last 32 entries of each dump, as memory is short)")
    assert culprits(said) == culprits(analyse(whole))
    assert report(cut).replace(b", as memory is short", b"") == report(asked)


def test_a_job_that_fits_is_read_as_ever(job: Path) -> None:
    assert report(load([job], LoadOptions(memory=1 << 30))) == report(load([job]))
    asked = LoadOptions(last=8)
    assert report(load([job], replace(asked, memory=memory_for(job, 8)))) == report(load([job], asked))


def test_a_wish_of_the_user_may_be_too_much_too(job: Path) -> None:
    cut = load([job], LoadOptions(last=30, memory=memory_for(job, 16)))
    assert cut.parts.words == "the last 16 entries of each dump, as memory is short"
    with pytest.raises(InputError, match="even with their last entries only"):
        load([job], LoadOptions(memory=10_000))


def test_the_variable_of_the_user_must_be_a_size(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.assemble.held_sources.SMALL_BYTES", 0)
    monkeypatch.setenv("RANKSCOPE_MEMORY", "all")
    with pytest.raises(InputError, match="RANKSCOPE_MEMORY='all' is no size"):
        load([job])


def test_the_second_reading_has_the_room_of_the_first(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_parts, "FEWEST_EARLY_ROWS", 1)
    monkeypatch.setattr(read_parts, "EARLY_ENTRIES", 4)
    kept, options = SparseReading(), replace(SPARSE, memory=memory_for(job, 32))
    before = dumps_in_memory()
    first = load([job], options, kept=kept)
    assert (first.parts.words, first.parts.whole_follows) == ("the last 4 entries of each dump", True)
    second = load([job], LoadOptions(), kept=kept)
    assert dumps_in_memory() == before, "nothing holds what was assembled"
    assert (second.parts.words, second.parts.whole_follows) == (
        "the last 32 entries of each dump, as memory is short", False,
    )  # fmt: skip
    assert second.ops.equals(load([job], LoadOptions(last=32)).ops)
    narrow = load([job], replace(SPARSE, memory=memory_for(job, 4)), kept=SparseReading())
    assert not narrow.parts.whole_follows, "an early verdict would hold no fewer entries"
