"""Traces that come while a job is watched: shown as if they had been there, and judged with the others later."""

from __future__ import annotations

import copy
import random
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.live import SILENT_NS
from rankscope.commands.crossing import Receiver, Sender
from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.parsers.torch_profiler.model import NUMBERS, TraceContent
from rankscope.schema import Dataset
from rankscope.tui.live.prepared import Prepared
from rankscope.tui.traces.activity import NOTHING
from rankscope.tui.traces.lanes import TraceLanes, build_lanes
from rankscope.tui.traces.run import TracedRun
from rankscope.watching.job import Job
from rankscope.watching.pace import MORE_NS, PART, SOON_NS
from tests.parsers.dumps import START_NS
from tests.parsers.dumps import job as recorders
from tests.parsers.torch_profiler.documents import Event, about, all_reduce, decoded, document, kernel, launch, x
from tests.watching import printing
from tests.watching.printing import SECOND, Logs, Watched, apart

RANKS, WINDOWS, STEPS = 4, 4, 5
APART_US = 100_000
GROUPS = (("0", (0, 1, 2, 3)), ("1", (0, 1)), ("2", (2, 3)))
SHORT = [("start", "end"), ("depth", "activity", "op", "name", "longest", "numbers", "bounds", "shift")]


class Traces:
    """Traces of four ranks, some of which come later, and dumps beside them if there are any."""

    def __init__(self, seed: int = 0, *, ranks: int = RANKS, dumps: bool = False) -> None:
        self.chance, self.clock, self.files = random.Random(seed), START_NS, dict[str, Source]()
        self.late_us: dict[int, float] = {}
        """By rank how late its clock is."""
        self.recorders = recorders(RANKS) if dumps else []
        for rank in range(ranks):
            for window in range(WINDOWS):
                self.trace(rank, window)
        self.dump()

    def trace(self, rank: int, window: int, *, name: str = "", stream: int = 7) -> None:
        """A rank writes a trace of some steps."""
        begin, events = window * APART_US + self.late_us.get(rank, 0.0), list[Event]()
        for step in range(STEPS):
            at, number = begin + 1000 * step, 1 + 2 * (step + STEPS * window)
            wait = 30 + self.chance.random() * 40
            group, members = next((g, r) for g, r in GROUPS[1 + step % 2 :] + GROUPS[:1] if rank in r)
            events += [
                x("user_annotation", f"ProfilerStep#{step + STEPS * window}", at, 990),
                x("cpu_op", f"aten::op_{window}", at + 5, 200), launch(at + 10, number),
                kernel(f"compute_{step}", at + 15 + self.chance.random(), 50, number, stream=stream),
                *all_reduce(at + 300, number + 1, wait=wait, dur=200, group=group, ranks=members),
            ]  # fmt: skip
        content = decoded(document(events, _about(rank)))
        shown = name or f"rank{rank}_{window}.pt.trace.json"
        self.files[shown] = Source(shown, "torch-profiler", len(events), self.clock, None, content)

    def bare(self, rank: int, window: int) -> None:
        """A rank writes a trace in which nothing communicates."""
        shown, events = f"rank{rank}_{window}.json", [x("cpu_op", "aten::add", window * APART_US, 200)]
        content = decoded(document(events, _about(rank)))
        self.files[shown] = Source(shown, "torch-profiler", 1, self.clock, None, content)

    def dump(self) -> None:
        """All ranks go on and dump."""
        for recorder in self.recorders:
            recorder.collective("0")
            name, data = f"nccl_trace_rank_{recorder.rank}", recorder.pickle()
            self.files[name] = Source(name, "flight-recorder", len(data), self.clock, None, decode(data))

    def sources(self) -> list[Source]:
        """All files."""
        return [self.files[name] for name in sorted(self.files)]

    def anew(self) -> Dataset:
        """What comes of them at the first look."""
        return assemble([source.renewed() for source in self.sources()], "dumps", None, None, None)


def _about(rank: int) -> dict[str, object]:
    head = about(rank, groups=GROUPS)
    head["distributedInfo"]["world_size"] = RANKS
    return head


class Looked(Watched):
    """What is said of them."""

    def __init__(self, traces: Traces) -> None:
        self.traces, self.job, self.number = traces, Job("dumps", None, None, None), 0
        self.logs = traces  # type: ignore[assignment]
        here, there = Pipe()
        self.sender, self.receiver = Sender(here), Receiver(there)
        self.prepared: Prepared | None = None
        self.look(judge=True)

    def _send(self, prepared: Prepared) -> Prepared:
        got = super()._send(prepared)
        assert_same_lanes(got.model.traces, prepared.model.traces)
        for name in ("traced", "traces", "tracks", "spans", "files"):
            assert getattr(got.update.dataset, name).equals(getattr(prepared.update.dataset, name)), name
        return got


