"""A job that is watched: whatever its files do, the same is said of it as if logs and traces were new each time."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.stretches import GrowingLog
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.parsers.files.reader import follow_log
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.tui.model import Items
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watched_job import WatchedJob
from tests.features.logs.read.test_decode import job as noisy
from tests.features.traces.read.documents import about, all_reduce, decoded, document, launch
from tests.parsers.dumps import START_NS, job
from tests.watching.test_logs import CRASH

RANKS, SECOND = 4, 10**9
STEPS = 16
SEEDS = (88, 2539)
"""In the steps of these seeds every kind of change happens, a failure early on, in 28 of 49 orders of two."""
PRINTED = noisy(2, 5)
LOSSES = ["[rank1]: step 3 loss 2.5", "epoch 1: 40%|####      | 4/10 [00:04<00:06, 1.00it/s]"]


class Files:
    """What lies in the directory of a job, changed by one of several things at a time."""

    def __init__(self, folder: Path, seed: int, ranks: int = RANKS, printed: list[str] = PRINTED) -> None:
        self.chance, self.recorders, self.clock = random.Random(seed), job(ranks), START_NS + SECOND
        self.files: dict[str, SourceFile] = {}
        self.log, self.growing, self.traced = folder / "job.log", GrowingLog(), 2
        self.log.write_text("")
        self.many()
        self.say(printed)

    def many(self) -> None:
        """All ranks go on and dump."""
        for recorder in self.recorders:
            recorder.collective("0")
        for rank in range(len(self.recorders)):
            self.dump(rank)

    def dump(self, rank: int) -> None:
        """A rank dumps as it is."""
        data, name = self.recorders[rank].pickle(ring=6), f"nccl_trace_rank_{rank}"
        self.files[name] = SourceFile(name, "flight-recorder", len(data), self.clock, None, decode_dump(data))

    def say(self, lines: list[str]) -> None:
        """The job prints."""
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        for one in follow_log(str(self.log), self.growing.start, self.growing.mark, False):
            if one.stretch is not None:
                assert isinstance(one.decoded, LogContent)
                self.growing.add(one.decoded, one.stretch)
        size, content = self.log.stat().st_size, self.growing.content()
        self.files["job.log"] = SourceFile("job.log", "log", size, self.clock, None, content)

    def trace(self) -> None:
        """A rank writes a longer trace."""
        rank, self.traced = self.chance.randrange(2), self.traced + 1
        events = [e for k in range(self.traced) for e in [launch(200 * k, k + 1), *all_reduce(200 * k, k + 1)]]
        name = f"rank{rank}.pt.trace.json"
        self.files[name] = SourceFile(
            name, "torch-profiler", 1, self.clock, None, decoded(document(events, about(rank)))
        )

    def again(self) -> None:
        """A rank writes what it wrote."""
        name = f"nccl_trace_rank_{self.chance.randrange(len(self.recorders))}"
        known = self.files[name]
        self.files[name] = SourceFile(name, known.kind, known.size, self.clock, None, known.content)

    def one(self) -> None:
        """A rank waits, and dumps."""
        rank = self.chance.randrange(len(self.recorders))
        self.recorders[rank].collective("0", state="started")
        self.dump(rank)

    def fail(self) -> None:
        """A rank fails, now and then."""
        self.say(CRASH if self.chance.random() < 0.2 else LOSSES)

    def change(self) -> str:
        """Something happens; what it was."""
        self.clock += SECOND
        acts: dict[str, Callable[[], None]] = {
            "all dump": self.many, "a trace": self.trace, "a dump again": self.again, "a dump": self.one,
            "chatter": lambda: self.say(LOSSES), "more chatter": lambda: self.say(LOSSES),
            "operations in the log": lambda: self.say(noisy(2, 6)), "a failure": self.fail,
        }  # fmt: skip
        name = self.chance.choice(list(acts))
        acts[name]()
        return name

    def sources(self, *, copied: bool) -> list[SourceFile]:
        """All files; logs and traces as copies, which are not the very same as before."""
        files = [self.files[name] for name in sorted(self.files)]
        return [_copied(source) if copied else source for source in files]


def _copied(source: SourceFile) -> SourceFile:
    if source.kind == "flight-recorder":
        return source
    return SourceFile(source.shown, source.kind, source.size, source.mtime_ns, None, copy.copy(source.content))


class Watched:
    """What is said of the files."""

    def __init__(self) -> None:
        self.job = WatchedJob("dumps", re.compile(r"nccl_trace_rank_(\d+)"), None, None)

    def look(self, sources: list[SourceFile], at_ns: int) -> Prepared:
        """After a change."""
        self.job.take(sources, at_ns)
        analysis, live = self.job.judge(at_ns, unread=False)
        return prepare(JobUpdate(1, self.job.dataset, analysis, live, FollowProgress(), 1))


def assert_same(one: Prepared, other: Prepared) -> None:
    """Two updates that say the same."""
    assert_same_said(one, other)
    assert _told(one.update.live) == _told(other.update.live)
    for field in fields(Items):
        assert np.array_equal(getattr(one.model.items, field.name), getattr(other.model.items, field.name)), field.name
    assert np.array_equal(one.overview, other.overview) and one.marks == other.marks
    lanes, others = one.model.timed, other.model.timed
    assert (lanes is None) == (others is None)
    if isinstance(lanes, TraceLanes) and isinstance(others, TraceLanes):
        assert np.array_equal(lanes.cover.before, others.cover.before)


def assert_same_said(one: Prepared, other: Prepared) -> None:
    """Two updates with the same operations, of which the same is said."""
    _same_tables(one.update.dataset, other.update.dataset)
    _same_analysis(one.update.analysis, other.update.analysis)


def _told(live: LiveState) -> tuple[Any, ...]:
    # how old files are is asked of the clock
    return live.state, live.rates, live.since_ns


def _same_tables(one: Dataset, other: Dataset) -> None:
    for field in fields(Dataset):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, pl.DataFrame):
            left_out = ["stack_id"] if "stack_id" in a.columns else []
            same = a.drop(left_out).equals(b.drop(left_out)) if field.name != "stacks" else True
        else:
            same = a == b
        assert same, field.name


def _same_analysis(one: Analysis, other: Analysis) -> None:
    for field in fields(Analysis):
        if field.name != "parts":
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert one.parts.keys() == other.parts.keys()
    for name, result in one.parts.items():
        for part in fields(result):
            x, y = getattr(result, part.name), getattr(other.parts[name], part.name)
            assert x.equals(y) if isinstance(x, pl.DataFrame) else x == y, f"{name}.{part.name}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_remembered_changes_nothing(tmp_path: Path, seed: int) -> None:
    files, remembering, anew = Files(tmp_path, seed), Watched(), Watched()
    done: list[str] = []
    for step in range(STEPS):
        at_ns = (step + 1) * 20 * SECOND
        first = remembering.look(files.sources(copied=False), at_ns)
        second = anew.look(files.sources(copied=True), at_ns)
        try:
            assert_same(first, second)
        except AssertionError as error:
            raise AssertionError(f"after {done}") from error
        done.append(files.change())
