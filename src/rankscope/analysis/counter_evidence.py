"""Evidence against roots. Every statement rests on the dumps of this job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import DumpPairs
from rankscope.analysis.graph import Root
from rankscope.analysis.instances import Instance
from rankscope.analysis.model import Evidence
from rankscope.analysis.replicas import Signature, signature
from rankscope.analysis.sink_rules import SinkRules
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.text.wording import duration, plural, rank_ranges, ranks_text

MOMENT_NS = 2_000_000_000
"""Times closer than this may be chance: clocks of hosts differ, and dumps take time to write."""
MOST_CULPRITS = 8
"""Most culprits that are examined one by one."""
LARGE_MINORITY_SHARE = 1 / 3
"""A minority of at least this share of the members is not small."""
FEWEST_ABSENT_RANKS = 3
"""Fewest absent ranks whose common place is worth telling."""


@dataclass(frozen=True)
class JobCounterEvidence:
    """Finds evidence against the roots of one job; caches the facts that all roots need."""

    judge: SinkRules

    @property
    def facts(self) -> Facts:
        """The facts of the dumps."""
        return self.judge.facts

    def against(self, root: Root) -> tuple[Evidence, ...]:
        """All evidence against one root, in the order of its culprits; empty if there is none."""
        doubts = RootCounterEvidence(self, root)
        kind = FINDINGS[root.kind]
        if kind.differs:
            return tuple(doubts.of_votes())
        of_rank: list[Callable[[int], Iterator[Evidence]]] = []
        if kind.absent != "nobody" and root.needs_stillness:
            of_rank = [doubts.older_dump, doubts.still_busy, doubts.moved]
        elif root.kind == "gpu-stuck":
            of_rank = [doubts.later_completion, doubts.moved]
        of_culprits = [doubt for rank in sorted(doubts.late)[:MOST_CULPRITS] for ask in of_rank for doubt in ask(rank)]
        return (*of_culprits, *doubts.one_place(), *doubts.whole_hosts())

    def newest(self, without: Collection[int]) -> tuple[int, int]:
        """The newest issue time of a pending operation and its rank, `without` some ranks; (0, -1) if there is none."""
        return next(((ns, rank) for ns, rank in self._issued if rank not in without), (0, -1))

    @cached_property
    def _issued(self) -> list[tuple[int, int]]:
        """(time, rank) of the last pending operation of each rank, the newest first."""
        last: dict[int, int] = {}
        for instance in self.judge.graph.instances.values():
            for rank, entry in instance.entries.items():
                if entry.pending and entry.created_ns:
                    last[rank] = max(entry.created_ns, last.get(rank, 0))
        return sorted(((ns, rank) for rank, ns in last.items()), key=lambda item: (-item[0], item[1]))

    @cached_property
    def repeats(self) -> DumpPairs:
        """Pairs of earlier and later dumps."""
        return DumpPairs(self.facts.dataset)

    @cached_property
    def last(self) -> pl.DataFrame:
        """The last operation of each rank."""
        ops = self.facts.dataset.ops
        return ops.filter((pl.col("rank") != pl.col("rank").shift(-1)).fill_null(True))

    def own(self, rank: int) -> pl.DataFrame:
        """The operations of a rank."""
        ranks = self.facts.dataset.ops["rank"]
        start, end = ranks.search_sorted(rank, "left"), ranks.search_sorted(rank, "right")
        return self.facts.dataset.ops.slice(start, end - start)

    @cached_property
    def block(self) -> int:
        """Ranks per host if each host with a dump holds a block of neighbouring ranks; else 0."""
        used = self.facts.dataset.dumps.filter(pl.col("host").is_not_null() & pl.col("rank").is_not_null())
        hosts = used.group_by("host").agg(pl.col("rank").unique())["rank"].to_list()
        size = max(map(len, hosts), default=0)
        blocks = [{rank // size for rank in ranks} for ranks in hosts]
        apart = all(len(block) == 1 for block in blocks) and len(set().union(*blocks)) == len(blocks)
        return size if size > 1 and apart and len(blocks) > 1 else 0

    @cached_property
    def paths(self) -> dict[int, str]:
        """The dump of each rank."""
        return dict(self.facts.dataset.dumps.select("rank", "path").drop_nulls().iter_rows())


def not_always_last(times: int, of: int, label: str) -> tuple[Evidence, ...]:
    """Counter-evidence for a rank that is last in `times` of `of` collectives of a group."""
    others = of - times
    return (Evidence(f"another rank came last in {others:,} of {of:,} collectives of {label}"),) if others else ()


@dataclass(frozen=True)
class RootCounterEvidence:
    """Finds evidence against one root in the dumps."""

    job: JobCounterEvidence
    root: Root

    @cached_property
    def late(self) -> tuple[int, ...]:
        """The ranks that the root says did not come, or whose devices did not."""
        absent = FINDINGS[self.root.kind].absent
        return self.root.candidates if absent == "candidates" else self.root.culprits

    def older_dump(self, rank: int) -> Iterator[Evidence]:
        """A dump older than the last issue of another rank, or written soon after the others began to wait."""
        times, since = self.job.judge.reliability.written_ns, self._since
        written = times.get(rank)
        if written is None or since is None:
            return
        waiting = self.root.focus.waiting() if self.root.focus else []
        older = max((times.get(r, 0) for r in waiting), default=0) - written
        newest, other = self.job.newest(frozenset(self.late))
        if newest - written > MOMENT_NS:
            text = f"its dump was written {duration(newest - written)} before rank {other} issued its last operation"
        elif older > max(MOMENT_NS, written - since):
            text = (
                f"its dump was written {duration(max(0, written - since))} after the others began to wait, "
                f"and {duration(older)} before theirs"
            )
        else:
            return
        yield self._of(rank, f"{text}: it does not show what the rank did in between")

    @cached_property
    def _since(self) -> int | None:
        return self.root.focus.since_ns if self.root.focus else None

    def still_busy(self, rank: int) -> Iterator[Evidence]:
        """An operation that a rank issued long after the others began to wait for it."""
        newest = self.job.own(rank).filter(pl.col("created_ns").is_not_null()).tail(1)
        if self._since is None or newest.is_empty():
            return
        after = int(newest["created_ns"][0]) - self._since
        if after > MOMENT_NS:
            name = self._name(newest)
            text = f"it issued {name} {duration(after)} after the others began to wait: its host was running then"
            yield self._of(rank, text, newest)

    def moved(self, rank: int) -> Iterator[Evidence]:
        """Operations that progressed between two dumps of the rank."""
        span = self.job.repeats.moved.get(rank)
        if span is None:
            return
        others = sorted(self.job.repeats.unchanged.keys() - {rank})
        beside = f", while nothing moved on {_some(others)}" if others else ""
        text = (
            f"between its dumps {duration(span[1] - span[0])} apart its operations went on{beside}: it may be busy, "
            "or late"
        )
        yield Evidence(text, rank=rank, time_ns=span[1])

    def later_completion(self, rank: int) -> Iterator[Evidence]:
        """An operation of another group that a device finished although it was issued after the stuck one."""
        entry = self.root.focus.entries.get(rank) if self.root.focus else None
        if self.root.focus is None or entry is None or entry.created_ns is None:
            return
        own = self.job.own(rank)
        took = pl.col("completed_ns") - pl.col("created_ns")
        ran = (pl.col("state") == "completed") & ~(took >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
        later = own.filter(ran & (pl.col("created_ns") > entry.created_ns) & (pl.col("group") != self.root.focus.group))
        if later.height:
            text = f"its device finished {self._name(later.tail(1))}, which it issued later: it was not dead then"
            yield self._of(rank, text, later.tail(1))

    def of_votes(self) -> Iterator[Evidence]:
        """A minority that is not small, and replicas of the group that agree with it."""
        focus, accused = self.root.focus, set(self.root.culprits)
        if focus is None:
            return
        votes = {rank: signature(e) for rank, e in focus.entries.items() if e.op}
        right = Counter(votes[r] for r in sorted(votes) if r not in accused).most_common(1)
        if not right:
            return
        if 2 * len(accused) == len(votes):
            yield Evidence(f"the {len(votes):,} members are evenly split: only the replicas of the group decide")
        elif len(accused) >= LARGE_MINORITY_SHARE * len(votes):
            yield Evidence(
                f"{len(accused):,} of {plural(len(votes), 'member')} are accused, which is no small minority"
            )
        yield from self._of_replicas(focus, votes, right[0][0])

    def _of_replicas(self, focus: Instance, votes: dict[int, Signature], right: Signature) -> Iterator[Evidence]:
        expected = self.job.judge.cohorts.expected(focus)
        if expected is None or expected[0].fits(right):
            return
        siding = [rank for rank in self.root.culprits if votes[rank].fits(expected[0])]
        if siding:
            said = f"{plural(expected[1], 'replica')} of the group issued {expected[0]} there"
            yield Evidence(f"{said}, as {ranks_text(siding)} did", rank=siding[0])

    def one_place(self) -> Iterator[Evidence]:
        """For a collective that few ranks issued: all others stopped at the same operation, as with one common
        cause."""
        if (
            self.root.kind != "extra-collective"
            or len(self.late) < FEWEST_ABSENT_RANKS
            or not self.root.needs_stillness
        ):
            return
        last = self.job.last.filter(pl.col("rank").is_in(list(self.late)))
        places = last.select("group", "seq", "op", "is_p2p", "stack_id").unique()
        same = places.height == 1 and last.height == len(self.late) and not places["is_p2p"][0]
        if same:
            frames = self.job.facts.dataset.stack(places["stack_id"][0])
            where = f", at {frames[0].file}:{frames[0].line}" if frames else ""
            text = (
                f"{ranks_text(self.late)} all ended with {self._name(last)}{where}: a common cause would look the same"
            )
            yield Evidence(text)

    def whole_hosts(self) -> Iterator[Evidence]:
        """For ranks without a dump: no rank of their host left a dump."""
        accused = {*self.root.culprits, *self.root.candidates} - self.job.facts.presence.seen
        size = self.job.block
        if self.root.kind != "missing-rank" or not size:
            return
        missing = set(self.job.facts.dataset.missing_ranks)
        for block in sorted({rank // size for rank in accused}):
            ranks = list(range(block * size, min((block + 1) * size, self.job.facts.dataset.world_size)))
            if missing.issuperset(ranks):
                yield Evidence(
                    f"not one of the {len(ranks):,} ranks of that host, {rank_ranges(ranks)}, left a dump: it went "
                    "down, or its dumps were not collected",
                    rank=ranks[0],
                )

    def _name(self, rows: pl.DataFrame) -> str:
        row = rows.row(0, named=True)
        number = f"p2p #{row['p2p_seq']}" if row["is_p2p"] else f"#{row['seq']}"
        return f"{row['op']} {number} of {self.job.facts.label(row['group'])}"

    def _of(self, rank: int, text: str, rows: pl.DataFrame | None = None) -> Evidence:
        """The evidence with the dump of a rank and the record that shows it."""
        path = self.job.paths.get(rank)
        if rows is None:
            return Evidence(text, file=path, rank=rank)
        return Evidence(text, path, rank, rows["record_id"][0], time_ns=rows["created_ns"][0])


def _some(ranks: list[int]) -> str:
    """Names of the ranks, or their number if they are many."""
    return ranks_text(ranks) if len(rank_ranges(ranks)) < 40 else plural(len(ranks), "other rank")
