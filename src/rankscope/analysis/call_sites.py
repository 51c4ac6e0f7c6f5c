"""Calls too many or too few of the same operation and size, found by the lines of the program that issue them.

The k-th collective of a group on one rank meets the k-th on every other, whatever line issued it. A rank that issues
one call too many or too few, of the same operation and size, finishes it with the wrong partners, and all later ones.
Operations and sizes show nothing. The order of call sites does: from one place on, it is the order of the peers of the
rank, shifted by some calls.

A call site is the job's own part of a recorded stack, all its frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.facts import Facts
from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.analysis.stack_frames import own_frames
from rankscope.schema import Frame

MOST_SHIFT = 512
"""Most calls in a row that a rank may issue too many or too few: a skipped backward pass has hundreds."""
ENOUGH_EQUAL = 16
"""Calls behind the place that agree one after another, and prove the shift whatever follows: another fault may."""
FEWEST_EQUAL = 3
"""Fewest calls behind the place that agree, up to the last one, if peers issue calls from the same line, too: two
threads that issue calls may swap two of them."""
MOST_COURSES = 64
"""Most different courses of calls in one family of groups: stages and other roles make a few."""


@dataclass(frozen=True)
class Program:
    """Collectives of one rank in program order."""

    rows: Ints
    """Rows of `Facts.calls`."""
    group: Ints
    seq: Ints
    token: Ints
    """Number of what the call is: the family of its group, its operation and its call site."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, end: int | None = None) -> Program:
        """The calls at the positions from `start` to `end`."""
        return Program(self.rows[start:end], self.group[start:end], self.seq[start:end], self.token[start:end])

    def position(self, group: int, seq: int) -> int | None:
        """The position of a call; None if it is not there."""
        found = np.flatnonzero((self.group == group) & (self.seq == seq))
        return int(found[0]) if len(found) else None


@dataclass(frozen=True)
class Shift:
    """Calls of a group that a few members issued and their peers did not, or the other way round."""

    ranks: tuple[int, ...]
    peer: int
    """A member of the group that took the usual course."""
    group: int
    seq: int
    """Number of the first of these calls, on the ranks or, if they left it out, on the peer."""
    count: int
    """Number of collectives, of all groups, that the ranks issued too many; negative: too few."""
    row: int
    """Row of `Facts.calls` with the first of these calls: of the first of `ranks`, or of the peer."""
    even: bool
    """As many members took the one course as the other: either may be the wrong one."""
    proven: bool
    """Later calls of the group show the shift, or the calls come from a line that no peer issues; else only calls of
    other groups do."""


def find_shifts(facts: Facts) -> list[Shift]:
    """Calls of the same operation and size too many or too few, the first of each rank; [] without recorded stacks."""
    if facts.dataset.stacks.is_empty() or facts.calls.is_empty():
        return []
    sites = CallSites(facts)
    out: dict[int, Shift] = {}
    for family in sites.differing_families():
        for ranks, peers in _odd_courses(sites, family):
            shift = _shift(sites, family, ranks, peers)
            if shift is not None and shift.ranks[0] not in out:
                out.update(dict.fromkeys(shift.ranks, shift))
    return list(dict.fromkeys(out.values()))


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
        return (self.families[calls["group"].to_numpy()] << 44) + (keys << 24) + self.sites + 1

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
        return np.unique(self.families[groups]).tolist()

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
        return Program(rows, calls["group"].to_numpy().astype(np.int64), calls["seq"].to_numpy(), self._tokens[rows])

    @cached_property
    def _wrapped(self) -> frozenset[int]:
        """Ranks whose ring has overwritten their first calls."""
        return frozenset(self.facts.dataset.dumps.filter("wrapped")["rank"].drop_nulls().to_list())

    def programs(self, rank: int, peer: int) -> tuple[Program, Program]:
        """The programs of two ranks from the first call on that both kept, without families of which only one of them
        has a group."""
        one, other = self.program(rank), self.program(peer)
        both = np.intersect1d(self.families[one.group], self.families[other.group])
        one, other = (
            Program(p.rows[kept], p.group[kept], p.seq[kept], p.token[kept])
            for p in (one, other) for kept in [np.isin(self.families[p.group], both)]
        )  # fmt: skip
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
        """The job's own frames of a call, by its row in the calls, innermost first; () without a stack."""
        stack = self.facts.dataset.stack(self.facts.dataset.ops["stack_id"][int(self.facts.calls["row"][row])])
        return own_frames(stack) or stack


