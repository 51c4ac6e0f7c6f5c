"""Lanes of traces with one group or operation alone, and what is found in them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.page.activity import COMMUNICATION, NOTHING
from rankscope.features.traces.page.lanes import KINDS, TraceLanes, build_lanes
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_cells import draw
from rankscope.features.traces.page.trace_rows import Row, asked
from rankscope.features.traces.page.trace_targets import search_spans
from rankscope.tui.filters import Filter, apply
from rankscope.tui.letters import letter_number
from rankscope.tui.model import Model, build_model
from tests.traces import MS, TraceBuilder

GROUPS = {"tp0": [0, 1], "tp1": [2, 3]}
ALL_REDUCE, GATHER = letter_number("all_reduce"), letter_number("all_gather")


@cache
def model() -> Model:
    """Four ranks in two pairs, which gather, and sum up over all."""
    job = TraceBuilder(4, GROUPS)
    for step in range(4):
        job.begin_step(step)
        for rank in range(4):
            job.launch(rank, "gemm", (2 + rank) * MS)
        for name in GROUPS:
            job.collective(name, "_all_gather_base")
            job.collective(name)
        job.collective()
        job.end_step()
    dataset = job.build()
    return build_model(dataset, analyse(dataset))


def lanes() -> TraceLanes:
    """The lanes of all of it."""
    found = model().timed
    assert isinstance(found, TraceLanes)
    return found


def seen(of: TraceLanes) -> list[bytes]:
    """The cells of every part of every rank."""
    rows = [Row((lane,), kind) for lane in range(len(of.ranks)) for kind in ("", *KINDS)]
    strands = [Row((strand.lane,), strand=at) for at, strand in enumerate(of.strands)]
    every = [*rows, *strands]
    edges = lanes().low + (lanes().high - lanes().low) * np.arange(151) // 150
    cells = draw(of.cover, of.key_of, [asked(of, row) for row in every], np.broadcast_to(edges, (len(every), 151)))
    return [row.tobytes() for row in cells.text]


@pytest.mark.parametrize(("group", "letter"), [(0, None), (1, None), (None, ALL_REDUCE), (2, GATHER)])
def test_it_looks_as_if_the_others_had_not_been_there(group: int | None, letter: int | None) -> None:
    whole = lanes()
    traced = whole.dataset.traced.with_columns(number=pl.col("op").cast(pl.String).replace_strict(
        {"all_reduce": ALL_REDUCE, "_all_gather_base": GATHER}))  # fmt: skip
    fits = (traced["group"] == group if group is not None else traced["group"] >= 0) & (
        traced["number"] == letter if letter is not None else traced["group"] >= 0
    )
    gone = fits.not_().arg_true()
    assert 0 < len(gone) < traced.height
    spans = whole.dataset.spans.filter(pl.col("op").is_null() | ~pl.col("op").is_in(gone.implode()))
    expected = build_lanes(replace(whole.dataset, spans=spans), whole.analysis)
    assert seen(whole.narrowed(group, letter)) == seen(expected) != seen(whole)


def test_without_a_filter_they_are_the_same() -> None:
    assert lanes().narrowed(None, None) is lanes()
    assert apply(model(), Filter(ranks=frozenset({1}))).timed is lanes()


def test_a_group_leaves_its_ranks_and_a_cursor_finds_only_its_collectives() -> None:
    board = TraceBoard(lanes(), model(), 120, 30)
    board.replace_model(apply(model(), Filter(group=2)))
    assert {rank for at in range(board.count) for rank in board.ranks_of(at)} == {2, 3}
    assert board.rank == board.ranks_of(board.row)[0] == 2, "the cursor is on a rank that is there"
    board.toggle_fold_all()
    board.go_rank(2)
    groups = set()
    board.go_unit(board.low)
    board._row = next(at for at, row in enumerate(board.rows) if row.kind == "communication")
    while board.go_neighbour(1):
        assert board.span is not None
        groups.add(board.lanes.dataset.traced["group"][int(board.lanes.spans.op[board.span])])
    assert groups == {2}
    board.replace_model(model())
    assert board.lanes is lanes()


def count(text: str, of: TraceLanes | None = None) -> int:
    """How many spans are found."""
    return len(search_spans(of or lanes(), text).items)


def test_what_is_found() -> None:
    assert count("all_reduce") == 2 * (4 * 4 * 2), "annotations are found by name, kernels by their operation"
    assert count("mesh_tp1") == 4 * 2 * 2
    assert count("mesh_tp1 all_gather rank 3") == 4
    assert count("#2 rank 1") == 2, "each group counts by itself"
    assert count("gemm rank 0") == 4
    assert count("nothing like this") == count("  ") == 0


def test_what_a_filter_hides_is_not_found() -> None:
    only = lanes().narrowed(None, GATHER)
    assert count("#2 rank 1", only) == 1
    hidden = (only.spans.activity == NOTHING) & np.isin(lanes().spans.activity, list(COMMUNICATION))
    assert hidden.any() and not set(np.flatnonzero(hidden)) & set(search_spans(only, "allreduce").items.tolist())
