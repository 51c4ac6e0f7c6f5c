"""The stacks of all members of a collective as lines of trees: of those that issued it, and of those that did not."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.schema import Dataset, Frame
from rankscope.tui.detail.format import counted
from rankscope.tui.detail.index import OpIndex
from rankscope.tui.detail.line import Span, line
from rankscope.tui.detail.peers import ISSUED, Peers
from rankscope.tui.detail.stacktree import TreeLine, draw, merge


def forest(index: OpIndex, peers: Peers, width: int, *, internals: bool = False) -> list[TreeLine]:
    """The trees with a line over each, drawn for `width` cells."""
    issued = peers.table.filter(pl.col("presence") == ISSUED)
    lines = _tree("issued it", issued.select("rank", "stack_id"), index.dataset, width, internals)
    absent = peers.table.filter(pl.col("presence") != ISSUED)
    for reason in absent["presence"].unique(maintain_order=True).to_list():
        ranks = absent.filter(pl.col("presence") == reason)["rank"].to_list()
        last = index.last_stacks(ranks)
        if last.height:
            title = f"{reason}; this is what they issued last"
            lines += _tree(title, last, index.dataset, width, internals)
    return lines


def _tree(title: str, table: pl.DataFrame, dataset: Dataset, width: int, internals: bool) -> list[TreeLine]:
    stacks = table.drop_nulls().group_by("stack_id", maintain_order=True).agg("rank")
    without = table.filter(pl.col("stack_id").is_null())["rank"].sort().to_list()
    pairs = [(dataset.stack(stack_id), ranks) for stack_id, ranks in stacks.iter_rows()]
    lines = [_said(f"{counted(table.height, 'rank')} {title}", table["rank"].sort().to_list(), "head")]
    lines += draw(merge(pairs, internals), width)
    return lines + ([_said(f"{counted(len(without), 'rank')} without a stack", without, "dim")] if without else [])


def _said(text: str, ranks: Sequence[int], role: str) -> TreeLine:
    return TreeLine(line(Span(text, "head" if role == "head" else "dim")), (), (), tuple(ranks))


def frame_at(tree_line: TreeLine, at: int) -> Frame | None:
    """The frame under the cursor within a line; None on a line without frames."""
    return tree_line.frames[max(0, min(at, len(tree_line.frames) - 1))] if tree_line.frames else None


def with_mark(tree_line: TreeLine, at: int) -> TreeLine:
    """The line with one of its frames marked."""
    if not tree_line.frames:
        return tree_line
    marked = tree_line.at[max(0, min(at, len(tree_line.frames) - 1))]
    parts = tuple(Span(s.text, "mark") if i == marked else s for i, s in enumerate(tree_line.parts))
    return tree_line._replace(parts=parts)
