"""Call sites: the lines of the job's program that issue its collectives, and the order in which each rank passes them.

A call site is the job's own part of a recorded stack, all its frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask
from rankscope.analysis.facts import Facts
from rankscope.analysis.host_stacks import own_frames
from rankscope.analysis.instances import Instance
from rankscope.schema import Frame

_ODD = 0x1E37_79B9_7F4A_7C15
"""A large odd number: products with it spread over all bits."""


@dataclass(frozen=True)
class Program:
    """Collectives of one rank in program order."""

    rows: Ints
    """Rows of `Facts.calls`."""
    group: Ints
    seq: Ints
    family: Ints
    """Family of the group; see `CallSites.families`."""
    token: Ints
    """Number of what the call is: the family of its group, its operation, its size and its call site."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, end: int | None = None) -> Program:
        """The calls at the positions from `start` to `end`."""
        return self.where(slice(start, end))

    def where(self, kept: slice | Mask) -> Program:
        """These calls."""
        columns = (self.rows, self.group, self.seq, self.family, self.token)
        return Program(*(column[kept] for column in columns))

    def position(self, group: int, seq: int) -> int | None:
        """The position of a call; None if it is not there."""
        found = np.flatnonzero((self.group == group) & (self.seq == seq))
        return int(found[0]) if len(found) else None


