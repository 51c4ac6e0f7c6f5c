"""Facts about one rank: its operations, its frontiers, its dumps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.freeze import DumpPairs
from rankscope.analysis.model import ChainStep, Evidence, Finding
from rankscope.analysis.presence import Absence, Presence
from rankscope.kinds.input_kinds import DUMP
from rankscope.schema import Dataset, Group
from rankscope.text.wording import duration, plural

Row = dict[str, Any]
IS_ABORTED = (
    (pl.col("state") == "completed")
    & (pl.col("completed_ns") - pl.col("created_ns") >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
)  # fmt: skip
"""Operations completed only by an abort, after their timeout (pytorch PR 119249)."""


@dataclass(frozen=True)
class RankView:
    """One rank of a dataset."""

    dataset: Dataset
    rank: int

    @cached_property
    def seen(self) -> bool:
        """Whether the rank left a readable dump."""
        return self.rank in self.dataset.seen_ranks

    @cached_property
    def path(self) -> str | None:
        """The dump of the rank."""
        used = self._files.filter("used")["path"]
        return used[0] if len(used) else None

    @cached_property
    def unread(self) -> list[tuple[str, str]]:
        """(path, problem) of its dumps that could not be read fully."""
        broken = self._files.filter(pl.col("problem").is_not_null() & (pl.col("kind") == DUMP.name))
        return list(broken.select("path", "problem").iter_rows())

    @property
    def _files(self) -> pl.DataFrame:
        return self.dataset.files.filter(pl.col("rank") == self.rank)

    @cached_property
    def written_ns(self) -> int | None:
        """The time its dump was written; None if it is unknown."""
        found = self.dataset.dumps.filter(pl.col("rank") == self.rank)["mtime_ns"].max()
        return found if isinstance(found, int) else None

    @cached_property
    def ops(self) -> pl.DataFrame:
        """Its operations in issue order, with their `row` in `Dataset.ops`."""
        ranks = self.dataset.ops["rank"]
        start, end = ranks.search_sorted(self.rank, "left"), ranks.search_sorted(self.rank, "right")
        return self.dataset.ops.slice(start, end - start).with_row_index("row", offset=start)

    @cached_property
    def pending(self) -> pl.DataFrame:
        """Its issued and unfinished operations."""
        return self.ops.filter((IS_PENDING & (pl.col("coalesced") != "inner")) | IS_ABORTED)

    @cached_property
    def is_cut_off(self) -> bool:
        """Whether its dump cannot tell if it waits: read in part, or without the end of its last operations."""
        last = self.ops["state"].tail(1).to_list()
        return self.rank in self.dataset.cut_ranks or last == ["unknown"]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of the rank."""
        return tuple(group for group in self.dataset.group_list if self.rank in group.ranks)

    @cached_property
    def _presence(self) -> Presence:
        own = self.dataset.frontiers.filter(pl.col("rank") == self.rank)
        return Presence(replace(self.dataset, ops=self.ops.drop("row"), frontiers=own))

    def absence(self, group: int, seq: int) -> Absence:
        """The reason why it has no row for a collective."""
        return self._presence.absence(self.rank, group, seq)

    def at(self, group: int, seq: int) -> Row | None:
        """Its side of a collective; None without one."""
        rows = self.ops.filter((pl.col("group") == group) & (pl.col("seq") == seq) & ~pl.col("is_p2p"))
        return rows.row(-1, named=True) if rows.height else None

    def state(self, groups: Iterable[int]) -> list[Evidence]:
        """Its last issued and last completed operation in each of these groups."""
        return [self._state_in(group) for group in dict.fromkeys(groups)]

    def _state_in(self, group: int) -> Evidence:
        label = label_of(self.dataset, group)
        frontier = self._presence.frontiers.get((self.rank, group))
        rows = self.ops.filter(pl.col("group") == group)
        completed = frontier.completed if frontier is not None else None
        done = f"; last completed #{completed}" if completed is not None and completed > 0 else ""
        if rows.height:
            last = rows.row(-1, named=True)
            return self.evidence(
                f"rank {self.rank}, {label}: last issued {operation_name(last)}, {operation_state(last)}{done}", last
            )
        if frontier is not None and frontier.enqueued:
            return self.evidence(f"rank {self.rank}, {label}: last issued #{frontier.enqueued}{done}")
        return self.evidence(f"rank {self.rank}, {label}: no operation is known")

    def repeats(self) -> tuple[Evidence | None, Evidence | None]:
        """(two of its dumps are equal, its operations went on between two), each with the time between them."""
        spans = DumpPairs(self.dataset)
        told = ((spans.unchanged, "show the same"), (spans.moved, "show that its operations went on"))
        still, moved = (
            self.evidence(f"two dumps of it, {duration(of[self.rank][1] - of[self.rank][0])} apart, {what}")
            if self.rank in of
            else None
            for of, what in told
        )
        return still, moved

    def evidence(self, text: str, row: Row | None = None) -> Evidence:
        """Evidence on this rank that points at its dump, or at one record."""
        if row is None:
            return Evidence(text, file=self.path, rank=self.rank)
        return Evidence(text, self.path, self.rank, row["record_id"], time_ns=row["created_ns"])

    def summary(self) -> str:
        """The number of operations it issued and finished."""
        if self.ops.is_empty():
            return "its dump holds no operation"
        left = self.pending.height
        kept = plural(self.ops.height, "operation")
        return f"its dump holds {kept}, {'all of them finished' if not left else f'{left} not finished'}"