def assert_same_lanes(one: TraceLanes | None, other: TraceLanes | None) -> None:
    """Two that draw the same."""
    assert one is not None and other is not None
    for name in (*SHORT[0], *SHORT[1]):
        assert np.array_equal(getattr(one.spans, name), getattr(other.spans, name)), name
    assert one.spans.names == other.spans.names
    for name in ("bounds", "start", "end", "before"):
        assert np.array_equal(getattr(one.cover, name), getattr(other.cover, name)), name
    assert np.array_equal(one.key_of, other.key_of) and np.array_equal(one.ranks, other.ranks)
    assert (one.strands, one.low, one.high) == (other.strands, other.low, other.high)


def rows_of(dataset: Dataset) -> list[pl.DataFrame]:
    """The tables of traces, with paths instead of numbers of files, and whatever hangs on the order of files."""
    path = dataset.files.select("file", "path", "rank", "kind", "used", "rows", "problem")
    named = path.select("file", "path")
    tracks = dataset.tracks.join(named, on="file").drop("file")
    ops = dataset.traced.with_row_index("row").join(named, on="file").drop("file")
    spans = dataset.spans.join(tracks.select("track", "path", "device", "lane"), on="track")
    own = ops.select(op=pl.col("row").cast(spans.schema["op"]), run="record_id")
    spans = spans.join(own, on="op", how="left", maintain_order="left").drop("track", "op")
    windows = dataset.traces.join(named, on="file").drop("file")
    tables = [path.drop("file"), tracks.drop("track"), ops.drop("row"), windows, spans]
    return [table.sort("path", maintain_order=True) for table in tables]


def assert_among_the_others(prepared: Prepared, traces: Traces) -> None:
    """What was shown is what would be shown of all of it, whatever all together tell."""
    dataset, lanes = prepared.update.dataset, prepared.model.traces
    for found, expected in zip(rows_of(dataset), rows_of(traces.anew()), strict=True):
        assert found.equals(expected)
    assert lanes is not None and lanes.dataset is dataset
    assert_same_lanes(lanes, build_lanes(dataset, prepared.update.analysis))
    told, files = prepared.update.analysis.traces, set(dataset.traces["file"])
    assert told is not None
    assert set(told.steps["file"]) == set(told.kernels["file"]) == set(told.launches["file"]) == files


