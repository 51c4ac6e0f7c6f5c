"""Calls too many or too few of the same operation and size, found by the order of call sites.

The k-th collective of a group on one rank meets the k-th on every other, whatever line issued it. A rank that issues
one call too many or too few, of the same operation and size, finishes it with the wrong partners, and all later ones.
Operations and sizes show nothing. The order of call sites does: from one place on, it is the order of the peers of the
rank, shifted by some calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.call_sites import CallSites, Program
from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitGraph, WaitNode
from rankscope.analysis.instances import Instance, calls_at
from rankscope.text.wording import plural, ranks_text

MOST_SHIFT = 512
"""Most calls in a row that a rank may issue too many or too few: a skipped backward pass has hundreds."""
ENOUGH_EQUAL = 16
"""Calls behind the place that agree one after another, and prove the shift whatever follows: another fault may."""
FEWEST_EQUAL = 3
"""Fewest calls behind the place that agree, up to the last one, if peers issue calls from the same line, too: two
threads that issue calls may swap two of them."""
MOST_SWAPPED = 8
"""Most calls in a row that threads of one rank issue in another order than those of its peers."""
MOST_COURSES = 64
"""Most different courses of calls in one family of groups: stages and other roles make a few."""


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
    """Row of ops of the first of these calls: of the first of `ranks`, or of the peer."""
    even: bool
    """As many members took the one course as the other: either may be the wrong one."""
    proven: bool
    """Later calls of the group show the shift, or the calls come from a line that no peer issues; else only calls of
    other groups do."""


def shifted_roots(facts: Facts, graph: WaitGraph, mismatches: list[Root]) -> list[Root]:
    """A root for each of these calls, unless its rank issued another operation or size there or before."""
    known = {(rank, root.focus.group): root.focus.seq for root in mismatches if root.focus for rank in root.culprits}
    sites = CallSites(facts)
    shifts = [s for s in find_shifts(sites) if known.get((s.ranks[0], s.group), s.seq + 1) > s.seq]
    places = pl.DataFrame(
        {"group": [s.group for s in shifts], "seq": [s.seq for s in shifts]},
        schema={"group": pl.UInt32, "seq": pl.Int64},
    )
    instances = calls_at(facts, places)
    return [_root(sites, shift, instances[shift.group, shift.seq], graph) for shift in shifts]


def _root(sites: CallSites, shift: Shift, instance: Instance, graph: WaitGraph) -> Root:
    place = f"#{shift.seq} of {sites.facts.label(shift.group)}"
    line, lines = sites.line(shift.row), sites.lines(instance)
    who, number = ranks_text(shift.ranks), abs(shift.count)
    either = tuple(sorted({*shift.ranks, shift.peer}))
    theirs = lines.get(shift.peer, line)
    if shift.count > 0:
        title = f"{who} issued {plural(number, 'call')} too many: {instance.op} {place}, at {line}"
        how = f"{who.capitalize()} issued a call at {line} that the others did not: their {place} is from {theirs}."
    else:
        title = f"{who} left out {plural(number, 'call')}: {instance.op} {place}, at {line}"
        how = f"The other members issue it there; what {who} issued as {place} is a later call of theirs."
    if number > 1:
        how += f" It is the first of {number:,} calls in a row, of all groups."
    root = Root(
        kind="extra-collective" if shift.count > 0 and not shift.even else "collective-mismatch",
        culprits=either if shift.even else shift.ranks,
        nodes=tuple(node for node in graph.edges if _is_held(node, shift)),
        focus=instance,
        title=title,
        explanation=f"{how} From there on each call of {who} in this group meets another one than it should: where "
        "operation and size are equal no library notices it, and the results are wrong.",
        candidates=either if shift.even else (),
        notes={rank: f"issued #{shift.seq} at {line}" for rank, line in lines.items()},
        needs_stillness=False,
        next_steps=(f"Let all members take the same way at {line}: look for a condition on the rank or its data.",),
    )
    if shift.even:
        return root.weaken("low", "as many members took one way as the other: either may be right")
    return root if shift.proven else root.weaken("medium", "only calls of other groups show the shift")


def _is_held(node: WaitNode, shift: Shift) -> bool:
    """Whether a node waits for these ranks at their shifted place: they themselves, or the calls of the group there."""
    if node.key is None:
        return node.rank in shift.ranks
    return len(node.key) == 2 and node.key[0] == shift.group and node.key[1] >= shift.seq


def find_shifts(sites: CallSites) -> list[Shift]:
    """Calls of the same operation and size too many or too few, the first of each rank; [] without recorded stacks."""
    if sites.facts.dataset.stacks.is_empty() or sites.facts.calls.is_empty():
        return []
    out: dict[int, Shift] = {}
    for family in sites.differing_families():
        for ranks, peers, more in _odd_courses(sites, family):
            shift = _shift(sites, family, ranks, peers, more)
            if shift is not None and shift.ranks[0] not in out:
                out.update(dict.fromkeys(shift.ranks, shift))
    return list(dict.fromkeys(out.values()))


def _odd_courses(sites: CallSites, family: int) -> Iterator[tuple[list[int], list[int], frozenset[int]]]:
    """(ranks, peers, more): ranks with a course that few take, those with the most similar one of the courses that more
    ranks take, and all ranks with one of these.

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
            alike = max(more, key=lambda peers: (equal_run(steps[ranks[0]], steps[peers[0]]), len(peers)))
            yield ranks, alike, frozenset(rank for peers in more for rank in peers)


