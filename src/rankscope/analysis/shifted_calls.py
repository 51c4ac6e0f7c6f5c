"""Calls too many or too few of the same operation and size, found by the order of call sites.

The k-th collective of a group on one rank meets the k-th on every other, whatever line issued it. A rank that issues
one call too many or too few, of the same operation and size, finishes it with the wrong partners, and all later ones.
Operations and sizes show nothing. The order of call sites does: from one place on, it is the order of the peers of the
rank, shifted by some calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.call_sites import CallSites
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


def _shift(sites: CallSites, family: int, ranks: list[int], peers: list[int], more: frozenset[int]) -> Shift | None:
    """The calls in groups of a family that `ranks` issued too many or too few; None if they differ in another way."""
    groups = sites.facts.groups
    rank = ranks[0]
    own = [groups[group].ranks for group in np.unique(sites.program(rank).group).tolist()]
    near = {next((member for member in members if member in more), peers[0]) for members in own}
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
    plain = min(run + 1, len(one) - first, len(other) - first)
    apart = np.count_nonzero(one.token[first : first + plain] != other.token[first : first + plain])
    usual = other.token[first:]
    if abs(count) > 1 and np.count_nonzero(usual[: -abs(count)] != usual[abs(count) :]) <= abs(count):
        # these calls are whole steps, which look alike wherever a line differs by design
        return None
    if apart <= abs(count) and not lone:
        # fewer calls differ without a shift: threads issued some in another order, and whole steps look alike
        return None
    fewest = 1 if lone else max(FEWEST_EQUAL, abs(count))
    if run < (fewest if run == min(map(len, behind)) else max(fewest, ENOUGH_EQUAL)):
        return None
    if run < min(map(len, behind)) and _realigned(one.token, other.token, first + run, 2 * abs(count) + FEWEST_EQUAL):
        return None
    group = next(group for group in one.group.tolist() if sites.families[group] == family)
    fellows = [member for member in groups[group].ranks if member in more]
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
        row=int(sites.facts.calls["row"][int(block.rows[at])]),
        even=len(ranks) == len(peers),
        proven=lone or bool(inside.any()),
    )


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


def shift_at(one: Ints, other: Ints, first: int) -> tuple[int, int]:
    """(count, run): from position `first` on, `one` has `count` values too many, negative: too few; so that `run`
    values behind them agree. (0, run) if as many agree without a shift, behind a few values in another order."""
    best = 0, max(equal_run(one[first + skip :], other[first + skip :]) for skip in range(1, MOST_SWAPPED + 1))
    extra = np.flatnonzero(one[first + 1 : first + 1 + MOST_SHIFT] == other[first]) + 1
    omitted = np.flatnonzero(other[first + 1 : first + 1 + MOST_SHIFT] == one[first]) + 1
    for count in sorted([*extra.tolist(), *(-omitted).tolist()], key=abs):
        run = equal_run(one[first + max(count, 0) :], other[first + max(-count, 0) :])
        if run > best[1]:
            best = count, run
    return best
