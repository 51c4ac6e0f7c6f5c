"""Reasons why an operation is not in a rank's dump: five cases that must not be confused."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import polars as pl

from rankscope.analysis.group_frontiers import frontiers_of
from rankscope.schema import Dataset


class Absence(StrEnum):
    """Reasons why a member of a group has no row for a collective."""

    NO_DUMP = "no dump"
    NEVER_ISSUED = "never issued"
    OVERWRITTEN = "overwritten"
    FILTERED = "filtered"
    UNKNOWN = "unknown"


class Presence:
    """Answers for one Dataset who issued an operation, and why a row is absent."""

    def __init__(self, dataset: Dataset) -> None:
        self.seen = frozenset(dataset.seen_ranks)
        self._from_logs = dataset.from_logs
        self.frontiers = frontiers_of(dataset)
        self._members = tuple(group.ranks for group in dataset.group_list)
        files = dataset.dumps.filter(pl.col("rank").is_not_null())
        self._whole = {
            rank: not wrapped and filtered == "none"
            for rank, wrapped, filtered in files.select("rank", "wrapped", "filtered").iter_rows()
        }
        self._cut = dataset.cut_ranks

    def whole(self, rank: int) -> bool:
        """Whether the dump of a rank holds every operation it issued."""
        return self._whole.get(rank, False) and not self.cut(rank)

    def cut(self, rank: int) -> bool:
        """Whether the dump of a rank was read only in part, so its last operations may be missing."""
        return rank in self._cut

    def told(self, rank: int, group: int) -> bool:
        """Whether any record covers a rank in a group. In a job with only logs, silence is no missing dump."""
        return self._from_logs or rank in self.seen or (rank, group) in self.frontiers

    def dumped(self, rank: int) -> bool:
        """Whether a rank left a dump; a log alone does not show its sends and receives."""
        return rank in self.seen and not self._from_logs

    def absence(self, rank: int, group: int, seq: int) -> Absence:
        """The reason why `rank` has no row for collective `seq` of `group`."""
        if not self.told(rank, group):
            return Absence.NO_DUMP
        frontier = self.frontiers.get((rank, group))
        if frontier is None or frontier.enqueued is None:
            return Absence.NEVER_ISSUED if self.whole(rank) else Absence.UNKNOWN
        if seq > frontier.enqueued:
            return Absence.NEVER_ISSUED
        if frontier.filtered == "only-active":
            return Absence.FILTERED
        if frontier.wrapped and (frontier.first_kept is None or seq < frontier.first_kept):
            return Absence.OVERWRITTEN
        return Absence.UNKNOWN

    def absences(self, group: int, seq: int, issued: Collection[int]) -> dict[int, Absence]:
        """For every member of `group` outside `issued`, the reason why it has no row for collective `seq`."""
        return {rank: self.absence(rank, group, seq) for rank in self._members[group] if rank not in issued}