@dataclass(frozen=True)
class CallSites:
    """The call sites of all collectives."""

    facts: Facts

    @cached_property
    def sites(self) -> Ints:
        """The number of the call site of each row of the calls: 0 without a stack, -1 for all calls with a source or a
        destination, which that member issues from another line by design."""
        dataset, calls = self.facts.dataset, self.facts.calls
        ids = dataset.stacks["stack_id"].unique().to_list()
        site_of = np.zeros(max(ids) + 1, np.int64)
        numbers: dict[tuple[Frame, ...], int] = {}
        for stack_id in ids:
            stack = dataset.stack(stack_id)
            site_of[stack_id] = numbers.setdefault(own_frames(stack) or stack, len(numbers) + 1)
        stacks = dataset.ops["stack_id"].gather(calls["row"])
        sites = np.where(stacks.is_null().to_numpy(), 0, site_of[stacks.fill_null(ids[0]).to_numpy()])
        return np.where(calls["rooted"].fill_null(value=False).to_numpy(), -1, sites)

    @cached_property
    def families(self) -> Ints:
        """By group the number of its family: groups of one description and size are replicas of each other."""
        numbers: dict[tuple[str, int], int] = {}
        names = ((g.description, len(g.ranks)) if g.description else (g.name, -1 - g.id) for g in self.facts.groups)
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

    @cached_property
    def _tokens(self) -> Ints:
        calls = self.facts.calls
        keys = calls["key"].to_physical().fill_null(0).to_numpy().astype(np.int64)
        sizes = calls["elements"].fill_null(0).to_numpy().astype(np.int64) * _ODD
        tokens: Ints = (self.families[calls["group"].to_numpy()] << 44) + (keys << 24) + self.sites + 1 + sizes
        return tokens

    @cached_property
    def _steps(self) -> Ints:
        """For each row of the calls its call site, and the number of calls of the rank since its last one in the group,
        or since the begin of the job; -1 for the first one that a ring kept there."""
        places = self.facts.calls.select("rank", "group", "seq").with_row_index("place")
        place = pl.col("place").cast(pl.Int64)
        first = pl.when(pl.col("seq") <= 1).then(place - place.min().over("rank") + 1)
        since = place - place.shift(1).over("rank", "group")
        steps = places.select(since.fill_null(first).fill_null(-1)).to_series().to_numpy()
        return np.where(steps < 0, -1, ((self.sites + 1) << 32) + steps)

    def differing_families(self) -> list[int]:
        """Families with a group whose members issued a call from different sites, or after different calls."""
        instances, steps = self.facts.instances, self._steps
        known = steps >= 0
        code, steps = instances.code[known], steps[known]
        value = np.zeros(len(instances.group), np.int64)
        value[code] = steps
        groups = instances.group[code[value[code] != steps]]
        return [int(family) for family in np.unique(self.families[groups])]

    def courses(self, family: int) -> dict[int, Ints]:
        """By rank its steps in the groups of a family, over the sequence numbers that all these ranks kept."""
        groups = np.flatnonzero(self.families == family)
        calls = self.facts.calls
        rows = np.flatnonzero(np.isin(calls["group"].to_numpy(), groups))
        rank, seq, steps = calls["rank"].to_numpy()[rows], calls["seq"].to_numpy()[rows], self._steps[rows]
        kept = steps >= 0
        rank, seq, steps = rank[kept], seq[kept], steps[kept]
        ranks, index = np.unique(rank, return_inverse=True)
        first, last = np.full(len(ranks), np.iinfo(np.int64).max), np.full(len(ranks), -1)
        np.minimum.at(first, index, seq)
        np.maximum.at(last, index, seq)
        low, high = (int(first.max()), int(last.min())) if len(ranks) else (1, 0)
        if high < low:
            return {}
        table = np.full((len(ranks), high - low + 1), -1, np.int64)
        inside = (seq >= low) & (seq <= high)
        table[index[inside], seq[inside] - low] = steps[inside]
        return dict(zip(ranks.tolist(), table, strict=True))

    @cached_property
    def _bounds(self) -> dict[int, tuple[int, int]]:
        """By rank its first row in the calls, and the one behind its last."""
        ranks = self.facts.calls["rank"].to_numpy()
        starts = np.flatnonzero(np.append(True, ranks[1:] != ranks[:-1])[: len(ranks)])
        ends = np.append(starts[1:], len(ranks))
        return dict(zip(ranks[starts].tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))

    def program(self, rank: int) -> Program:
        """The collectives of a rank."""
        rows = np.arange(*self._bounds.get(rank, (0, 0)))
        calls = self.facts.calls[rows]
        group = calls["group"].to_numpy().astype(np.int64)
        return Program(rows, group, calls["seq"].to_numpy(), self.families[group], self._tokens[rows])

    @cached_property
    def _wrapped(self) -> frozenset[int]:
        """Ranks whose ring has overwritten their first calls."""
        return frozenset(self.facts.dataset.dumps.filter("wrapped")["rank"].drop_nulls().to_list())

    def programs(self, rank: int, peer: int) -> tuple[Program, Program]:
        """The programs of two ranks from the first call on that both kept, without families of which only one of them
        has a group."""
        one, other = self.program(rank), self.program(peer)
        both = np.intersect1d(one.family, other.family)
        one, other = (program.where(np.isin(program.family, both)) for program in (one, other))
        if not {rank, peer} & self._wrapped:
            return one, other
        for position in range(len(one)):
            there = other.position(int(one.group[position]), int(one.seq[position]))
            if there is not None:
                # of the calls before it, a ring that wrapped kept fewer on one rank
                kept = min(position, there)
                return one.part(position - kept), other.part(there - kept)
        return one.part(len(one)), other.part(len(other))

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The job's own frames of an operation, by its row of ops, innermost first; () without a stack."""
        stack = self.facts.dataset.stack(self.facts.dataset.ops["stack_id"][row])
        return own_frames(stack) or stack

    def line(self, row: int) -> str:
        """File and line of the innermost of these frames, for people; "" without a stack."""
        return next(map(_line, self.frames(row)), "")

    def lines(self, instance: Instance) -> dict[int, str]:
        """By rank the line that issues a collective."""
        lines = {rank: self.line(member.row) for rank, member in instance.entries.items()}
        return {rank: line for rank, line in lines.items() if line}

    def parting(self, row: int, other: int) -> tuple[str, str]:
        """File and line of the outermost frames that differ between two operations of the same program."""
        pairs = zip(reversed(self.frames(row)), reversed(self.frames(other)), strict=False)
        lines = ((_line(one), _line(theirs)) for one, theirs in pairs)
        return next(((one, theirs) for one, theirs in lines if one != theirs), (self.line(row), self.line(other)))

    def votes(self, group: int, seq: int) -> dict[int, int]:
        """By member the number of ranks, of the group and its replicas, that issue a collective from the same site."""
        calls = self.facts.calls
        family = np.flatnonzero(self.families == self.families[group])
        there = np.isin(calls["group"].to_numpy(), family) & (calls["seq"] == seq).to_numpy()
        ranks, tokens = calls["rank"].to_numpy()[there], self._tokens[there]
        _, index, counts = np.unique(tokens, return_inverse=True, return_counts=True)
        return dict(zip(ranks.tolist(), counts[index].tolist(), strict=True))


def _line(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"