@pytest.mark.parametrize("dumps", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_trace_that_comes_is_shown_as_if_it_had_been_there(seed: int, dumps: bool) -> None:
    traces = Traces(seed, dumps=dumps)
    watched = Looked(traces)
    for window, rank in enumerate(traces.chance.sample(range(RANKS), 2), WINDOWS):
        traces.trace(rank, window)
        prepared = watched.look(after_ns=SECOND // 2)
        assert prepared.update.ranks == frozenset()
        assert_among_the_others(prepared, traces)
    judged = watched.look(judge=True)
    for found, expected in zip(rows_of(judged.update.dataset), rows_of(traces.anew()), strict=True):
        assert found.equals(expected)
    assert judged.update.dataset.files["path"].is_sorted()


def test_threads_that_are_new_and_names_that_come_first() -> None:
    traces = Traces()
    watched = Looked(traces)
    traces.trace(0, WINDOWS, name="a.json", stream=3)
    traces.trace(2, WINDOWS, name="b.json", stream=9)
    assert_among_the_others(watched.look(), traces)


def test_the_first_trace_of_a_rank() -> None:
    traces = Traces(ranks=3)
    watched = Looked(traces)
    traces.trace(3, WINDOWS)
    prepared = watched.look()
    assert prepared.update.ranks == frozenset()
    assert_among_the_others(prepared, traces)


def test_what_came_is_judged_soon() -> None:
    traces = Traces()
    watched = Looked(traces)
    traces.trace(1, WINDOWS)
    assert watched.look(after_ns=SECOND).update.ranks == frozenset()
    due = watched.job.judge_at_ns(away=True)
    assert due is not None and due <= traces.clock + max(SOON_NS, MORE_NS)
    judged = watched.look(after_ns=2 * SOON_NS, written=False, judge=True)
    assert watched.job.judge_at_ns(away=True) is None
    told, anew = judged.update.analysis.traces, analyse(traces.anew()).traces
    assert told is not None and anew is not None
    assert told.offsets == anew.offsets and told.matched.equals(anew.matched) and told.steps.equals(anew.steps)


def test_of_traces_alone_the_same_is_said_as_without_watching() -> None:
    traces = Traces()
    said, anew = Looked(traces).look(judge=True).update, analyse(traces.anew())
    assert (said.analysis.status, said.analysis.verdict) == (anew.status, anew.verdict)
    assert anew.status == "healthy" and said.live.state == "waiting"


def test_that_no_more_traces_come_alarms_nobody() -> None:
    traces = Traces(ranks=1)
    watched = Looked(traces)
    for window in range(WINDOWS, WINDOWS + 3):
        traces.trace(0, window)
        watched.look(judge=True)
    quiet = watched.look(after_ns=2 * SILENT_NS, written=False, judge=True).update
    assert quiet.live.state == "silent" and quiet.live.came and quiet.analysis.status == "unknown"
    assert not watched.job.alarm(quiet.analysis, quiet.live)


def test_steps_are_marked_on_the_clock_of_the_lanes() -> None:
    traces = Traces(ranks=2)
    traces.late_us = {1: 2_000.0}
    for window in range(WINDOWS):
        traces.trace(1, window)
    watched = Looked(traces)
    traces.trace(1, WINDOWS)
    prepared = watched.look(after_ns=SECOND // 2)
    told, lanes = prepared.update.analysis.traces, prepared.model.traces
    assert prepared.update.ranks == frozenset() and told is not None and lanes is not None
    new = prepared.update.dataset.traces["file"][-1]
    assert told.offsets[new] in [offset for file, offset in told.offsets.items() if file != new and offset]
    marked = told.steps.filter(pl.col("file") == new)["start_ns"].to_list()
    shown = [lanes.spans.times(span)[0] for span in np.flatnonzero(lanes.spans.activity == NOTHING).tolist()]
    assert marked and set(marked) <= set(shown)


def test_a_trace_that_comes_to_logs_that_are_silent_is_judged_at_once(tmp_path: Path) -> None:
    logs = Logs(tmp_path, apart, sends=False)
    watched = printing.Watched(logs)
    for window in range(2 * PART):
        source = _one(window % 2, window // 2)
        logs.dumps[source.shown] = source
    for rank in (0, 1, 3):
        logs.step(rank)
    watched.look(judge=True)
    silent = watched.look(after_ns=2 * SILENT_NS, written=False, judge=True).update
    assert silent.live.state == "silent" and "rank 2 never issued" in silent.analysis.verdict
    source = _one(0, PART)
    logs.dumps[source.shown] = source
    assert watched.look().update.ranks is None


def _one(rank: int, window: int) -> Source:
    traces = Traces(ranks=0)
    traces.trace(rank, window)
    return next(iter(traces.files.values()))


def test_traces_without_operations() -> None:
    """They are all that is known of the ranks: those without a trace are still missing."""
    traces = Traces(ranks=0)
    for at in range(3 * WINDOWS):
        traces.bare(at % 3, at // 3)
    watched = Looked(traces)
    traces.bare(1, WINDOWS)
    prepared = watched.look()
    assert prepared.update.ranks == frozenset()
    assert isinstance(prepared.model.dataset, TracedRun) and prepared.model.dataset.missing_ranks == (3,)


def test_a_trace_whose_name_and_content_tell_two_ranks() -> None:
    """All say that they are of rank 0, so that names are believed."""
    traces = Traces(ranks=0)
    for window in range(WINDOWS):
        for rank in range(RANKS):
            traces.trace(0, window, name=f"rank{rank}_{window}.json")
    watched = Looked(traces)
    assert watched.job.dataset.traces["rank"].to_list() == sorted(list(range(RANKS)) * WINDOWS)
    traces.trace(0, WINDOWS, name=f"rank1_{WINDOWS}.json")
    prepared = watched.look()
    assert prepared.update.ranks is None
    assert prepared.update.dataset.traces["rank"].to_list() == sorted([*list(range(RANKS)) * WINDOWS, 1])


def test_what_else_stood_in_a_file_of_the_same_size_and_time_is_forgotten() -> None:
    traces = Traces()
    watched = Looked(traces)
    known = traces.files["rank1_1.pt.trace.json"]
    content = copy.copy(known.content)
    assert isinstance(content, TraceContent)
    content.numbers = content.numbers.copy()
    start, length = (content.numbers[NUMBERS.index(name)] for name in ("start_ns", "duration_ns"))
    length[start + length < (start + length).max()] -= 7
    traces.files[known.shown] = Source(known.shown, known.kind, known.size, known.mtime_ns, None, content)
    told, anew = watched.look(judge=True).update.analysis.traces, analyse(traces.anew()).traces
    assert told is not None and anew is not None and told.kernels.equals(anew.kernels)


@pytest.mark.parametrize("what", ["copy", "same time", "unknown group", "many", "gone"])
def test_what_may_change_what_is_told_of_others_is_put_together_with_them(what: str) -> None:
    traces = Traces()
    watched = Looked(traces)
    if what == "copy":
        known = traces.files["rank1_1.pt.trace.json"]
        traces.files["z.json"] = Source("z.json", known.kind, known.size, traces.clock, None, known.content)
    elif what == "same time":
        traces.trace(1, 2, name="z.json")
    elif what == "unknown group":
        events = all_reduce(WINDOWS * APART_US, 1, group="9", ranks=(0, 3))
        traces.files["z.json"] = Source("z.json", "torch-profiler", 1, 1, None, decoded(document(events, _about(0))))
    elif what == "many":
        for rank in range(RANKS * WINDOWS // PART + 1):
            traces.trace(rank, WINDOWS)
    else:
        traces.trace(1, WINDOWS)
        assert watched.look(after_ns=SECOND // 2).update.ranks == frozenset()
        del traces.files[f"rank1_{WINDOWS}.pt.trace.json"]
    prepared = watched.look(after_ns=SECOND // 2)
    assert prepared.update.ranks is None
    for found, expected in zip(rows_of(prepared.update.dataset), rows_of(traces.anew()), strict=True):
        assert found.equals(expected)