@dataclass(frozen=True)
class CallAlignment:
    """Two programs that are equal up to a place and, shifted by some calls, behind it."""

    one: Program
    other: Program
    first: int
    """Position of the first call that differs."""
    count: int
    """Calls that the one has too many there; negative: too few; 0: no shift makes more of the later calls agree."""
    run: int
    """Calls in a row behind them that agree."""
    agreed: int
    """Calls behind them that agree, with those behind the end of the groups of the shifted calls."""
    to_end: bool
    """Whether all that follows agrees: without a last call of these groups, if it has no partner."""

    @property
    def block(self) -> Program:
        """The calls too many or too few."""
        return (self.one if self.count > 0 else self.other).part(self.first, self.first + abs(self.count))

    @property
    def behind(self) -> tuple[Program, Program]:
        """The calls behind them of both programs."""
        return self.one.part(self.first + max(self.count, 0)), self.other.part(self.first + max(-self.count, 0))


def align(one: Program, other: Program) -> CallAlignment:
    """Two programs, with the shift behind their first difference that makes most of the later calls agree.

    No shift, if as many agree without one, behind a few calls in another order.
    """
    first = equal_run(one.token, other.token)
    ahead, there = one.token[first:], other.token[first:]
    plain = max(equal_run(ahead[skip:], there[skip:]) for skip in range(1, MOST_SWAPPED + 1))
    best = CallAlignment(one, other, first, 0, plain, plain, to_end=False)
    if not len(ahead) or not len(there):
        return best
    extra = np.flatnonzero(ahead[1 : 1 + MOST_SHIFT] == there[0]) + 1
    omitted = np.flatnonzero(there[1 : 1 + MOST_SHIFT] == ahead[0]) + 1
    for count in sorted([*extra.tolist(), *(-omitted).tolist()], key=abs):
        shifted = _shifted(one, other, first, count)
        if shifted.agreed > best.agreed:
            best = shifted
    return best