def label_of(dataset: Dataset, group: int) -> str:
    """The label of a group for people."""
    found = dataset.group_list[group]
    return found.description or found.name or "?"


def operation_name(row: Row) -> str:
    """An operation with its number, and its peer: "all_reduce #12", "send to 3"."""
    if row["is_p2p"]:
        way = "from" if row["op"] == "recv" else "to"
        return f"{row['op']}" if row["peer"] is None else f"{row['op']} {way} {row['peer']}"
    return f"{row['op']} #{row['seq']}"


def operation_state(row: Row) -> str:
    """The state of an operation in words."""
    took = None if row["completed_ns"] is None or row["created_ns"] is None else row["completed_ns"] - row["created_ns"]
    if row["state"] == "completed":
        late = took is not None and row["timeout_ms"] is not None and took >= row["timeout_ms"] * 1_000_000
        return "aborted after its timeout" if late else "completed"
    if row["retired"] and row["state"] in ("scheduled", "started") and row["library"] != "gloo":
        return "given up by its watchdog"
    return {"scheduled": "pending", "started": "started, not finished"}.get(row["state"], "its state is not known")


def group_of(dataset: Dataset, step: ChainStep) -> int | None:
    """The group that a step waits in."""
    if step.waits_in.row is not None:
        return int(dataset.ops["group"][step.waits_in.row])
    found = [g.id for g in dataset.group_list if g.name == step.waits_in.group and step.rank in g.ranks]
    return found[0] if found else None


def step_evidence(dataset: Dataset, step: ChainStep) -> Evidence:
    """A step of a chain as evidence that points at the record of the waiting rank."""
    group = group_of(dataset, step)
    label = step.waits_in.group if group is None else label_of(dataset, group)
    number = "" if step.waits_in.seq is None else f" #{step.waits_in.seq}"
    text = f"rank {step.rank} waits in {step.waits_in.op}{number} of {label} for rank {step.for_rank}"
    view, row = RankView(dataset, step.rank), step.waits_in.row
    return view.evidence(text, None if row is None else dataset.ops.row(row, named=True))


def operation_text(finding: Finding) -> str:
    """The operation of a finding: "all_reduce #11 of tp"; "it" if there is none."""
    if finding.group is None or finding.op is None:
        return "it"
    number = "" if finding.seq is None else f" #{finding.seq}"
    return f"{finding.op}{number} of {finding.group.description or finding.group.id}"
