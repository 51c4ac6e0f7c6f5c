"""No key ends the app or a thread of it, on any page of any kind of job, while the job loads and when all is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.commands.rehearsal import write_script
from rankscope.commands.source import JobSource
from rankscope.commands.view import EXPORTS, export_report
from rankscope.features.comparison.page.comparison_app import ComparisonApp
from rankscope.features.comparison.rules.run_sides import WholeComparison
from rankscope.features.traces.perfetto import export_merged
from rankscope.schema import Dataset, ReadParts
from rankscope.tui.actions import ACTIONS
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import ProgressLike, ViewOptions
from rankscope.watching.update import FollowProgress
from tests.builders import JobBuilder
from tests.compiler_logs import with_rows
from tests.features.comparison.page.views import view_of
from tests.features.memory.rules.test_memory_findings import leak
from tests.features.stacks.test_stack_shares import profiled
from tests.features.traces.page.jobs import traced
from tests.logs import line, setting, with_logs
from tests.memory_writer import GIB, sampled_job, snapshot_job
from tests.model_writer import described_job, transformer
from tests.sessions.written import SAMPLES, session_of
from tests.tui.detail.number_jobs import flipped
from tests.tui.detail.samples import looked
from tests.tui.drive import LONGEST_S, PLAIN, until
from tests.tui.every_key import KeyWalk
from tests.tui.jobs import hang
from tests.tui.live import drive as live

SMALL = (60, 15)
"""Columns and lines: most of the time goes into drawing."""
LINES = [
    line(1, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "root", 0.006, kind="traceback"),
    *(line(r, f"[Rank {r}] Watchdog caught collective operation timeout", "victim", 0.2, kind="watchdog-timeout")
      for r in (0, 2, 3)),
    line(None, "Broken pipe", "context", None, host=None, kind="nccl-warning"),
]  # fmt: skip
SETTINGS = [setting(r, "NCCL_ALGO", "Tree" if r == 1 else "Ring") for r in range(4)]


def logs() -> Dataset:
    """Lines and settings of four ranks, and no operation."""
    empty = JobBuilder(4).build()
    blank = {name: getattr(empty, name).clear() for name in ("ops", "frontiers", "files")}
    return with_logs(replace(empty, **blank), LINES, SETTINGS)


JOBS: dict[str, Callable[[], Dataset]] = {
    "dumps": lambda: hang(4, 2, 2)[0],
    "logs": logs,
    "traces": lambda: traced()[0],
    "traces and logs": lambda: with_logs(traced()[0], LINES, SETTINGS),
    "dumps, stacks and logs": lambda: with_logs(looked()[0], LINES, SETTINGS),
    "samples of memory": lambda: sampled_job(leak),
    "memory snapshots": lambda: snapshot_job(lambda rank: {"forward": GIB, "keep": rank * GIB}),
    "numbers": lambda: flipped()[0],
    "model": lambda: described_job(lambda _: transformer(4)),
    "compilations": lambda: with_rows(hang(4, 2, 2)[0], [{"rank": 1, "start_ns": at} for at in range(5)]),
    "stacks over time": lambda: profiled({0: (100, 0), 1: (50, 0), 2: (20, 80)}),
}
"""A job of each kind of input."""
PARTIAL = ("dumps", "traces")
"""Jobs that are another one when all is read, and whose keys are pressed again."""
OWN_LANES = (*PARTIAL, "logs", "samples of memory")
"""Jobs whose lanes are of their own, or that have none; those of the others are the same."""
SAME = ("findings", "files", "groups", "mesh")
"""Views that these have, too, in the same way."""


def part_of(dataset: Dataset) -> Dataset:
    """The part of a job that is read first: the last entries of its dumps, collectives and steps of its traces."""
    known = pl.col("op").is_not_null() | pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")
    return replace(
        dataset,
        ops=dataset.ops.group_by("rank", maintain_order=True).tail(4),
        spans=dataset.spans.filter(known),
        traces=dataset.traces.with_columns(detail=pl.lit("collectives")),
        parts=ReadParts("the last 4 entries of each dump", cuts_rings=True, whole_follows=True),
    )


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ViewOptions:
    """Options with which every key does what it does for a user; the editor ends at once."""
    monkeypatch.setenv("VISUAL", "true")
    exports = {name: partial(export_report, form) for name, form in EXPORTS.items()}
    out = {"export_traces": export_merged, "export_repro": write_script}
    return replace(PLAIN, export_dir=tmp_path, exports=exports, **out)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", JOBS)
async def test_keys_while_a_job_loads(kind: str, options: ViewOptions) -> None:
    whole = JOBS[kind]()
    part = part_of(whole)
    go_first, go_rest = threading.Event(), threading.Event()

    def first(_: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        assert go_first.wait(LONGEST_S)
        return part, analyse(part)

    def rest(_: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        assert go_rest.wait(LONGEST_S)
        return whole, analyse(whole)

    app = RankscopeApp(first, "job", options, rest=rest)
    try:
        async with app.run_test(size=SMALL) as pilot:
            walk = KeyWalk(app, pilot)
            await walk.walk_opening()
            go_first.set()
            await until(pilot, lambda: app.screen is not app.opening)
            if kind in OWN_LANES:
                await walk.walk_lanes()
            # a view that holds nothing is the same one for all kinds
            await walk.walk_views(() if kind in OWN_LANES else SAME, empty=kind == "logs")
            app.lanes.open_view("heat")
            assert app.lanes.boards.whole.is_partial, "the rest was held back all the time"
            go_rest.set()
            await until(pilot, lambda: not app.lanes.boards.whole.is_partial)
            await walk.back_to(app.lanes)
            if kind in PARTIAL:
                await walk.walk_views(("findings", "files"))
            pressed = walk.keys_of("LanesScreen")
            left = [one.id for one in ACTIONS if one.scope != "page" and pressed.isdisjoint((*one.keys, one.id))]
            assert kind not in PARTIAL or left == ["quit"]
    finally:
        go_first.set()
        go_rest.set()


async def test_keys_while_a_session_loads(tmp_path: Path, options: ViewOptions) -> None:
    source = JobSource((str(session_of(SAMPLES / "early_return", tmp_path / "session")),))
    go = threading.Event()

    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        assert go.wait(LONGEST_S)
        return source.load(progress)

    app = RankscopeApp(load, "session", options)
    try:
        async with app.run_test(size=SMALL) as pilot:
            walk = KeyWalk(app, pilot)
            await walk.walk_opening()
            go.set()
            await until(pilot, lambda: app.screen is not app.opening)
            await walk.walk_views()
    finally:
        go.set()


async def test_keys_while_two_runs_are_compared(options: ViewOptions) -> None:
    go = threading.Event()

    def compare(_: Callable[[ProgressLike], None]) -> WholeComparison:
        assert go.wait(LONGEST_S)
        return view_of().whole

    app = ComparisonApp(compare, "runs", options)
    try:
        async with app.run_test(size=SMALL) as pilot:
            walk = KeyWalk(app, pilot)
            await walk.walk_opening()
            go.set()
            await until(pilot, lambda: app.screen is not app.opening)
            await walk.walk_pages()
    finally:
        go.set()


async def test_keys_while_a_job_is_followed(options: ViewOptions) -> None:
    async with live.watched(None, options) as (app, pilot, told):
        walk = KeyWalk(app, pilot)
        told.say(FollowProgress(files=4, unread=2))
        await walk.walk_opening()
        told.put(live.job(3))
        await until(pilot, lambda: app.screen is not app.opening)
        await walk.walk_lanes()
        app.lanes.open_view("groups")
        told.put(live.job(6, waiting=True), "frozen", alarm=True)
        await walk.back_to(app.lanes)
        await walk.walk_lanes()
