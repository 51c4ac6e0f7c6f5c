"""Stacks over time as a section of a report, as folded stacks and as a profile of speedscope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import orjson

from rankscope.features.stacks.stack_shares import (
    PAIR,
    ShareDifference,
    ShareNode,
    ShareTree,
    call_place,
    odd_rank,
    rank_differences,
)
from rankscope.report.blocks import Block, Grid, Prose, Section
from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text

BAR = 10
"""Cells of the bar of a whole."""
LEAST_SHARE = 0.01
MOST_LINES = 60
MOST_DIFFERENCES = 6
DIFFERS = 0.1
"""Difference to the median share from which a rank is named behind a call."""


def share_section(tree: ShareTree, rank: int | None = None) -> Section:
    """The tree, and the difference of one rank and the others: `rank`, or the one that differs most."""
    differing = odd_rank(tree) if rank is None else rank
    counts = sorted(tree.samples.values())
    each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    rows = share_rows(tree)
    left = len(rows) - MOST_LINES
    calls = Grid(
        title="share of the time, mean of all ranks; with the ranks that differ from most",
        head=("mean", "", "ranks", "call"),
        rows=[
            (f"{row.mean:.0%}", row.bar, row.odd, f"{' ' * min(row.depth, 30)}{call_place(row.node.frame)}")
            for row in rows[:MOST_LINES]
        ],
        numbers=(0,),
        wraps=True,
        more=f"and {plural(left, 'more call')}: --export writes all of them" if left > 0 else "",
    )
    differences: Sequence[Block] = [Prose(f"no {'process' if tree.by_pid else 'rank'} differs from the others")]
    if len(tree.ranks) == 1:
        differences = []
    elif differing is not None:
        differences = _differences(tree, differing)
    elif len(tree.ranks) == PAIR and rank_differences(tree, tree.ranks[1]):
        differences = [Prose("of two neither is the odd one"), *_differences(tree, tree.ranks[1])]
    title = f"stacks over time of {tree.named(tree.ranks)}: {each} samples of each main thread"
    return Section(title, (*differences, calls))


def _differences(tree: ShareTree, rank: int) -> Sequence[Block]:
    """The calls in which a rank is longer, and those in which it is shorter, than the others."""
    found = rank_differences(tree, rank)
    longer, shorter = ([one for one in found if (one.more > 0) == more][:MOST_DIFFERENCES] for more in (True, False))
    return [
        Grid(
            title=f"{tree.named([rank])} is {word} than the others in",
            head=("share", "others", "call"),
            rows=[(f"{one.own:.0%}", f"{one.others:.0%}", _called(one)) for one in differences],
            numbers=(0, 1),
            wraps=True,
        )
        for word, differences in (("more", longer), ("less", shorter))
        if differences
    ] or [Prose(f"{tree.named([rank])} does what the others do")]


def _called(one: ShareDifference) -> str:
    """A call with its callers: "read data.py:8 < load < step"."""
    return " < ".join([call_place(one.path[-1]), *(plain(frame.function, 40) for frame in one.path[-2:-4:-1])])


class ShareRow(NamedTuple):
    """A call of the tree as a row."""

    depth: int
    node: ShareNode
    mean: float
    """Mean of the shares of all ranks."""
    ranks: tuple[int, ...]
    """Ranks whose share is another one than that of most; empty if they are half of all."""

    @property
    def bar(self) -> str:
        """The mean as a bar of `BAR` cells."""
        return f"{'#' * max(1, round(self.mean * BAR)):<{BAR}}"

    @property
    def odd(self) -> str:
        """Those ranks with their shares: "rank 2: 80%"."""
        if not self.ranks:
            return ""
        shares = [self.node.shares.get(rank, 0.0) for rank in self.ranks]
        low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
        return f"{ranks_text(self.ranks)}: {low if low == high else f'{low}-{high}'}"


def share_rows(tree: ShareTree) -> list[ShareRow]:
    """The calls of the tree, each above those in it, the largest first; without those that no rank is in for long."""
    return list(_rows_below(tree.root, tree, 0))


def _rows_below(node: ShareNode, tree: ShareTree, depth: int) -> Iterator[ShareRow]:
    for child in node.ordered():
        if max(child.shares.values()) < LEAST_SHARE:
            continue
        usual = median([child.shares.get(rank, 0.0) for rank in tree.ranks])
        ranks = tuple(rank for rank in tree.ranks if abs(child.shares.get(rank, 0.0) - usual) >= DIFFERS)
        few = ranks if 2 * len(ranks) < len(tree.ranks) else ()
        yield ShareRow(depth, child, child.total / len(tree.ranks), few)
        yield from _rows_below(child, tree, depth + 1)


# Exports.


def folded_text(tree: ShareTree) -> bytes:
    """One line for each stack of each rank, for flamegraph.pl and its like: "rank 2;main (a.py:3);step (a.py:9) 17"."""
    lines = Counter[str]()
    for rank, frames, count in tree.stacks:
        names = [f"{plain(f.function)} ({plain(f.file)}:{f.line})".replace(";", ",") for f in frames]
        lines[";".join([tree.named([rank]), *names])] += count
    return "".join(f"{stack} {count}\n" for stack, count in lines.items()).encode("utf-8", "replace")


def speedscope_profile(tree: ShareTree, name: str) -> bytes:
    """A file for https://www.speedscope.app with a profile for each rank; weights are samples."""
    numbers: dict[Frame, int] = {}
    profiles: list[dict[str, Any]] = []
    for rank in tree.ranks:
        own = [(frames, count) for one, frames, count in tree.stacks if one == rank]
        samples = [[numbers.setdefault(frame, len(numbers)) for frame in frames] for frames, _ in own]
        weights = [count for _, count in own]
        profiles.append({
            "type": "sampled", "name": tree.named([rank]), "unit": "none", "startValue": 0, "endValue": sum(weights),
            "samples": samples, "weights": weights,
        })  # fmt: skip
    frames = [{"name": plain(f.function), "file": plain(f.file), "line": f.line} for f in numbers]
    return orjson.dumps({
        "$schema": "https://www.speedscope.app/file-format-schema.json", "name": plain(name), "exporter": "rankscope",
        "shared": {"frames": frames}, "profiles": profiles,
    })  # fmt: skip
