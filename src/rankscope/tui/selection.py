"""The selection under the cursor, passed from the lanes to the detail pane and the other screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Absence = Literal["never issued", "no dump", "overwritten", "filtered", "unknown"]
"""Reasons why a rank has no row for a collective of one of its groups."""


@dataclass(frozen=True)
class Selection:
    """One rank with an operation, with a collective without a row, or alone."""

    rank: int
    row: int | None = None
    """Index into `Dataset.ops`; None where the rank has no row there."""
    group: int | None = None
    """Row of `Dataset.groups`."""
    seq: int | None = None
    """Collective sequence number in the group; for point-to-point the number in the row."""
    is_p2p: bool = False
    finding: int | None = None
    """Index of the shown finding in `Analysis.findings`."""
    absence: Absence | None = None
    """The reason why `row` is None, if it is known."""


@dataclass(frozen=True)
class GroupFilter:
    """A process group to which the lanes are to be limited, and the place to go to there."""

    group: int | None
    """Row of `Dataset.groups`; None stands for all groups."""
    selection: Selection | None = None


@dataclass(frozen=True)
class Moment:
    """A stretch of time of one rank, for a jump to the lanes of traces; times are aligned."""

    rank: int
    start_ns: int
    end_ns: int
