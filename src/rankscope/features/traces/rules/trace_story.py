"""Results of the traces of one job, computed from their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.analysis.late_ranks import LatenessTest, LateRank, LostTime, UnsteadyRank, lateness_test
from rankscope.features.traces.rules.clock_alignment import FileClocks, align_clocks
from rankscope.features.traces.rules.collective_costs import CollectiveCosts, sizes_of
from rankscope.features.traces.rules.critical_path import CriticalPaths, critical_paths
from rankscope.features.traces.rules.device_spans import SpanIndex, step_spans, with_steps
from rankscope.features.traces.rules.host_time import counter_table, kernel_patterns
from rankscope.features.traces.rules.lateness import (
    MATCH_COLUMNS,
    last_table,
    with_lateness,
    with_lost,
    with_units,
    with_work,
)
from rankscope.features.traces.rules.lateness_causes import LatenessExplainer
from rankscope.features.traces.rules.matching import Matching, cluster_windows, executed_rows, jobs_of, match_rows
from rankscope.features.traces.rules.model import MATCHED, STEPS, Columns, Lateness, TraceAnalysis
from rankscope.features.traces.rules.range_times import range_table
from rankscope.features.traces.rules.step_launches import step_tables
from rankscope.features.traces.rules.trace_tables import FileTables, recorded_in_dumps, tables_of_all
from rankscope.features.traces.rules.traced_collectives import instance_table, traced_costs
from rankscope.features.traces.rules.window_offset import AGREEMENT_NS
from rankscope.schema import Dataset, Group
from rankscope.text.wording import plural

MOST_REFUSED = 8
SHIFTED_SHARE = 0.5
"""Part of its lateness that a rank computes longer, at least, if its device is the cause."""


@dataclass(frozen=True)
class TraceStory:
    """Results of the traces of one job, each computed on request."""

    dataset: Dataset

    @cached_property
    def spans(self) -> SpanIndex:
        """Work on devices and hosts."""
        return SpanIndex(self.dataset)

    @cached_property
    def paths(self) -> dict[int, str]:
        """Paths of the traces, by file."""
        files = self.dataset.files.join(self.dataset.traces.select("file"), on="file", how="semi")
        return dict(files.select("file", "path").iter_rows())

    @cached_property
    def executed(self) -> pl.DataFrame:
        """Operations to match."""
        return executed_rows(self.dataset)

    @cached_property
    def matching(self) -> Matching:
        """Matched operations."""
        untold = {g.id for g in self.dataset.group_list if not g.name and not g.description}
        return match_rows(self.executed, cluster_windows(self.dataset.traces), untold, self.steps)

    @cached_property
    def clocks(self) -> FileClocks:
        """Clock differences."""
        return align_clocks(self.matching, self.dataset.traces, self.paths, self.spans.on_host)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Steps of each file, on its own clock."""
        return step_spans(self.dataset)

    @cached_property
    def matches(self) -> pl.DataFrame:
        """Rows of operations with at least two members, aligned, with their step, unit and spot."""
        offsets = dict(self.clocks.offsets)
        rows = self.matching.rows.filter(pl.col("file").is_in(list(offsets)) & (pl.len().over(MATCH_COLUMNS) > 1))
        offset = pl.col("file").replace_strict(offsets, return_dtype=pl.Int64) if offsets else pl.lit(0)
        aligned = pl.col("arrived_ns", "started_ns", "ended_ns") + offset
        rows = with_steps(rows.with_columns(aligned, offset_ns=offset), self.steps)
        # an operation that ends before a member came is not the same operation
        held = (
            pl.col("arrived_ns").max().over(MATCH_COLUMNS)
            <= pl.col("ended_ns").min().over(MATCH_COLUMNS) + AGREEMENT_NS
        )
        return with_units(rows.filter(held | ~pl.col("blocking")))

    @cached_property
    def joined(self) -> pl.DataFrame:
        """Matches that nobody can leave before all have come, with the lateness of each member."""
        begins = self.dataset.traces.select("file", window_ns="start_ns").join(
            self.steps.group_by("file").agg(step_ns=pl.col("begin_ns").min()), on="file", how="left"
        )  # fmt: skip
        begins = begins.select("file", begin_ns=pl.coalesce("step_ns", "window_ns"))
        whole = pl.col("blocking") & (pl.len().over(MATCH_COLUMNS) == self._sizes(self.matches))
        partial = pl.col("group").is_in(list(self._partial)) & pl.col("members").is_null()
        rows = self.matches.filter(whole).with_columns(partial=partial)
        return with_lost(with_lateness(with_work(rows, self.spans, begins)), self.spans)

    @cached_property
    def _partial(self) -> frozenset[int]:
        """Groups of which not all members were traced."""
        return frozenset(g.id for g in self.dataset.group_list if not self.traced_ranks.issuperset(g.ranks))

    @cached_property
    def traced_ranks(self) -> frozenset[int]:
        """The ranks that have a trace."""
        return frozenset(self.dataset.traces["rank"].drop_nulls())

    def _sizes(self, rows: pl.DataFrame) -> pl.Series:
        """The number of traced members of the group of each row: of ranks that used it if its members are unknown."""
        told = {group.id: len(self.traced_ranks.intersection(group.ranks)) for group in self.dataset.group_list}
        used = dict(rows.group_by("group").agg(pl.col("rank").n_unique()).iter_rows())
        size = pl.col("group").replace_strict({g: told.get(g) or used[g] for g in used}, return_dtype=pl.UInt32)
        return rows.select(pl.coalesce("members", size)).to_series()

    @cached_property
    def late(self) -> list[LateRank]:
        """Ranks that are late by themselves, the costliest first; each job in the input is judged separately.

        Who meets a late rank in another group does its own work later, beside other collectives than its peers, and
        seems to work longer there: over whole steps it does not.
        """
        late = sorted((late for test in self._tests for late in test.late_ranks()), key=lambda late: -late.cost_ns)
        kept: list[LateRank] = []
        for rank in late:
            if not (any(self._meet(rank.rank, other.rank) for other in kept) and self._is_shifted(rank)):
                kept.append(rank)
        return kept

    def _meet(self, rank: int, other: int) -> bool:
        """Whether two ranks have a group in which they call collectives or send to each other."""
        groups = self.matches.filter(pl.col("rank").is_in([rank, other])).select("rank", "group").unique()["group"]
        return bool(groups.is_duplicated().any())

    def _is_shifted(self, late: LateRank) -> bool:
        """Whether the device of a rank computes in its steps no longer than those of its group, though that is the
        cause of its lateness."""
        members = self.joined.filter(pl.col("channel") == late.channel)["rank"].unique()
        steps = self.tables["steps"].filter(pl.col("rank").is_in(members.implode())).drop_nulls("compute_ns")
        own = pl.col("rank") == late.rank
        each = steps.group_by("step").agg(
            more=pl.col("compute_ns").filter(own).first() - pl.col("compute_ns").filter(~own).median()
        )
        more = each["more"].median()
        is_even = isinstance(more, float) and more < SHIFTED_SHARE * late.median_ns
        return is_even and not self.steps.is_empty() and self._explainer.explain(late).cause == "compute"

    @cached_property
    def tables(self) -> FileTables:
        """The tables that are made of each file alone."""
        return tables_of_all(self.spans, self.steps)

    @cached_property
    def unsteady(self) -> UnsteadyRank | None:
        """The rank that loses most time by coming late, if that is much and yet no rank is late by itself."""
        found = [rank for test in self._tests if (rank := test.unsteady()) is not None]
        return max(found, key=lambda rank: rank.lost_ns / max(rank.unit_ns, 1), default=None)

    @cached_property
    def lost(self) -> LostTime | None:
        """The time that ranks lose by waiting for the last of them, if that is a large share of most units."""
        found = [lost for test in self._tests if (lost := test.lost()) is not None]
        return max(found, key=lambda lost: lost.lost_ns / max(lost.unit_ns, 1), default=None)

    @cached_property
    def _tests(self) -> list[LatenessTest]:
        """The test for late ranks of each job."""
        window = pl.col("window")
        tests = (self._test(self.joined.filter(window.is_in(own))) for own in jobs_of(self.joined))
        return [test for test in tests if test is not None]

    def _test(self, rows: pl.DataFrame) -> LatenessTest | None:
        """The test of one job; without groups across pipeline stages, which differ by design."""
        own = pl.col("file").is_in(rows["file"].unique().implode())
        on_host = bool(self.dataset.tracks.filter(own)["device"].is_null().all())
        within = rows.filter(~pl.col("group").is_in(list(self._stages(rows))))
        return lateness_test(within, on_host, self.steps)

    def _stages(self, rows: pl.DataFrame) -> frozenset[int]:
        """Groups across pipeline stages of one job."""
        own = pl.col("file").is_in(rows["file"].unique().implode())
        return pipeline_groups(self.dataset.traced.filter(own), self.dataset.group_list)

    @property
    def staged(self) -> bool:
        """Whether matched collectives were left out because they are of groups across pipeline stages."""
        of_jobs = (self.joined.filter(pl.col("window").is_in(own)) for own in jobs_of(self.joined))
        return any(rows["group"].is_in(list(self._stages(rows))).any() for rows in of_jobs)

    @cached_property
    def causes(self) -> dict[int, Lateness]:
        """By rank the cause of its lateness."""
        return {late.rank: self._explainer.explain(late) for late in self.late}

    @cached_property
    def _explainer(self) -> LatenessExplainer:
        """Finds the causes of lateness."""
        return LatenessExplainer(self.spans, self.joined)

    @cached_property
    def instances(self) -> pl.DataFrame:
        """Matched operations that need all members; see `instance_table`."""
        return instance_table(self.dataset, self.joined, self.sizes)

    @cached_property
    def collectives(self) -> CollectiveCosts:
        """Costs of collectives by type and size, and by rank."""
        return traced_costs(self.dataset, self.matches, self.joined, self.sizes, self.instances)

    @cached_property
    def sizes(self) -> pl.DataFrame:
        """Bytes of each row of `Dataset.traced`; see `sizes_of`."""
        return sizes_of(self.dataset.traced)

    @cached_property
    def recorded(self) -> pl.DataFrame:
        """Traced operations that are in dumps as well; see `recorded_in_dumps`."""
        return recorded_in_dumps(self.dataset)

    def analysis(self) -> TraceAnalysis:
        """All results."""
        offsets, alone = self.clocks.offsets, self.tables
        rows = self.matches.join(self._numbers, on=MATCH_COLUMNS).with_columns(seq=pl.coalesce("seq", "place"))
        matched = _shaped(rows, MATCHED).sort("match", "rank")
        return TraceAnalysis(
            offsets=offsets,
            residuals=self.clocks.residuals,
            clock_error_ns=self.clocks.error_ns if self.clocks.residuals else None,
            matched=matched,
            refused=(*self.refused(), *self.clocks.doubts),
            last=self.last,
            causes=self.causes,
            recorded=None if self.dataset.dumps.is_empty() else self.recorded.height,
            steps=self._steps(alone["steps"], offsets),
            kernels=alone["kernels"],
            idle=alone["idle"],
            queues=alone["queues"],
            launches=alone["launches"],
            path=self.paths_of_steps.parts,
            path_names=self.paths_of_steps.names,
            handovers=self.paths_of_steps.handovers,
            patterns=kernel_patterns(self.spans),
            counters=counter_table(self.spans),
            ranges=range_table(self.spans),
            **step_tables(self.spans, self.steps),
        )

    @cached_property
    def paths_of_steps(self) -> CriticalPaths:
        """The critical path of each step."""
        return critical_paths(self.spans, self.steps, self.matches, self.clocks)

    @cached_property
    def _numbers(self) -> pl.DataFrame:
        """The number of each match, in the order of ends."""
        ends = self.matches.group_by(MATCH_COLUMNS).agg(pl.col("ended_ns").max()).sort("ended_ns", *MATCH_COLUMNS)
        return ends.select(*MATCH_COLUMNS).with_row_index("match")

    @cached_property
    def last(self) -> pl.DataFrame:
        """The last rank of each collective, with columns LAST."""
        return last_table(self.joined, self._numbers, self.clocks.error_ns, by_step=not self.steps.is_empty())

    def _steps(self, table: pl.DataFrame, offsets: Mapping[int, int]) -> pl.DataFrame:
        """STEPS of all files, aligned by `offsets`."""
        unit = pl.col("unit") if not self.steps.is_empty() else pl.lit(0, dtype=pl.Int64)
        # the same delay appears in every group of the rank: the largest counts
        late = (
            self.joined.group_by("file", "channel", unit.alias("step"))
            .agg(late_ns=pl.col("own_ns").sum(), waited_ns=pl.col("waited_ns").sum())
            .group_by("file", "step").agg(pl.col("late_ns").max(), pl.col("waited_ns").sum())
        )  # fmt: skip
        offset = pl.col("file").replace_strict(dict(offsets), default=0, return_dtype=pl.Int64)
        table = table.join(late, on=["file", "step"], how="left", maintain_order="left")
        return _shaped(table.with_columns(pl.col("start_ns", "end_ns") + offset), STEPS)

    def refused(self) -> tuple[str, ...]:
        """Unmatched operations with reasons, for the user."""
        groups = dict(self.executed.select("channel", "group").unique("channel").iter_rows())
        lines: dict[str, set[str]] = {}
        for channel, file, why in self.matching.refused:
            label = group_label(self.dataset.group_list, groups[channel], self.dataset.world_size)
            lines.setdefault(f"{why} ({self.paths.get(file, '?')})", set()).add(label)
        out = [f"{', '.join(sorted(labels))}: {why}" for why, labels in lines.items()]
        left = len(out) - MOST_REFUSED
        return (*out[:MOST_REFUSED], *((f"and {plural(left, 'more refusal')}",) if left > 0 else ()))


