"""All facts about a selection, looked up once; the lines of the pane are made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

import polars as pl

from rankscope.analysis.host_stacks import HostStack, host_stacks
from rankscope.analysis.model import Analysis, ChainStep, Finding
from rankscope.analysis.presence import Frontier
from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import DETAIL_PARTS
from rankscope.schema import Dataset, Frame, Group
from rankscope.schema.tables import SOURCES
from rankscope.tui.detail.operation_index import OpIndex, Row, one
from rankscope.tui.detail.operation_text import group_short
from rankscope.tui.detail.peers import PARTLY, UNFINISHED, Fold, Peers, collective, fold, pair, state_label, waiting_for
from rankscope.tui.selection import Absence, Selection
from rankscope.tui.styled_text import Line

_ABSENCES: tuple[Absence, ...] = get_args(Absence)


@dataclass(frozen=True)
class DetailPart:
    """Facts of a feature about the rank under the cursor."""

    label: str
    fact: str = ""
    """A few words among the facts of the rank; "" for none."""
    headline: Line | None = None
    """The one line that tells most of a failure."""
    is_cause: bool = False
    """Whether the headline tells the cause; else the harm."""
    section: Callable[[int], list[Line]] = lambda _width: []
    """All that it tells, in lines of a width, below a title of its own."""


@dataclass(frozen=True)
class Detail:
    """All known facts about a selection."""

    selection: Selection
    group: Group | None
    row: Row | None
    """The operation, with `label`, its state in a word; None if the rank has none there."""
    peers: Peers | None
    folds: tuple[Fold, ...]
    history: History
    stack: tuple[Frame, ...]
    """Stack of the operation, or of the last operation of the rank; innermost first."""
    chain: tuple[ChainStep, ...]
    """The chain of waits from the rank to the root."""
    finding: Finding | None
    now_ns: int | None
    """Time when the dumps were written, as far as it is known."""
    files: tuple[tuple[str, str | None], ...]
    """The inputs of the rank: path, and its problem."""
    has_dump: bool
    """Whether a dump of the rank was read."""
    is_cut: bool
    """Whether only a part of it was read: the current operation may be in the rest."""
    frontier: Frontier | None
    """Last collectives of the rank in the group."""
    groups: dict[int, str]
    """Descriptions of the groups of the operations in `history`."""
    descriptions: Mapping[str, str]
    """Descriptions of groups for people, by their names."""
    parts: tuple[DetailPart, ...]
    """Facts of features about the rank."""
    host: HostStack | None = None
    """Stack of the rank's host from py-spy."""
    where: str = ""
    """The place of the rank on the mesh: "pp 1, dp 2, tp 0"; "" if it has none."""


def look_up(index: OpIndex, analysis: Analysis, selection: Selection) -> Detail:
    """All facts about `selection`."""
    row = None if selection.row is None else _labelled(index, selection.row)
    peers = peers_of(index, analysis, selection)
    past = history(index, selection.rank, selection.group)
    shown = row or past.last_in_group or past.last
    # a frontier does not count sends and receives
    in_group = None if selection.is_p2p else selection.group
    return Detail(
        selection=selection,
        group=index.group(selection.group),
        row=row,
        peers=peers,
        folds=tuple(fold(peers, alone=[selection.rank])) if peers else (),
        history=past,
        stack=index.dataset.stack((row or past.last or {}).get("stack_id")),
        chain=analysis.waits.get(selection.rank, ()),
        finding=finding_of(analysis, selection),
        now_ns=now_ns(index, analysis),
        files=_files(index.dataset, selection.rank),
        has_dump=selection.rank in index.presence.seen,
        is_cut=index.presence.cut(selection.rank),
        frontier=None if in_group is None else index.presence.frontiers.get((selection.rank, in_group)),
        groups=_group_names(index, past),
        descriptions=index.descriptions,
        parts=tuple(
            function(part.function)(index, analysis, selection.rank, shown)
            for part in DETAIL_PARTS
            if not getattr(index.dataset, part.table).is_empty()
        ),
        host=host_stacks(index.dataset, [selection.rank]).get(selection.rank),
        where=analysis.mesh.where(selection.rank) if analysis.mesh is not None else "",
    )


