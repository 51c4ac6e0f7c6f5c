"""Stacks over time, merged over ranks to one tree: the share of the time of each rank below each call.

Each rank counts alike, however often it was sampled: a share is of its own samples. The main thread stands for a rank,
and repeated dumps of one process count as samples, if there is no profile of the rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.analysis.verdict import Scene
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

FEWEST_DUMPS = 2
"""Fewest dumps of a process that are stacks over time."""
MAIN = "MainThread"
MOST_FRAMES = 256
"""Outermost frames of a stack in the tree."""
MOST_PIDS = 8
PAIR = 2
"""So many ranks have no odd one."""
_SERVES = frozenset({"_worker_loop"})
"""Functions of processes that serve another one: workers of a data loader."""
_BOOTSTRAP = "threading.py"
"""File of the outermost frame of every thread but the first."""
LEAST_DIFFERENCE = 0.1
"""Least difference of shares of one rank and the others that is told."""
OWN_PART = 0.8
"""Share of the difference of a call that one inner call explains: then the inner one is told."""


@dataclass
class ShareNode:
    """A call, with the calls in it."""

    frame: Frame
    """The call; its line is the one of the most samples."""
    shares: dict[int, float] = field(default_factory=dict)
    """Share of the samples of each rank; ranks without a sample are left out."""
    children: dict[tuple[str, str], ShareNode] = field(default_factory=dict)

    @cached_property
    def total(self) -> float:
        """The sum of the shares of all ranks, once the tree is whole."""
        return sum(self.shares.values())

    def of_others(self, rank: int, ranks: int) -> float:
        """The mean share of all of so many ranks but one."""
        return (self.total - self.shares.get(rank, 0.0)) / max(1, ranks - 1)

    def ordered(self) -> list[ShareNode]:
        """The inner calls, those with the largest share first."""
        return sorted(self.children.values(), key=lambda node: -node.total)


@dataclass(frozen=True)
class ShareTree:
    """The tree of all ranks."""

    root: ShareNode
    ranks: tuple[int, ...]
    samples: Mapping[int, int]
    """Number of samples of each rank."""
    stacks: tuple[tuple[int, tuple[Frame, ...], int], ...]
    """(rank, frames with the outermost first, count) of all samples."""
    by_pid: bool = False
    """No rank is known: process ids stand in place of ranks."""

    def named(self, ranks: Sequence[int]) -> str:
        """ "ranks 0-3", or "processes 100, 101"."""
        if not self.by_pid:
            return ranks_text(ranks)
        more = f" and {len(ranks) - MOST_PIDS} more" if len(ranks) > MOST_PIDS else ""
        return f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MOST_PIDS]))}{more}"


@dataclass(frozen=True)
class ShareDifference:
    """A call that takes another share of the time of one rank than of the others."""

    path: tuple[Frame, ...]
    """Outermost first."""
    own: float
    others: float

    @property
    def more(self) -> float:
        """Difference of the shares, negative if the rank spends less time there."""
        return self.own - self.others


def share_tree(dataset: Dataset, *, or_by_pid: bool = False) -> ShareTree | None:
    """The tree of the ranks of a job, or of its processes if no rank is known; None without stacks over time."""
    counted, by_pid = _counts(dataset), False
    if not counted and or_by_pid:
        counted, by_pid = _counts_by_pid(dataset), True
    if not counted:
        return None
    samples: defaultdict[int, int] = defaultdict(int)
    for rank, _, count in counted:
        samples[rank] += count
    root = ShareNode(Frame("all", "", 0))
    best: dict[int, int] = {}
    for rank, frames, count in counted:
        node, part = root, count / samples[rank]
        node.shares[rank] = node.shares.get(rank, 0.0) + part
        for frame in frames:
            node = node.children.setdefault((frame.function, PurePath(frame.file).name), ShareNode(frame))
            node.shares[rank] = node.shares.get(rank, 0.0) + part
            if count > best.get(id(node), 0):
                best[id(node)], node.frame = count, frame
    return ShareTree(root, tuple(sorted(samples)), dict(samples), tuple(counted), by_pid)


def _counts_by_pid(dataset: Dataset) -> list[tuple[int, tuple[Frame, ...], int]]:
    """As `_counts`, with process ids, if profiles tell those and no rank. Processes that serve another are left out."""
    rows = dataset.samples.filter(pl.col("rank").is_null() & pl.col("pid").is_not_null())
    found = [
        (pid, tuple(reversed(stack))[:MOST_FRAMES], count)
        for pid, thread, stack_id, count in rows.select("pid", "thread", "stack_id", "count").iter_rows()
        if (stack := dataset.stack(stack_id)) and _is_main(thread, stack)
    ]
    serving = {pid for pid, frames, _ in found if any(frame.function in _SERVES for frame in frames)}
    return [row for row in found if row[0] not in serving]


def _counts(dataset: Dataset) -> list[tuple[int, tuple[Frame, ...], int]]:
    """Rank, frames and count of each stack of a main thread, from profiles, else from repeated dumps."""
    told = dataset.samples.drop_nulls("rank")
    rows = list(told.select("rank", "thread", "stack_id", "count").iter_rows())
    found = [
        (rank, tuple(reversed(stack))[:MOST_FRAMES], count)
        for rank, thread, stack_id, count in rows
        if (stack := dataset.stack(stack_id)) and _is_main(thread, stack)
    ]
    profiled = set(told["rank"].to_list())
    mains = dataset.threads.filter(pl.col("is_main") & pl.col("rank").is_not_null() & pl.col("parent_pid").is_null())
    for (rank,), dumps in mains.group_by("rank", maintain_order=True):
        if not isinstance(rank, int) or rank in profiled or dumps["written_ns"].n_unique() < FEWEST_DUMPS:
            continue
        stacks = [dataset.stack(stack_id) for stack_id in dumps["stack_id"]]
        found += [(rank, tuple(reversed(stack))[:MOST_FRAMES], 1) for stack in stacks if stack]
    return found


def _is_main(thread: str, stack: tuple[Frame, ...]) -> bool:
    return thread == MAIN if thread else PurePath(stack[-1].file).name != _BOOTSTRAP


def with_shares(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """The findings; a cause that accuses one rank has the call on which that rank spends more time than the others.
    Where nobody is accused, a note tells in which call ranks differ."""
    tree = share_tree(scene.facts.dataset, or_by_pid=True)
    if tree is None:
        return list(findings)
    supported = [_supported(finding, tree) for finding in findings]
    noted = None if any(finding.root_cause for finding in findings) else _difference_note(tree)
    return supported if noted is None else [*supported, replace(noted, id=f"f{len(findings) + 1}")]


KIND = "stack-shares-differ"
MOST_NOTED = 4


def _difference_note(tree: ShareTree) -> Finding | None:
    """A note on the calls in which one rank spends more time than the others, or two ranks differ; None without any."""
    if len(tree.ranks) == PAIR:
        about = first, second = tree.ranks
        differences = rank_differences(tree, second)
        shares = [f"{call_place(one.path[-1])}: {one.others:.0%} and {one.own:.0%}" for one in differences]
        title = (
            f"{tree.named(tree.ranks)} differ in {next(iter(shares), '')} of their time; of two neither is the odd one"
        )
        texts = [f"{tree.named([first])} and {tree.named([second])} in {share}" for share in shares]
    else:
        odd = odd_rank(tree)
        if odd is None:
            return None
        about, differences, who = (odd,), rank_differences(tree, odd), tree.named([odd])
        shares = [
            f"{one.own:.0%} of its time in {call_place(one.path[-1])}, the others {one.others:.0%}"
            for one in differences
        ]
        title = f"{who} spends {next(iter(shares), '')}"
        texts = [f"{who}: {share}" for share in shares]
    if not differences:
        return None
    return Finding(
        kind=KIND,
        severity="info",
        title=title,
        explanation="Stacks over time show where ranks spend their time, not which rank waits for another.",
        about=() if tree.by_pid else about,
        confidence="medium",
        confidence_reasons=("stacks over time do not show whether the job went on",),
        evidence=tuple(Evidence(f"stacks over time: {text}") for text in texts[:MOST_NOTED]),
        next_steps=("rankscope stacks PATH shows the calls of each rank; --rank R compares one with the others.",),
    )


def call_place(frame: Frame) -> str:
    """A call and its place: "load data.py:7"."""
    where = f" {PurePath(frame.file).name}:{frame.line}" if frame.file else ""
    return plain(f"{frame.function}{where}", 200)


def _supported(finding: Finding, tree: ShareTree) -> Finding:
    rank = finding.culprit_ranks[0] if len(finding.culprit_ranks) == 1 else None
    if tree.by_pid or rank is None or rank not in tree.ranks or finding.severity == "info":
        return finding
    more = next((one for one in rank_differences(tree, rank) if one.more > 0), None)
    if more is None:
        return finding
    where = call_place(more.path[-1])
    text = f"stacks over time: {more.own:.0%} of its time in {where}, the others {more.others:.0%}"
    return replace(finding, evidence=(Evidence(text, rank=rank), *finding.evidence))


# One rank and the rest.


def odd_rank(tree: ShareTree) -> int | None:
    """The rank whose calls differ most from the mean of the others; None if none differs, or of two ranks."""
    count = len(tree.ranks)
    if count < 3:
        return None
    apart = dict.fromkeys(tree.ranks, 0.0)
    for node in _nodes(tree.root):
        mean = node.total / count
        for rank, share in node.shares.items():
            # a rank that is not there differs by the mean, which is added to none instead
            apart[rank] += abs(share - mean) - mean
    worst = max(apart, key=lambda rank: (apart[rank], -rank))
    return worst if rank_differences(tree, worst) else None


def _nodes(node: ShareNode) -> Iterator[ShareNode]:
    for child in node.children.values():
        yield child
        yield from _nodes(child)


def rank_differences(tree: ShareTree, rank: int) -> list[ShareDifference]:
    """The innermost calls on which a rank spends another share of its time than the others, the largest first, and of
    equal ones that on which it spends more."""
    found = list(_differences(tree.root, (), rank, len(tree.ranks))) if len(tree.ranks) > 1 else []
    return sorted(found, key=lambda d: (-round(abs(d.more), 6), -d.more))


def _differences(node: ShareNode, path: tuple[Frame, ...], rank: int, ranks: int) -> Iterator[ShareDifference]:
    for child in node.children.values():
        own, others = child.shares.get(rank, 0.0), child.of_others(rank, ranks)
        difference = ShareDifference((*path, child.frame), own, others)
        inner = list(_differences(child, difference.path, rank, ranks))
        same = [d for d in inner if d.more * difference.more > 0]
        if sum(abs(d.more) for d in same) >= OWN_PART * abs(difference.more) or abs(difference.more) < LEAST_DIFFERENCE:
            yield from inner
        else:
            yield difference
            yield from (d for d in inner if d.more * difference.more < 0)
