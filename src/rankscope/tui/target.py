"""Places in the lanes for findings, steps of a chain, and jumps from other screens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

import numpy as np

from rankscope.analysis.model import ChainStep, Finding
from rankscope.tui.cell_selection import column_of, item_of
from rankscope.tui.model import Model
from rankscope.tui.selection import Selection


@dataclass(frozen=True)
class Place:
    """A rank, and the place on its lane; None if only the rank is known."""

    rank: int
    item: int | None = None
    column: int | None = None


def place_of_finding(model: Model, finding: Finding) -> Place | None:
    """The culprit at the collective of the finding; without a culprit, a member of its group that waits there."""
    told = (e.rank for e in finding.evidence if e.rank is not None)
    others = (*finding.waiting_ranks, *told)
    members = finding.group.ranks if finding.group is not None else ()
    own = set(members)
    own_others = (rank for rank in others if rank in own)
    ranks = (*finding.culprit_ranks, *finding.candidates, *finding.about, *own_others, *members, *others)
    shown = [rank for rank in ranks if rank in model.lane_of]
    if not shown:
        return None
    if _is_p2p(finding.op):
        return _at_pair(model, shown[0], finding.row)
    if finding.group is None or finding.seq is None:
        return _at_last(model, shown[0], finding.group.key if finding.group is not None else None)
    return _place(model, shown[0], finding.group.key, finding.seq, p2p=False)


def place_of_step(model: Model, step: ChainStep) -> Place | None:
    """The awaited rank, at the operation that it is awaited in."""
    group = group_named(model, step.waits_in.group, (step.rank, step.for_rank))
    if step.for_rank not in model.lane_of:
        return None
    if _is_p2p(step.waits_in.op):
        return _at_pair(model, step.for_rank, step.waits_in.row)
    if group is None or step.waits_in.seq is None:
        return _at_last(model, step.for_rank)
    return _place(model, step.for_rank, group, step.waits_in.seq, p2p=False)


def place_of_selection(model: Model, selection: Selection) -> Place | None:
    """The place of a selection from another screen."""
    if selection.rank not in model.lane_of:
        return None
    if selection.row is not None:
        return _at_row(model, selection.rank, selection.row)
    if selection.group is None or selection.seq is None:
        return Place(selection.rank)
    return _place(model, selection.rank, selection.group, selection.seq, p2p=selection.is_p2p)


def group_named(model: Model, name: str, ranks: tuple[int, ...]) -> int | None:
    """The group of this name with these ranks; of several the smallest."""
    fitting = [g for g in model.dataset.group_list if g.name == name]
    with_all = [g for g in fitting if set(ranks) <= set(g.ranks)] or fitting
    return min(with_all, key=lambda g: len(g.ranks)).id if with_all else None


def _place(model: Model, rank: int, group: int, seq: int, *, p2p: bool) -> Place:
    item = item_of(model, rank, group, seq, p2p=p2p)
    if item is not None:
        return Place(rank, item, int(model.items.col[item]))
    column = column_of(model, group, seq)
    return _at_last(model, rank, group) if column is None else Place(rank, None, column)


def _at_last(model: Model, rank: int, group: int | None = None) -> Place:
    """A rank at its last operation, in a group if it has any there; only the rank if it has none at all."""
    lane = model.lane_of[rank]
    items = np.arange(int(model.bounds[lane]), int(model.bounds[lane + 1]))
    own = items[model.items.group[items] == group] if group is not None else items
    found = own if len(own) else items
    return Place(rank, int(found[-1]), int(model.items.col[found[-1]])) if len(found) else Place(rank)


def _at_row(model: Model, rank: int, row: int) -> Place:
    """A rank in the column of a row of ops, which may be another rank's."""
    lane = model.lane_of[rank]
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    found = (model.items.row[first:last] == row).nonzero()[0]
    return Place(rank, first + int(found[0]) if len(found) else None, int(model.columns[row]))


def _at_pair(model: Model, rank: int, row: int | None) -> Place:
    """A rank at a send or receive; without its row at its last operation: a collective may have the same number."""
    return _at_last(model, rank) if row is None else _at_row(model, rank, row)


def _is_p2p(op: str | None) -> bool:
    return op in ("send", "recv")


# Reads the text that is typed after `:`: a rank, a sequence number, a time.

_RANK = re.compile(r"(?:r|rank)?\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_SEQ = re.compile(r"(?:#|s|seq)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"(?:@|step)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_SPAN = re.compile(r"([+-])\s*(\d{1,18}(?:\.\d+)?)\s*(ns|us|ms|s|min|m|h)?", re.IGNORECASE | re.ASCII)
_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "m": 60e9, "h": 3600e9}

HINT = "12 rank   #1121 sequence number   @40 step   14:02:11 or -3s time"
"""The forms that can be typed, for the prompt."""


@dataclass(frozen=True)
class Target:
    """A typed place; only one field is set."""

    rank: int | None = None
    seq: int | None = None
    step: int | None = None
    time_ns: int | None = None
    span_ns: int | None = None
    """Relative to the cursor."""


def parse(text: str, day_ns: int, zone: tzinfo | None = None) -> Target:
    """The target of `text`. A time of day is on the day of `day_ns`, in `zone` (None: the local one).

    ValueError tells the possible forms.
    """
    text = text.strip()
    if match := _RANK.fullmatch(text):
        return Target(rank=int(match[1]))
    if match := _SEQ.fullmatch(text):
        return Target(seq=int(match[1]))
    if match := _STEP.fullmatch(text):
        return Target(step=int(match[1]))
    if match := _CLOCK.fullmatch(text):
        return Target(time_ns=_clock(match, day_ns, zone))
    if match := _SPAN.fullmatch(text):
        size = float(match[2]) * _UNITS[(match[3] or "s").lower()]
        return Target(span_ns=round(size if match[1] == "+" else -size))
    raise ValueError(f"type {HINT}")


def _clock(match: re.Match[str], day_ns: int, zone: tzinfo | None) -> int:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"no time of day: {match[0]}")
    try:
        moment = datetime.fromtimestamp(day_ns // 1_000_000_000, zone)
    except (OverflowError, OSError) as error:
        raise ValueError("the times of this run are no dates") from error
    wanted = moment.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # A run may cross midnight: take the day on which the time is nearest.
    nearest = min(
        (wanted + timedelta(days=shift) for shift in (-1, 0, 1)), key=lambda t: abs((t - moment).total_seconds())
    )
    return round(nearest.timestamp()) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))
