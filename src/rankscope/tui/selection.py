"""What the cursor is on, as the lanes tell it to the detail pane and the pop-up screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Absence = Literal["never issued", "no dump", "overwritten", "filtered", "unknown"]
"""Why a rank has no row for a collective of one of its groups."""


@dataclass(frozen=True)
class Selection:
    """One rank, and what of it: an operation, or a collective it has no row for, or only the rank."""

    rank: int
    row: int | None = None
    """Index into `Dataset.ops`; None where the rank has no row there."""
    group: int | None = None
    """Row of `Dataset.groups`."""
    seq: int | None = None
    """Collective sequence number in the group; for point-to-point the one the row carries."""
    is_p2p: bool = False
    finding: int | None = None
    """Index into `Analysis.findings` of the finding that is shown."""
    absence: Absence | None = None
    """Why `row` is None, where that is known."""


@dataclass(frozen=True)
class Moment:
    """A stretch of time of one rank, for a jump to the lanes of traces; times are aligned."""

    rank: int
    start_ns: int
    end_ns: int