def peers_of(index: OpIndex, analysis: Analysis, selection: Selection) -> Peers | None:
    """The members of the selected operation; None if no operation is selected."""
    if selection.is_p2p:
        row = selection.row
        if row is None and selection.group is not None:
            row = waiting_for(index, selection.rank, selection.group, selection.seq)
        return None if row is None else pair(index, analysis, row)
    if index.group(selection.group) is None or selection.group is None or selection.seq is None:
        return None
    return collective(index, analysis, selection.group, selection.seq)


def select(like: Selection, rank: int, row: int | None, presence: str) -> Selection:
    """The same collective on another rank, with its row or the reason why it has none."""
    absence = as_absence(presence) if row is None else None
    return replace(like, rank=rank, row=row, absence=absence)


def as_absence(presence: str | None) -> Absence | None:
    """The reason in the form of a selection; None if it is none."""
    if presence == PARTLY:
        return "unknown"
    return next((known for known in _ABSENCES if known == presence), None)


def now_ns(index: OpIndex, analysis: Analysis) -> int | None:
    """Time when the dumps were written, from their files, or else their events; None if neither is reliable."""
    if analysis.frozen_for_ns is None:
        return None
    if index.written_ns is not None:
        return index.written_ns
    return None if index.newest_ns is None else index.newest_ns + analysis.frozen_for_ns


def finding_of(analysis: Analysis, selection: Selection) -> Finding | None:
    """The finding about the selected collective, or else the finding on the screen."""
    if selection.group is not None and selection.seq is not None:
        key = (selection.group, selection.seq)
        about = next((f for f in analysis.findings if f.group and (f.group.key, f.seq) == key), None)
        if about is not None:
            return about
    shown = selection.finding
    return analysis.findings[shown] if shown is not None and 0 <= shown < len(analysis.findings) else None


def _group_names(index: OpIndex, past: History) -> dict[int, str]:
    keys = {row["group"] for row in (past.last, past.last_in_group, past.waiting_in) if row}
    return {key: group_short(index.group(key)) for key in keys if index.group(key)}


def _labelled(index: OpIndex, position: int) -> Row:
    frame = index.frame(one(position)).with_columns(state_label().alias("label"))
    return frame.row(0, named=True)


def _files(dataset: Dataset, rank: int) -> tuple[tuple[str, str | None], ...]:
    files = dataset.files.filter((pl.col("rank") == rank) & (pl.col("attempt") == dataset.attempt).fill_null(True))
    own_first = files.sort(pl.col("kind") != SOURCES[0], maintain_order=True)
    return tuple(own_first.select("path", "problem").iter_rows())


@dataclass(frozen=True)
class History:
    """The last operations of a rank, from its dump. Rows carry `label`, their state in a word."""

    last: Row | None
    """The operation it issued last."""
    last_in_group: Row | None
    """The last operation that it issued in the group."""
    waiting_in: Row | None
    """The oldest operation it has not finished."""
    pending: int
    """How many it has not finished."""


def history(index: OpIndex, rank: int, group: int | None = None) -> History:
    """The last operations of `rank`, overall and in `group`, and the operation that it waits in."""
    issued = index.rank_frame(rank).with_columns(state_label().alias("label"))
    # Members of a coalesced group stay "scheduled" in some dumps: the closer has the real state.
    alone = issued.filter(pl.col("coalesced") != "inner")
    issued = alone if alone.height else issued
    waiting = issued.filter(pl.col("label").is_in(UNFINISHED))
    in_group = issued.filter((pl.col("group") == group) & ~pl.col("is_p2p")) if group is not None else issued.clear()
    return History(_at(issued, -1), _at(in_group, -1), _at(waiting, 0), waiting.height)


def _at(rows: pl.DataFrame, position: int) -> Row | None:
    return rows.row(position, named=True) if rows.height else None
