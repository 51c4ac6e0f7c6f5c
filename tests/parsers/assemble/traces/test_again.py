"""Traces beside dumps that go on: their tables are made once, and come to the same as made anew."""

from __future__ import annotations

from dataclasses import replace

from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.schema import Dataset
from tests.parsers.assemble.test_again import assert_equal, put_together
from tests.parsers.dumps import START_NS, Recorder, job
from tests.parsers.torch_profiler.documents import about, all_reduce, decoded, document, launch

TABLES = ("traced", "traces", "tracks", "spans")


class Job:
    """Two ranks with a trace and a dump each."""

    def __init__(self) -> None:
        self.recorders = job(2)
        self.files: dict[str, Source] = {}
        for rank in range(2):
            self.trace(rank, 3)
            self.dump(rank)

    def trace(self, rank: int, count: int) -> None:
        """A rank writes a trace of so many collectives."""
        events = [event for k in range(count) for event in [launch(200 * k, k + 1), *all_reduce(200 * k, k + 1)]]
        content = decoded(document(events, about(rank)))
        name = f"rank{rank}.pt.trace.json"
        self.files[name] = Source(name, "torch-profiler", count, START_NS, None, content)

    def dump(self, rank: int) -> None:
        """A rank goes on by one operation and dumps."""
        recorder: Recorder = self.recorders[rank]
        recorder.collective("0")
        data, name = recorder.pickle(), f"nccl_trace_rank_{rank}"
        self.files[name] = Source(name, "flight-recorder", len(data), START_NS, None, decode(data))

    def assembled(self, memory: Memory) -> Dataset:
        """What is put together with the memory of the last time, held against what is without."""
        sources = [self.files[name] for name in sorted(self.files)]
        found, anew = put_together(sources, memory), put_together(sources)
        assert_equal(found, anew)
        assert all(getattr(found, name).equals(getattr(anew, name)) for name in TABLES)
        return found


def same(one: Dataset, other: Dataset) -> list[str]:
    """The tables of traces that are the very same."""
    return [name for name in TABLES if getattr(one, name) is getattr(other, name)]


def test_a_dump_that_is_new_leaves_traces_alone() -> None:
    job, memory = Job(), Memory()
    first = job.assembled(memory)
    assert first.traced.height == 6
    job.dump(1)
    second = job.assembled(memory)
    assert same(first, second) == list(TABLES) and second.ops.height == first.ops.height + 1


def test_a_trace_that_is_new_is_seen() -> None:
    job, memory = Job(), Memory()
    first = job.assembled(memory)
    job.trace(1, 5)
    second = job.assembled(memory)
    assert same(first, second) == [] and second.traced.height == 8


def test_groups_that_are_new_number_traces_anew() -> None:
    job, memory = Job(), Memory()
    first = job.assembled(memory)
    del job.files["rank0.pt.trace.json"]
    second = job.assembled(memory)
    assert same(first, second) == [] and second.traced.height == 3
    for name in [name for name in job.files if name.endswith("json")]:
        del job.files[name]
    assert job.assembled(memory).traced.is_empty() and memory.traces is None


def test_a_host_that_only_dumps_tell_of_is_told_of_the_trace() -> None:
    job, memory = Job(), Memory()
    first = job.assembled(memory)
    moved = job.files.pop("nccl_trace_rank_0")
    # sorted where it was, so that no file has another number
    job.files["nccl/node-7/nccl_trace_rank_0"] = replace(moved, shown="nccl/node-7/nccl_trace_rank_0")
    second = job.assembled(memory)
    assert first.traces["host"].to_list() == ["", ""] and second.traces["host"].to_list() == ["node-7", ""]
    assert same(first, second) == ["traced", "tracks", "spans"]
    assert same(second, job.assembled(memory)) == list(TABLES)