def group_label(groups: Sequence[Group], group: int | None, world_size: int) -> str:
    """The label of a group for people; its ranks if it has no name."""
    found = groups[group] if group is not None and group < len(groups) else None
    if found is None:
        return "an unnamed group"
    if found.description or found.name:
        return found.description or found.name
    return "all ranks" if len(found.ranks) == world_size else plural(len(found.ranks), "rank")


def _shaped(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    return table.select([pl.col(name).cast(kind) for name, kind in columns.items()])


# Groups of pipeline stages, which wait for one another and come late by design.


def pipeline_groups(traced: pl.DataFrame, groups: Sequence[Group]) -> frozenset[int]:
    """Groups with two members that send to each other (activations and gradients), or in one direction.

    Not a ring, in which each member sends to the next and all do the same; a ring of two looks like a pipeline.
    """
    sends = traced.filter(pl.col("is_p2p") & (pl.col("op").cast(pl.String) == "send")).select("rank", "peer")
    pairs = set(sends.drop_nulls().unique().iter_rows())
    staged = {(a, b) for a, b in pairs if (b, a) in pairs} | _leading_on(pairs)
    return frozenset(g.id for g in groups if any(a in g.ranks and b in g.ranks for a, b in staged))


def _leading_on(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Sends from which nothing returns to the sender: they are in no cycle."""
    left = set(pairs)
    while True:
        senders, receivers = {a for a, _ in left}, {b for _, b in left}
        ends = {(a, b) for a, b in left if a not in receivers or b not in senders}
        if not ends:
            return pairs - left
        left -= ends