def _shifted(one: Program, other: Program, first: int, count: int) -> CallAlignment:
    """Two programs shifted by some calls at a place."""
    shifted = CallAlignment(one, other, first, count, 0, 0, to_end=False)
    behind = shifted.behind
    run = equal_run(*(program.token for program in behind))
    if run == min(map(len, behind)):
        return replace(shifted, run=run, agreed=run, to_end=True)
    families, numbers = np.unique(shifted.block.family, return_counts=True)
    rests = [program.part(run) for program in behind]
    ended, rest = rests if count > 0 else reversed(rests)
    lacking = np.array([np.count_nonzero(rest.family == family) for family in families])
    tokens = [program.token[~np.isin(program.family, families)] for program in rests]
    common = equal_run(*tokens)
    if np.isin(ended.family, families).any() or (lacking > numbers).any() or common < min(map(len, tokens)):
        return replace(shifted, run=run, agreed=run)
    # who has a call too many meets nobody with the last one of the group, and neither do peers of one too few
    return replace(shifted, run=run, agreed=run + common, to_end=True)


def _shift(sites: CallSites, family: int, ranks: list[int], peers: list[int], more: frozenset[int]) -> Shift | None:
    """The calls in groups of a family that `ranks` issued too many or too few; None if they differ in another way."""
    groups = sites.facts.groups
    rank = ranks[0]
    own = [groups[group].ranks for group in np.unique(sites.program(rank).group).tolist()]
    near = {next((member for member in members if member in more), peers[0]) for members in own}
    aligned = [align(*sites.programs(rank, peer)) for peer in sorted(near)]
    found = max(aligned, key=lambda alignment: alignment.first + alignment.agreed)
    one, other, first, count = found.one, found.other, found.first, found.count
    if first == min(len(one), len(other)):
        return None
    at = next((i for i, other_family in enumerate(found.block.family.tolist()) if other_family == family), None)
    if at is None:
        return None
    block = found.block
    lone = count > 0 and block.token[at] not in other.token
    plain = min(found.agreed + 1, len(one) - first, len(other) - first)
    apart = np.count_nonzero(one.token[first : first + plain] != other.token[first : first + plain])
    usual = other.token[first:]
    if abs(count) > 1 and np.count_nonzero(usual[: -abs(count)] != usual[abs(count) :]) <= abs(count):
        # these calls are whole steps, which look alike wherever a line differs by design
        return None
    if (block.family != family).any() and _agrees_without(found, family):
        # calls of other groups are as without a shift: the members take the lines of this group in turn
        return None
    if apart <= abs(count) and not lone:
        # fewer calls differ without a shift: threads issued some in another order, and whole steps look alike
        return None
    fewest = 1 if lone else max(FEWEST_EQUAL, abs(count))
    if found.agreed < (fewest if found.to_end else max(fewest, ENOUGH_EQUAL)):
        return None
    if not found.to_end and _realigned(one.token, other.token, first + found.run, 2 * abs(count) + FEWEST_EQUAL):
        return None
    group = next(group for group in one.group.tolist() if sites.families[group] == family)
    fellows = [member for member in groups[group].ranks if member in more]
    here, there = (program.part(0, found.run) for program in found.behind)
    inside = here.family == family
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
        row=int(sites.facts.calls["row"][int(block.rows[at])]),
        even=len(ranks) == len(peers),
        proven=lone or bool(inside.any()),
    )


def _agrees_without(found: CallAlignment, family: int) -> bool:
    """Whether all calls but those in groups of a family agree as they stand, without the shift."""
    rests = [program.part(found.first) for program in (found.one, found.other)]
    one, other = (rest.token[rest.family != family] for rest in rests)
    return 0 < min(len(one), len(other)) == equal_run(one, other)


def _realigned(one: Ints, other: Ints, start: int, within: int) -> bool:
    """Whether two courses go on together behind a place without any shift, through different calls in a row: threads
    issued the calls before it in another order. A call too many or too few shifts all that follow."""
    starts = range(start, min(start + within, len(one), len(other)))
    parts = ((one[at : at + FEWEST_EQUAL].tolist(), other[at : at + FEWEST_EQUAL].tolist()) for at in starts)
    return any(mine == theirs and len(set(mine)) == FEWEST_EQUAL for mine, theirs in parts)


def equal_run(one: Ints, other: Ints) -> int:
    """Number of values from the start of two arrays that are equal."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length
