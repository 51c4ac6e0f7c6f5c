"""Files of a captured job that are placed again: only what is new is looked at, and it comes to the same."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest

from rankscope.parsers.assemble import snapshots
from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.py_spy_ranks import Seen
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.parsers.logs.model import LogContent
from rankscope.parsers.members import members
from rankscope.parsers.sidecar.model import Card, CardGroup
from tests.parsers.assemble.test_again import assert_equal, put_together
from tests.parsers.dumps import START_NS, Recorder, job

RANKS = 4
WORLD = CardGroup("0", "default_pg", "gloo", members(range(RANKS)))


class Captured:
    """The files that the capture leaves of a job: of each rank the newest dump, two before it, and a sidecar."""

    def __init__(self) -> None:
        self.recorders = job(RANKS, library="gloo")
        self.files: dict[str, Source] = {}
        self.turns = [0] * RANKS
        for rank in range(RANKS):
            for _ in range(3):
                self.write(rank)
        self.files["notes.txt"] = Source("notes.txt", "unknown", 3, 1, "nothing that is read")
        self.files["fr_trace_rank_9"] = Source("fr_trace_rank_9", "empty", 0, 1, "empty file")

    def write(self, rank: int, **told: Any) -> None:
        """A rank goes on by one operation and dumps."""
        recorder, name = self.recorders[rank], f"fr_trace_rank_{rank}"
        before = self.files.get(name)
        if before is not None:
            slot = f"history/{1 + self.turns[rank] % 2}_{name}"
            self.files[slot] = Source(slot, before.kind, before.size, before.mtime_ns, None, before.content)
        recorder.collective("0")
        self.turns[rank] += 1
        self.files[name] = self.dump(name, recorder)
        self.card(rank, **told)

    def dump(self, name: str, recorder: Recorder) -> Source:
        data, turn = recorder.pickle(), self.turns[recorder.rank]
        return Source(name, "flight-recorder", len(data), START_NS + turn * 10**9, None, decode(data))

    def card(self, rank: int, **told: Any) -> None:
        """A rank writes its sidecar anew."""
        given = {"world_size": RANKS, "host": "node", "pid": 7 + rank, "delay_ns": self.turns[rank], **told}
        name = f"capture_rank_{rank}.json"
        content = Card(rank, dumps=[f"fr_trace_rank_{rank}"], groups=[WORLD], **given)
        self.files[name] = Source(name, "sidecar", 1, self.turns[rank], None, content)

    @property
    def sources(self) -> list[Source]:
        return [self.files[name] for name in sorted(self.files)]


@pytest.fixture
def captured() -> Captured:
    return Captured()


def check(captured: Captured, memory: Memory, *, again: bool) -> None:
    """Assembles with and without what is remembered."""
    found = assemble(captured.sources, "dumps", None, None, None, memory)
    assert_equal(found, put_together(captured.sources))
    assert memory.placed is not None and (memory.placed.fresh is not None) == again
    pristine = [(source.rank, source.used, source.note) for source in captured.sources]
    assert pristine == [(None, False, None)] * len(pristine)


def test_what_goes_on_keeps_its_place(captured: Captured) -> None:
    memory, chance = Memory(), random.Random(3)
    check(captured, memory, again=False)
    for _ in range(8):
        for rank in chance.sample(range(RANKS), chance.randint(0, 3)):
            captured.write(rank)
        check(captured, memory, again=True)


def test_only_the_files_of_the_rank_that_wrote_are_new(captured: Captured) -> None:
    memory = Memory()
    check(captured, memory, again=False)
    captured.write(2)
    check(captured, memory, again=True)
    assert memory.placed is not None and memory.placed.fresh is not None
    names = {captured.sources[place].shown for place in memory.placed.fresh}
    own = {"fr_trace_rank_2", "history/1_fr_trace_rank_2", "history/2_fr_trace_rank_2", "capture_rank_2.json"}
    assert names == {*own, "fr_trace_rank_9"}


def test_the_end_of_a_process_is_news_and_moves_nothing(captured: Captured) -> None:
    memory = Memory()
    check(captured, memory, again=False)
    captured.card(1, ended="exception", error="ValueError: no")
    check(captured, memory, again=True)


def test_another_rank_another_process_and_another_file_are_placed_anew(captured: Captured) -> None:
    memory = Memory()
    check(captured, memory, again=False)
    other = deepcopy(captured.files["capture_rank_1.json"])
    assert isinstance(other.content, Card)
    other.content.rank = 8
    captured.files["capture_rank_1.json"] = other
    check(captured, memory, again=False)
    captured.card(1, pid=70)
    check(captured, memory, again=False)
    captured.recorders[0] = job(RANKS, library="gloo", start_ns=START_NS + 3600 * 10**9)[0]
    captured.recorders[0].collective("0")
    captured.files["fr_trace_rank_0"] = captured.dump("fr_trace_rank_0", captured.recorders[0])
    check(captured, memory, again=False)
    del captured.files["history/1_fr_trace_rank_3"]
    check(captured, memory, again=False)


def test_where_runs_are_told_apart_by_time_nothing_is_taken_for_granted(captured: Captured) -> None:
    former = job(RANKS, library="gloo", start_ns=START_NS - 3600 * 10**9, thread="1")[0]
    former.collective("0")
    captured.files["old/fr_trace_rank_0"] = captured.dump("old/fr_trace_rank_0", former)
    memory = Memory()
    check(captured, memory, again=False)
    captured.write(2)
    check(captured, memory, again=False)


def test_where_dumps_and_sidecars_are_all_there_is_only_the_new_ones_are_put_together(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    del captured.files["fr_trace_rank_9"]
    memory, chance = Memory(), random.Random(5)
    whole: list[int] = []
    settle = snapshots.settle

    def counted(*args: Any) -> list[Seen]:
        whole.append(1)
        return settle(*args)

    monkeypatch.setattr(snapshots, "settle", counted)
    check(captured, memory, again=False)
    for _ in range(6):
        ranks = chance.sample(range(RANKS), chance.randint(0, 3))
        for rank in ranks:
            captured.write(rank)
        check(captured, memory, again=True)
        assert memory.renewed == frozenset(ranks)
    assert len(whole) == 8, "once with what is remembered, and each time to compare"
    captured.card(1, ended="exit")
    check(captured, memory, again=True)
    assert len(whole) == 10, "a sidecar says how its process ended"
    captured.card(1)
    check(captured, memory, again=True)
    assert len(whole) == 12, "and that it has not"
    captured.files["notes.txt"] = Source("notes.txt", "log", 3, 1, None, LogContent())
    check(captured, memory, again=True)
    captured.write(1)
    check(captured, memory, again=True)
    assert len(whole) == 16, "a log may tell of any rank"
