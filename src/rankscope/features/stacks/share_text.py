"""Stacks over time as text, as folded stacks and as a profile of speedscope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from statistics import median
from typing import Any, NamedTuple

import orjson

from rankscope.features.stacks.stack_shares import ShareDifference, ShareNode, ShareTree, odd_rank, rank_differences
from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text

WIDTH = 80
BAR = 10
"""Cells of the bar of a whole."""
LEAST_SHARE = 0.01
MOST_LINES = 60
MOST_DIFFERENCES = 6
DIFFERS = 0.1
"""Difference to the median share from which a rank is named behind a call."""


def tree_text(tree: ShareTree, rank: int | None = None) -> str:
    """The tree, and the difference of one rank and the others: `rank`, or the one that differs most."""
    told = odd_rank(tree) if rank is None else rank
    counts = sorted(tree.samples.values())
    each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    lines = [f"stacks over time of {ranks_text(tree.ranks)}: {each} samples of each main thread", ""]
    lines += _difference_lines(tree, told) if told is not None else ["no rank differs from the others", ""]
    lines += ["share of the time, mean of all ranks; ranks that differ from most stand behind a call", ""]
    nodes = [_row_line(row) for row in share_rows(tree)]
    lines += nodes[:MOST_LINES]
    if len(nodes) > MOST_LINES:
        lines.append(f"and {plural(len(nodes) - MOST_LINES, 'more call')}: --export writes all of them")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _difference_lines(tree: ShareTree, rank: int) -> list[str]:
    found = rank_differences(tree, rank)
    if not found:
        return [f"rank {rank} does what the others do", ""]
    parts = [("more than the others", True), ("less than the others", False)]
    lines = []
    for title, more in parts:
        own = [d for d in found if (d.more > 0) == more][:MOST_DIFFERENCES]
        lines += [f"rank {rank} is {title} in", *map(_difference, own), ""] if own else []
    return lines


def _difference(one: ShareDifference) -> str:
    callers = " < ".join(plain(f.function, 40) for f in one.path[-2:-4:-1])
    text = f"  {one.own:>4.0%}, others {one.others:>4.0%}  {call_text(one.path[-1])}"
    return f"{text} < {callers}"[: 2 * WIDTH] if callers else text


def call_text(frame: Frame) -> str:
    """A call and its place: "load data.py:7"."""
    where = f" {PurePath(frame.file).name}:{frame.line}" if frame.file else ""
    return plain(f"{frame.function}{where}", 200)


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


def _row_line(row: ShareRow) -> str:
    line = f"{row.mean:>5.0%} {row.bar} {' ' * min(row.depth, 30)}{call_text(row.node.frame)}"
    room = WIDTH - len(row.odd) - 2
    return f"{line[:room]:<{room}}  {row.odd}" if row.odd else line[:WIDTH]


# Exports.


def folded_text(tree: ShareTree) -> bytes:
    """One line for each stack of each rank, for flamegraph.pl and its like: "rank 2;main (a.py:3);step (a.py:9) 17"."""
    lines = Counter[str]()
    for rank, frames, count in tree.stacks:
        names = [f"{plain(f.function)} ({plain(f.file)}:{f.line})".replace(";", ",") for f in frames]
        lines[";".join([f"rank {rank}", *names])] += count
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
            "type": "sampled", "name": f"rank {rank}", "unit": "none", "startValue": 0, "endValue": sum(weights),
            "samples": samples, "weights": weights,
        })  # fmt: skip
    frames = [{"name": plain(f.function), "file": plain(f.file), "line": f.line} for f in numbers]
    return orjson.dumps({
        "$schema": "https://www.speedscope.app/file-format-schema.json", "name": plain(name), "exporter": "rankscope",
        "shared": {"frames": frames}, "profiles": profiles,
    })  # fmt: skip
