"""A job of which most updates are only shown: once it is judged, the same is said as if it had been each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.members import members
from rankscope.parsers.sidecar.model import Card, CardGroup
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.tui.traces.lanes import build_lanes
from rankscope.watching.job import Job
from rankscope.watching.pace import LATE_NS, SOON_NS
from rankscope.watching.update import Reading, Update
from tests.parsers.logs.lines import info, life
from tests.parsers.torch_profiler.documents import about, all_reduce, decoded, document, launch
from tests.watching.test_anew import LOSSES, SECOND, Files, assert_same_said
from tests.watching.test_traces_come import assert_same_lanes

RANKS, STEPS, WINDOWS = 16, 25, 24
PAUSE_NS = SECOND // 2
PRINTED = [info(life(rank=rank, nranks=RANKS), pid=4000 + rank) for rank in range(RANKS)]


class Calm(Files):
    """Files of a job that goes on: few ranks write at a time, some of them with a sidecar, others print."""

    traces = 1
    """How often a trace is written."""

    def few(self) -> None:
        """A few ranks go on and dump."""
        for rank in self.chance.sample(range(RANKS), self.chance.randint(1, 2)):
            self.recorders[rank].collective("0")
            self.dump(rank)
            self.card(rank)

    def card(self, rank: int) -> None:
        """A rank tells who it is."""
        if rank % 2:
            return
        name, group = f"capture_rank_{rank}.json", CardGroup("0", "default_pg", "nccl", members(range(RANKS)))
        told = Card(rank, RANKS, "node", 7 + rank, delay_ns=self.clock, dumps=[f"nccl_trace_rank_{rank}"])
        told.groups = [group]
        self.files[name] = Source(name, "sidecar", 1, self.clock, None, told)

    def go_on(self) -> str:
        """Something happens; what it was."""
        self.clock += PAUSE_NS
        for recorder in self.recorders:
            recorder.clock = self.clock - SECOND // 10
        act = self.chance.choices([self.few, self.both, self.chatter, self.many, self.again, self.trace],
                                  [12, 6, 3, 2, 2, self.traces])[0]  # fmt: skip
        act()
        return act.__name__

    def chatter(self) -> None:
        """Lines that tell nothing."""
        self.say(LOSSES)

    def both(self) -> None:
        """Such lines, and dumps."""
        self.say(LOSSES)
        self.few()


class Traced(Calm):
    """The same where some ranks write traces: one for each time that their profiler ran."""

    def __init__(self, folder: Path, seed: int, ranks: int, printed: list[str]) -> None:
        super().__init__(folder, seed, ranks, printed)
        self.windows, self.traces = 0, 8
        for _ in range(WINDOWS):
            self.trace()

    def trace(self) -> None:
        """A rank writes another trace."""
        rank, at = self.windows % 2, 10_000 * (self.windows // 2)
        number = 1 + 3 * (self.windows // 2)
        events = [e for k in range(3) for e in [launch(at + 200 * k, 2 * k), *all_reduce(at + 200 * k, number + k)]]
        name, self.windows = f"trace_{self.chance.random()}_{rank}.json", self.windows + 1
        told = decoded(document(events, about(rank)))
        self.files[name] = Source(name, "torch-profiler", 1, self.clock, None, told)


class Watched:
    """What is said of the files."""

    def __init__(self, *, glances: bool) -> None:
        self.job, self.glances, self.number = Job("dumps", None, None, None), glances, 0
        self.prepared: Prepared | None = None

    def look(self, sources: list[Source], at_ns: int, *, judge: bool) -> Prepared:
        """After a change; it is judged if it has to be, or `judge`."""
        self.job.take(sources, at_ns)
        glance = self.job.glance(at_ns) if self.glances and not judge else None
        if glance is None:
            said, ranks = self.job.judge(at_ns, unread=False), None
        else:
            said, ranks = (glance.analysis, glance.live), glance.ranks
        self.number += 1
        self.prepared = prepare(Update(self.number, self.job.dataset, *said, Reading(), 1, ranks=ranks), self.prepared)
        return self.prepared


@pytest.mark.parametrize(("seed", "kind"), [(0, Calm), (1, Calm), (2, Calm), (3, Traced), (4, Traced), (5, Traced)])
def test_what_was_only_shown_changes_nothing_that_is_said_later(tmp_path: Path, seed: int, kind: type[Calm]) -> None:
    files = kind(tmp_path, seed, RANKS, PRINTED)
    one, other = Watched(glances=True), Watched(glances=False)
    if seed == 2:
        files.trace()
    for rank in range(RANKS):
        files.card(rank)
    done: list[str] = []
    shown = 0
    for step in range(STEPS):
        at_ns = (step + 1) * PAUSE_NS
        sources, judge = files.sources(copied=False), step % 5 == 4
        quick, slow = one.look(sources, at_ns, judge=judge), other.look(sources, at_ns, judge=True)
        try:
            if quick.update.ranks is None:
                assert_same_said(quick, slow)
            else:
                shown += 1
                assert quick.update.dataset.ops.drop("stack_id").equals(slow.update.dataset.ops.drop("stack_id"))
                assert quick.update.live.since_ns == slow.update.live.since_ns
                assert quick.update.live.rates == slow.update.live.rates
                assert_lanes_of_traces(quick)
        except AssertionError as error:
            raise AssertionError(f"after {done}") from error
        done.append(files.go_on())
    assert shown >= STEPS / 4


def assert_lanes_of_traces(prepared: Prepared) -> None:
    """Those of traces are as if they were laid out anew."""
    dataset, lanes = prepared.update.dataset, prepared.model.traces
    if lanes is not None:
        assert lanes.dataset is dataset
        assert_same_lanes(lanes, build_lanes(dataset, prepared.update.analysis))


class Going(Watched):
    """A job that goes on and was judged just now."""

    def __init__(self, folder: Path) -> None:
        super().__init__(glances=True)
        self.files = Calm(folder, 0, RANKS, [])
        for _ in range(3):
            self.files.clock += SECOND
            self.files.many()
            last = self.next(judge=True)
        assert last.update.live.state == "progressing"
        self.judged_ns = self.number * SECOND

    def next(self, *, judge: bool = False) -> Prepared:
        """What is there a second later."""
        return self.look(self.files.sources(copied=False), (self.number + 1) * SECOND, judge=judge)

    def write(self, *ranks: int, op: str = "all_reduce") -> None:
        """Some ranks go on and dump; the first of them issues something."""
        self.files.clock += SECOND
        for rank in ranks:
            self.files.recorders[rank].clock = self.files.clock - SECOND // 10
            self.files.recorders[rank].collective("0", op=op if rank == ranks[0] else "all_reduce")
            self.files.dump(rank)
        assert self.next().update.ranks == frozenset(ranks)

    @property
    def due_ns(self) -> int:
        """How long after it was judged all is judged again, if nothing else is written."""
        at_ns = self.job.judge_at_ns(away=True)
        assert at_ns is not None
        return at_ns - self.judged_ns


def test_what_few_ranks_wrote_is_judged_late_where_it_agrees(tmp_path: Path) -> None:
    going = Going(tmp_path)
    going.write(3)
    going.write(5)
    going.write(3)
    assert going.due_ns == LATE_NS


def test_what_ranks_wrote_in_several_updates_is_held_against_each_other(tmp_path: Path) -> None:
    going = Going(tmp_path)
    going.write(3, op="broadcast")
    assert going.due_ns == LATE_NS, "nobody else has issued anything there"
    going.files.recorders[5].collective("0")
    going.files.dump(5)
    assert going.next().update.analysis.status == "mismatch"


def test_what_differs_from_what_was_judged_is_judged_soon(tmp_path: Path) -> None:
    going = Going(tmp_path)
    for rank in range(RANKS // 2):
        going.files.recorders[rank].collective("0")
        going.files.dump(rank)
    going.next(judge=True)
    going.judged_ns = going.number * SECOND
    going.write(9, op="broadcast")
    assert going.due_ns == SOON_NS


def test_a_dump_that_shows_nothing_new_is_judged_soon(tmp_path: Path) -> None:
    going = Going(tmp_path)
    going.files.clock += SECOND
    going.files.dump(4)
    assert going.next().update.ranks == frozenset({4}) and going.due_ns == SOON_NS
