"""Looks up operations of a Dataset by rank, or by group and sequence number, without repeated scans."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.presence import Presence
from rankscope.report.words import descriptions
from rankscope.schema import Dataset, Group
from rankscope.tui.selection import Selection

_KEPT = 8
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
_TEXTS = ("host", "library", "op", "coalesced", "state", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes", "thread")

Rows = npt.NDArray[np.uint32]
Row = dict[str, Any]
"""One row of ``ops`` by column name, texts as str, with its position as ``row``."""


def one(position: int) -> Rows:
    """A single position."""
    return np.array([position], dtype=np.uint32)


class OpIndex:
    """Positions in the ops of one Dataset; frequent answers are kept."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._of_group: OrderedDict[int, tuple[Rows, npt.NDArray[np.int64]]] = OrderedDict()
        self._keeping = Lock()
        """The pane uses the index in a thread, the other screens in the thread of the keys."""

    def group(self, key: int | None) -> Group | None:
        """The group with this id; None if there is none."""
        groups = self.dataset.group_list
        return groups[key] if key is not None and 0 <= key < len(groups) else None

    def row(self, position: int) -> Row:
        """The row at a position of ``ops``."""
        return self.frame(one(position)).row(0, named=True)

    def frame(self, rows: Rows) -> pl.DataFrame:
        """The rows at these positions, with their position as ``row`` and categorical columns as text."""
        taken = self.dataset.ops[rows]
        return taken.with_columns(pl.col(_TEXTS).cast(pl.String)).insert_column(
            0, pl.Series("row", rows, dtype=pl.UInt32)
        )

    def of_rank(self, rank: int) -> range:
        """Positions of all operations of a rank, in its order."""
        ranks = self.dataset.ops["rank"]
        return range(int(ranks.search_sorted(rank, "left")), int(ranks.search_sorted(rank, "right")))

    def rank_frame(self, rank: int) -> pl.DataFrame:
        """All operations of a rank, in the form of `frame`."""
        span = self.of_rank(rank)
        return self.frame(np.arange(span.start, span.stop, dtype=np.uint32))

    def instance(self, group: int, seq: int) -> Rows:
        """Positions of a collective on all ranks; more than one per rank where operations were coalesced."""
        rows, seqs = self._group_rows(group)
        positions: Rows = rows[seqs == seq]
        return positions

    def position(self, rank: int, group: int, seq: int) -> int | None:
        """Position of a collective on one rank, the closer of a coalesced one; None if there is none."""
        span = self.of_rank(rank)
        part = self.dataset.ops.slice(span.start, len(span))
        hits = (part["group"] == group) & (part["seq"] == seq) & ~part["is_p2p"]
        positions = hits.arg_true()
        return span.start + int(positions[-1]) if len(positions) else None

    def last_stacks(self, ranks: Sequence[int]) -> pl.DataFrame:
        """`stack_id` of the last operation of each rank, with its `rank`; ranks without operations are left out."""
        column = self.dataset.ops["rank"]
        wanted = pl.Series(ranks, dtype=pl.Int32)
        first, after = (column.search_sorted(wanted, side).to_numpy() for side in _SIDES)
        rows = (after - 1)[after > first].astype(np.uint32)
        return self.dataset.ops[rows].select("rank", "stack_id")

    def last_operation(self, rank: int) -> Selection:
        """The last operation of a rank; only the rank if it issued none."""
        span = self.of_rank(rank)
        return self.selection(span[-1]) if span else Selection(rank)

    def selection(self, position: int) -> Selection:
        """The operation at a position of ``ops`` as a selection."""
        row = self.row(position)
        return Selection(row["rank"], row=position, group=row["group"], seq=row["seq"], is_p2p=bool(row["is_p2p"]))

    def last_of(self, rank: int, group: int) -> int | None:
        """Position of the last operation of a rank in a group; None if it issued none."""
        span = self.of_rank(rank)
        positions = (self.dataset.ops.slice(span.start, len(span))["group"] == group).arg_true()
        return span.start + int(positions[-1]) if len(positions) else None

    def _group_rows(self, group: int) -> tuple[Rows, npt.NDArray[np.int64]]:
        with self._keeping:
            if group in self._of_group:
                self._of_group.move_to_end(group)
                return self._of_group[group]
        ops = self.dataset.ops
        rows = ((ops["group"] == group) & ~ops["is_p2p"] & ops["seq"].is_not_null()).arg_true()
        known = rows.to_numpy().astype(np.uint32), ops["seq"].gather(rows).to_numpy()
        with self._keeping:
            self._of_group[group] = known
            if len(self._of_group) > _KEPT:
                self._of_group.popitem(last=False)
        return known

    @cached_property
    def presence(self) -> Presence:
        """Reasons why ranks have no row for a collective."""
        return Presence(self.dataset)

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """Descriptions of groups for people, by their names."""
        return descriptions(self.dataset)

    @cached_property
    def written_ns(self) -> int | None:
        """Time of the last written dump; a start that was noticed then is also an event, and not older."""
        newest = self.dataset.dumps["mtime_ns"].max()
        return newest if isinstance(newest, int) else None

    @cached_property
    def newest_ns(self) -> int | None:
        """Time of the last event in any dump."""
        ops = self.dataset.ops
        times = [ops[name].max() for name in ("created_ns", "started_ns", "completed_ns")]
        known = [time for time in times if isinstance(time, int)]
        return max(known, default=None)

    def warm(self) -> None:
        """Computes the facts that every look-up needs, before a key waits for them."""
        _ = self.presence, self.dataset.cut_ranks, self.descriptions, self.written_ns, self.newest_ns


_shared: list[OpIndex] = []


def share(index: OpIndex) -> None:
    """Makes later calls of `index_of` return this index for its dataset."""
    _shared[:] = [index]


def index_of(dataset: Dataset) -> OpIndex:
    """The index of a dataset; the pane and the screens share it while they show the same dataset."""
    if not _shared or _shared[0].dataset is not dataset:
        _shared[:] = [OpIndex(dataset)]
    return _shared[0]
