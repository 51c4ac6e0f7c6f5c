"""Any job, however odd, can be walked in any way."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.filters import STATES, Filter, apply
from rankscope.tui.lane_paint import compose, gutter_for
from rankscope.tui.model import build_model
from rankscope.tui.order import ORDERINGS
from rankscope.tui.overview import sequence_strip, time_strip, worst_by_column
from rankscope.tui.search import search
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.timeline import MOVES
from rankscope.tui.times import build_times
from tests.builders import START_NS, JobBuilder

OPS = ["all_reduce", "_all_gather_base", "broadcast", "odd\x1bone", "coalesced"]
STATE = ["completed", "completed", "completed", "scheduled", "started", "unknown"]
TIMES = [START_NS, START_NS + 10**9, 0, None, 2**63 - 1, 1]


def any_job(draws: random.Random) -> Dataset:
    """A job with gaps, odd times, odd groups, transfers, and ranks without dumps."""
    world = draws.randint(1, 9)
    groups = {f"g{i}": sorted(draws.sample(range(world), draws.randint(1, world))) for i in range(draws.randint(0, 4))}
    job = JobBuilder(world, groups)
    job.no_dump = {rank for rank in range(world) if draws.random() < 0.15}
    for _ in range(draws.randint(0, 60)):
        group = draws.choice(["0", *groups])
        ranks = [rank for rank in job.group_ranks[group] if draws.random() < 0.9]
        times = {"created_ns": draws.choice(TIMES), "completed_ns": draws.choice(TIMES)}
        more: dict[str, Any] = dict(times) if draws.random() < 0.2 else {}
        if draws.random() < 0.25:
            sender, receiver = draws.randrange(world), draws.randrange(world)
            job.p2p(group, sender, receiver, draws.choice(["send", "recv"]), state=draws.choice(STATE), **more)
        else:
            job.collective(group, ranks, draws.choice(OPS), draws.choice(STATE), **more)
    dataset = job.build()
    odd = pl.when(pl.col("op_id") % 17 == 3).then(99).otherwise(pl.col("group"))
    wrapped = pl.col("rank") % 3 == draws.randint(0, 5)
    ops = dataset.ops.with_columns(group=odd.cast(pl.UInt32)) if draws.random() < 0.3 else dataset.ops
    return replace(dataset, ops=ops, files=dataset.files.with_columns(wrapped=wrapped))


def check(board: ShownOperations) -> None:
    """The lines are as wide as they should be, and the cursor is among them."""
    gutter = gutter_for(80, len(board.model.ranks))
    lines, _ = compose(board, gutter)
    assert all(len(line.text) == len(line.styles) == board.width for line in lines)
    assert all(len(line.head) == gutter.width for line in lines)
    assert sum(line.current for line in lines) == bool(lines)
    if len(board.model.ranks):
        assert 0 <= board.view.cell_of(board.unit) < board.view.cells(board.width)
        assert board.selection is not None
        assert sorted(board.rows.order.tolist()) == list(range(len(board.model.ranks)))


@pytest.mark.parametrize("seed", range(60))
def test_any_walk_over_any_job(seed: int) -> None:
    draws = random.Random(seed)
    dataset = any_job(draws)
    model = build_model(dataset, Analysis("", draws.choice(["hang", "healthy", "mismatch"])))
    board = ShownOperations(model, draws.randint(1, 90), draws.randint(1, 20))
    times = build_times(model)
    assert len(sequence_strip(worst_by_column(model), 50).text) <= 50
    assert len(time_strip(times, 50).text) == 50
    for _ in range(40):
        choice = draws.random()
        if choice < 0.7:
            MOVES[draws.choice(list(MOVES))](board)
        elif choice < 0.75 and len(times.start):
            board.show_time(times)
        elif choice < 0.8:
            board.show_sequence()
        elif choice < 0.85:
            board.set_order(draws.choice(list(ORDERINGS)))
        elif choice < 0.9:
            board.resize(draws.randint(1, 120), draws.randint(1, 30))
        else:
            part = apply(model, Filter(state=draws.choice([None, *STATES])))
            board.replace_model(part if len(part.ranks) else model, None)
            times = build_times(board.model)
        check(board)
    for text in ("reduce", "#1", "rank 0", "odd"):
        assert len(search(model, text).items) <= len(model.items.col)