def equal_run(one: Ints, other: Ints) -> int:
    """Number of values from the start of two arrays that are equal."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def shift_at(one: Ints, other: Ints, first: int) -> tuple[int, int]:
    """(count, run): from position `first` on, `one` has `count` values too many, negative: too few; so that `run`
    values behind them agree. (0, run) if as many agree behind one differing value."""
    best = 0, equal_run(one[first + 1 :], other[first + 1 :])
    extra = np.flatnonzero(one[first + 1 : first + 1 + MOST_SHIFT] == other[first]) + 1
    omitted = np.flatnonzero(other[first + 1 : first + 1 + MOST_SHIFT] == one[first]) + 1
    for count in sorted([*extra.tolist(), *(-omitted).tolist()], key=abs):
        run = equal_run(one[first + max(count, 0) :], other[first + max(-count, 0) :])
        if run > best[1]:
            best = count, run
    return best


def _odd_courses(sites: CallSites, family: int) -> Iterator[tuple[list[int], list[int]]]:
    """(ranks, peers): ranks with a course that few take, and those of the most similar course that more ranks take.

    If there are only two ranks, either may be the odd one.
    """
    steps = sites.courses(family)
    by_course: dict[bytes, list[int]] = {}
    for rank, course in steps.items():
        by_course.setdefault(course.tobytes(), []).append(rank)
    if len(by_course) > MOST_COURSES:
        return
    for ranks in sorted(by_course.values(), key=len):
        more = [peers for peers in by_course.values() if len(peers) > len(ranks) or (len(steps) == 2 and peers > ranks)]
        if more:
            yield ranks, max(more, key=lambda peers: (equal_run(steps[ranks[0]], steps[peers[0]]), len(peers)))


def _shift(sites: CallSites, family: int, ranks: list[int], peers: list[int]) -> Shift | None:
    """The calls in groups of a family that `ranks` issued too many or too few; None if they differ in another way."""
    groups = sites.facts.groups
    rank, usual = ranks[0], set(peers)
    own = [groups[group].ranks for group in np.unique(sites.program(rank).group).tolist()]
    near = {next((member for member in members if member not in ranks), peers[0]) for members in own}
    programs = {peer: sites.programs(rank, peer) for peer in sorted(near)}
    peer = max(programs, key=lambda peer: equal_run(*(program.token for program in programs[peer])))
    one, other = programs[peer]
    first = equal_run(one.token, other.token)
    if first == min(len(one), len(other)):
        return None
    count, run = shift_at(one.token, other.token, first)
    block = (one if count > 0 else other).part(first, first + abs(count))
    at = next((i for i, group in enumerate(block.group.tolist()) if sites.families[group] == family), None)
    if at is None:
        return None
    behind = one.part(first + max(count, 0)), other.part(first + max(-count, 0))
    lone = count > 0 and block.token[at] not in other.token
    if run < (ENOUGH_EQUAL if run < min(map(len, behind)) else 1 if lone else FEWEST_EQUAL):
        return None
    group = next(group for group in one.group.tolist() if sites.families[group] == family)
    fellows = [member for member in groups[group].ranks if member in usual]
    here, there = (p.part(0, run) for p in behind)
    inside = sites.families[here.group] == family
    met = inside & (here.group == there.group) & (here.seq == there.seq)
    if not fellows or (met.any() and not lone):
        # the same calls of this group meet as before: they only took another order among those of other groups
        return None
    return Shift(
        ranks=tuple(ranks),
        peer=fellows[0],
        group=group,
        seq=int(block.seq[at]),
        count=count,
        row=int(block.rows[at]),
        even=len(ranks) == len(peers),
        proven=lone or bool(inside.any()),
    )
