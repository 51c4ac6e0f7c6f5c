"""Ranks that lines name: differing fingerprints, desync reports and monitored barriers of c10d, known errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankscope.analysis.model import Confidence, Culprit, Finding, GroupRef
from rankscope.features.logs.rules.log_lines import LogLine, alone_told, error_label, ranks_of, who_text
from rankscope.kinds.error_traits import AWAITED
from rankscope.schema import Dataset, Group
from rankscope.text.wording import duration, plural, ranks_text

MOST_EVIDENCE = 8
Place = Callable[[int], Culprit]


def find_named(lines: Sequence[LogLine], dataset: Dataset, place: Place) -> list[Finding]:
    """A finding for each group with named ranks."""
    found = [*_mismatches(lines, dataset, place), *_desyncs(lines, dataset, place), *_barriers(lines, dataset, place)]
    found += _pointed_out(lines, dataset, place)
    return sorted(found, key=lambda f: ("high", "medium", "low").index(f.confidence))


@dataclass(frozen=True)
class _AccusedRanks:
    """Named ranks of one group, with the lines that name them."""

    dataset: Dataset
    place: Place
    lines: list[LogLine]
    ranks: tuple[int, ...]
    guess: bool

    def finding(self, kind: str, title: str, explanation: str, waiting: Sequence[int], **more: Any) -> Finding:
        first = self.lines[0]
        known = self.dataset.group_list[first.group] if first.group is not None else None
        reasons = (*more.pop("reasons", ()), *((GUESSED_RANKS_REASON,) if self.guess else ()))
        sure: Confidence = more.pop("confidence", "high")
        held = tuple(sorted(set(waiting) - set(self.ranks)))
        return Finding(
            kind=kind, severity="critical", title=title, explanation=explanation, root_cause=True,
            culprit_ranks=self.ranks, culprits=tuple(map(self.place, self.ranks)), waiting_ranks=held,
            blast_radius=len(held), confidence="medium" if reasons and sure == "high" else sure,
            confidence_reasons=reasons,
            group=GroupRef(known.name, known.description, known.ranks, key=known.id) if known else None,
            evidence=tuple(line.evidence() for line in self.lines[:MOST_EVIDENCE]), **more,
        )  # fmt: skip


def _mismatches(lines: Sequence[LogLine], dataset: Dataset, place: Place) -> list[Finding]:
    by_group: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.kind == "fingerprint-mismatch" and len(line.values.get("fingerprints") or ()) == 2:
            by_group[line.group, line.values.get("pg_guid")].append(line)
    several = len(dataset.group_list) > 1 or _unplaced(lines)
    found = (_mismatch(own, dataset, place, several=several) for own in by_group.values())
    return [finding for finding in found if finding is not None]


def _unplaced(lines: Sequence[LogLine]) -> bool:
    """Whether there are operations of several groups that nothing distinguishes."""
    return any(line.kind == "log-unplaced" for line in lines)


def _mismatch(own: list[LogLine], dataset: Dataset, place: Place, *, several: bool) -> Finding | None:
    """The odd one of all ranks that any line quotes."""
    told = _told(own)
    votes, guess = _votes(own, told, dataset)
    if len(votes) < 2:
        return None
    size = len(dataset.group_list[own[0].group].ranks) if own[0].group is not None else dataset.world_size
    odd, sides = _odd(votes)
    spoken = set(odd or votes) <= set(told.values())
    if guess and several and not spoken and len(votes) < dataset.world_size:
        return _in_some_group(own, votes, sides, dataset, place)
    shown = {side: ranks_text([r for r, v in votes.items() if v == side]) for side in sides}
    text = "; ".join(f"{who} called {_call(side)}" for side, who in list(shown.items())[:4])
    accused = _AccusedRanks(dataset, place, own, odd, guess)
    tie = () if odd else tuple(sorted(votes))
    kind = _kind(sides)
    few = len(votes) < size
    reasons = (f"the logs quote only {len(votes):,} of {size:,} ranks",) if few and odd else ()
    name = ranks_text(odd) if odd else f"{ranks_text(tie)} disagree:"
    first = own[0]
    title = f"{name} called {_call(votes[odd[0]])}, the others {_call(sides[0])}" if odd else f"{name} {_versus(sides)}"
    return accused.finding(
        kind, f"{title} ({first.place})", f"TORCH_DISTRIBUTED_DEBUG found it before the collective ran: {text}.",
        tuple(votes), candidates=tie, seq=int(sides[0][0]) if sides[0][0].isdecimal() else None,
        op=sides[0][1].lower(), reasons=reasons if odd else ("there is no majority",),
        confidence="high" if odd and not few else "medium" if odd else "low",
        next_steps=("Compare the code path of these ranks at this step: a branch on rank, data or an exception.",),
    )  # fmt: skip


def _votes(own: list[LogLine], told: dict[int, int], dataset: Dataset) -> tuple[dict[int, tuple[Any, ...]], bool]:
    """The fingerprint of each quoted rank, preferably by its own line; and whether the ranks are a guess.

    A rank misreads the fingerprint of another one if the lengths differ: "#0 GATHER".
    """
    spoken: dict[int, tuple[Any, ...]] = {}
    heard: dict[int, tuple[Any, ...]] = {}
    guess = False
    for line in own:
        names, guessed = global_ranks(line, line.values["ranks"], dataset.group_list)
        if line.group is None and any(rank != own_rank for rank, own_rank in told.items()):
            names, guessed = told, False
        guess |= guessed
        quoted = zip((spoken, heard), line.values["ranks"], line.values["fingerprints"], strict=False)
        for words, rank, fingerprint in quoted:
            if rank in names:
                words[names[rank]] = tuple(map(str, fingerprint))
    return {**spoken, **{rank: words for rank, words in heard.items() if rank not in spoken}}, guess


def _in_some_group(
    own: list[LogLine], votes: dict[int, tuple[Any, ...]], sides: list[tuple[Any, ...]], dataset: Dataset, place: Place
) -> Finding:
    """A mismatch in one of several groups that the lines do not name, so its ranks are unknown."""
    shown = {side: ranks_text([r for r, v in votes.items() if v == side]) for side in sides}
    text = "; ".join(f"{who} of it called {_call(side)}" for side, who in list(shown.items())[:4])
    return _AccusedRanks(dataset, place, own, (), guess=False).finding(
        _kind(sides), f"ranks of one group disagree: {_versus(sides)} ({own[0].place})",
        f"TORCH_DISTRIBUTED_DEBUG found it before the collective ran: {text}. Its ranks are counted within the group.",
        (), seq=int(sides[0][0]) if sides[0][0].isdecimal() else None, op=sides[0][1].lower(), confidence="low",
        reasons=("the lines name no group, and there are several",),
        next_steps=((
            "Print the rank before each line ([rankN]: of torch 2.2 on, or --tee of torchrun), so that each line "
            "has a rank."
        ),),
    )  # fmt: skip


def _told(own: list[LogLine]) -> dict[int, int]:
    """Global rank by rank in the group, from the processes that are quoted first in their own lines.

    Empty if two processes say the same of themselves: then the lines are of several groups.
    """
    pairs = {(line.values["ranks"][0], line.rank) for line in own if line.rank is not None and line.values["ranks"]}
    told = dict(pairs)
    return told if len(pairs) == len(told) == len(set(told.values())) else {}


def _odd(votes: dict[int, tuple[Any, ...]]) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """(the minority, all sides with the largest first); no minority if two sides are equally large."""
    counts = Counter(votes.values()).most_common()
    sides = [side for side, _ in counts]
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return (), sides
    return tuple(sorted(rank for rank, vote in votes.items() if vote != sides[0])), sides


def _kind(sides: list[tuple[Any, ...]]) -> str:
    one, other = sides[0], sides[1]
    if one[1] != other[1] or one[2] == other[2] == "None":
        return "collective-mismatch"
    if one[2] != other[2]:
        return "size-mismatch"
    return "dtype-mismatch" if one[3] != other[3] else "collective-mismatch"


def _call(side: tuple[Any, ...]) -> str:
    seq, op, shape, dtype = side[:4]
    return f"{op.lower()} #{seq}" + (f" {shape} {dtype}" if shape != "None" else "")


def _versus(sides: list[tuple[Any, ...]]) -> str:
    return " or ".join(_call(side) for side in sides[:4])


def _desyncs(lines: Sequence[LogLine], dataset: Dataset, place: Place) -> list[Finding]:
    by_group: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.kind == "desync" and line.values.get("lagging"):
            by_group[line.group, line.values.get("pg_guid")].append(line)
    return [found for own in by_group.values() if (found := _desync(own, dataset, place)) is not None]


def _desync(own: list[LogLine], dataset: Dataset, place: Place) -> Finding | None:
    """The ranks that never joined the next collective, by the report on the oldest collective."""
    first = min(own, key=lambda line: min(seq for _, _, seq in line.values["lagging"]))
    lagging = first.values["lagging"]
    absent = [rank for rank, what, _ in lagging if what != "joined"]
    ahead = [rank for _, _, _, ranks in first.values.get("states") or () for rank in ranks]
    names, guess = global_ranks(first, {*absent, *ahead}, dataset.group_list)
    ranks = tuple(sorted(names[rank] for rank in set(absent) if rank in names))
    if not ranks:
        return None
    seq = max(seq for rank, what, seq in lagging if what != "joined")
    last = f"finished #{seq} and never joined #{seq + 1}" if seq else "never joined any collective"
    accused = _AccusedRanks(dataset, place, [first, *(line for line in own if line is not first)], ranks, guess)
    title = f"{ranks_text(ranks)} {last}, while others wait in #{first.values.get('seq')} ({first.place})"
    explanation = f"The desync report of c10d says so; it knows of {plural(len(names), 'rank')}."
    more = {"seq": seq + 1 if seq else None, "next_steps": (_STACK_STEP.format(ranks_text(ranks)),)}
    return accused.finding("missing-rank", title, explanation, tuple(names.values()), **more)


_STACK_STEP = "Look at the stack of {}, or read the end of its log: that is where it stopped."


def _pointed_out(lines: Sequence[LogLine], dataset: Dataset, place: Place) -> list[Finding]:
    """The ranks that known errors name, by error and group."""
    by_error: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in alone_told(lines):
        if line.role == "root" and line.values.get("accuses") == "named" and line.values.get("named"):
            by_error[line.pattern, line.group, line.values.get("pg_guid")].append(line)
    return [
        (_awaited if same[0].has(AWAITED) else _named_in)(same, dataset, place) for same in by_error.values()
    ]  # fmt: skip


def _awaited(same: list[LogLine], dataset: Dataset, place: Place) -> Finding:
    """The ranks that all lines wait for, where each line tells who is missing in one operation."""
    missing, every, guess = _told_ranks(same, dataset, set.intersection)
    accused = _AccusedRanks(dataset, place, same, missing, guess)
    first = same[0]
    if not missing:
        title = f"{ranks_text(every)} wait for each other in different operations ({first.place})"
        return accused.finding(
            "collective-mismatch", title, "Each of them is missing in operations that others wait in.", every,
            candidates=every, confidence="low", reasons=("no rank is missing in all of them",),
        )  # fmt: skip
    title = f"{ranks_text(missing)} did not submit what others wait for ({first.place})"
    words = f"{_meaning(first)}The ranks are named in {plural(len(same), 'line')}."
    return accused.finding(
        "missing-rank", title, words, (), next_steps=_next_steps(first, missing)
    )  # fmt: skip


def _named_in(same: list[LogLine], dataset: Dataset, place: Place) -> Finding:
    """All ranks that the lines of one known error name."""
    ranks, _, guess = _told_ranks(same, dataset, set.union)
    first = same[0]
    listed = sorted({rank for line in same for rank in line.values["named"]})
    accused = _AccusedRanks(dataset, place, same, ranks, guess and bool(ranks))
    who = ranks_text(ranks) if ranks else f"{ranks_text(listed)} of a group"
    printed = "" if not ranks_of(same) or set(ranks_of(same)) <= set(ranks) else f", as {who_text(same)} reported"
    return accused.finding(
        "known-error", f"{who}: {error_label(first)}{printed} ({first.place})",
        f"{_meaning(first)}The line itself names the ranks.", (),
        reasons=() if ranks else ("the line does not tell which group its ranks are counted in",),
        confidence="high" if ranks else "low", next_steps=_next_steps(first, ranks),
    )  # fmt: skip


def _told_ranks(
    same: Sequence[LogLine], dataset: Dataset, join: Callable[..., set[int]]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(global ranks of all lines joined, those that any line names, whether they are a guess)."""
    sets, guess = [], False
    several = len({group.ranks for group in dataset.group_list}) > 1
    for line in same:
        names, guessed = global_ranks(line, line.values["named"], dataset.group_list)
        sets.append(set(names.values()))
        guess |= guessed and several
    return tuple(sorted(join(*sets))), tuple(sorted(set.union(*sets))), guess


def _meaning(line: LogLine) -> str:
    meaning = str(line.values.get("meaning") or "")
    return f"{meaning} " if meaning else ""


def _next_steps(line: LogLine, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Advice of the table, else where to see that the ranks stopped."""
    advice = str(line.values.get("next") or "")
    return (advice,) if advice else (_STACK_STEP.format(ranks_text(ranks)),) if ranks else ()


def _barriers(lines: Sequence[LogLine], dataset: Dataset, place: Place) -> list[Finding]:
    ended = {line.rank for line in lines if line.kind == "fingerprint-mismatch" and line.rank is not None}
    told = [line for line in lines if line.kind == "monitored-barrier"]
    waited = {line.rank for line in told if line.rank is not None}
    # if a rank has another number in some group, the group of a line without a name is unknown
    several = any(line.rank not in (None, line.values.get("reporter", line.rank)) for line in told)
    several |= _unplaced(lines)
    by_group: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in told:
        by_group[line.group, line.values.get("pg_guid")].append(line)
    found = (_barrier(own, _AbsentRanks(ended, waited, several), dataset, place) for own in by_group.values())
    return [finding for finding in found if finding is not None]


class _AbsentRanks(NamedTuple):
    """Activities of ranks that a barrier misses."""

    ended: set[int]
    """Ranks in a collective that did not match."""
    waited: set[int]
    """Ranks in this barrier or another one."""
    several: bool
    """Whether there are several groups."""


def _barrier(own: list[LogLine], others: _AbsentRanks, dataset: Dataset, place: Place) -> Finding | None:
    """The ranks that did not come, except those that had ended or waited in a barrier."""
    failed = [line for line in own if line.values.get("failed_ranks")]
    if not failed:
        return None
    named: set[int] = set()
    guess = False
    for line in failed:
        names, guessed = global_ranks(line, line.values["failed_ranks"], dataset.group_list)
        if guessed and others.several:
            continue
        named |= set(names.values())
        guess |= guessed
    came = {line.rank for line in own if line.values.get("outcome") in ("reached", "timed-out")} - {None}
    ranks = named - others.waited - others.ended
    if not ranks and named & others.ended:
        return None
    if not ranks:
        return _crossed(own, failed, named, dataset, place) if named else None
    accused = _AccusedRanks(dataset, place, failed, tuple(sorted(ranks)), guess)
    after = failed[0].values.get("timeout_ms")
    within = f" within {duration(after * 1_000_000)}" if isinstance(after, int) else ""
    told = {tuple(line.values["failed_ranks"]) for line in failed}
    only = len(told) == 1 and len(ranks) == 1 and dataset.world_size > 2
    more = " The barrier stops at the first rank; others may have been late too." if only else ""
    return accused.finding(
        "missing-rank", f"{ranks_text(accused.ranks)} did not reach a monitored barrier{within} ({failed[0].place})",
        f"The first rank of the group waits for a sign from every other rank; theirs never came.{more}",
        [r for r in (*came, *(line.rank for line in failed)) if r is not None], op="monitored_barrier",
        next_steps=(_STACK_STEP.format(ranks_text(accused.ranks)),),
    )  # fmt: skip


def _crossed(own: list[LogLine], failed: list[LogLine], ranks: set[int], dataset: Dataset, place: Place) -> Finding:
    """Absent ranks that waited in another barrier: one of the sides took another path, and nothing tells which."""
    waiting = ranks_of(own)
    accused = _AccusedRanks(dataset, place, failed, (), guess=False)
    reporters = ranks_text(sorted({line.rank for line in failed if line.rank is not None}))
    return accused.finding(
        "order-deadlock",
        f"{reporters} waited in a monitored barrier for {ranks_text(sorted(ranks))}, which waited in another "
        f"({failed[0].place})",
        "With TORCH_DISTRIBUTED_DEBUG=DETAIL every collective begins with such a barrier. Ranks went into different "
        "ones: groups were entered in different orders, or one of these ranks left a collective out.",
        waiting, candidates=tuple(sorted({*ranks, *waiting})), op="monitored_barrier", confidence="low",
        reasons=("the lines do not name the group of each barrier",),
        next_steps=("Compare the tracebacks of these ranks: which of them is at another place in the program?",),
    )  # fmt: skip


# Conversion of ranks of a group, as c10d prints them, to global ranks.

WORLD_NAMES = ("", "0", "default_pg")
GUESSED_RANKS_REASON = "the line names no known group: its ranks are assumed to be global"


def global_ranks(line: LogLine, ranks: Iterable[int], groups: tuple[Group, ...]) -> tuple[dict[int, int], bool]:
    """(global rank by rank in the group, whether that is a guess); empty if it is unknown."""
    ranks = list(ranks)
    if line.group is not None and line.group < len(groups):
        members = groups[line.group].ranks
        return {rank: members[rank] for rank in ranks if 0 <= rank < len(members)}, False
    if line.values.get("pg_desc") == "default_pg":
        return {rank: rank for rank in ranks}, False
    inside = line.values.get("reporter", line.values.get("rank_in_group"))
    if isinstance(inside, int) and line.rank is not None:
        fitting = _fitting(line.rank, inside, ranks, groups)
        if len(fitting) == 1:
            return fitting.pop(), False
        if fitting or inside != line.rank:
            return {}, True
    if str(line.values.get("pg_guid") or "") not in WORLD_NAMES:
        return {}, True
    known = inside is not None and inside == line.rank and line.rank != 0
    return {rank: rank for rank in ranks}, not known


def _fitting(own: int, inside: int, ranks: list[int], groups: tuple[Group, ...]) -> list[dict[int, int]]:
    """The meaning of ranks in each group that they may be of; empty if only the group of all ranks is known."""
    if len({group.ranks for group in groups}) < 2:
        return []
    found: list[dict[int, int]] = []
    for group in groups:
        members = group.ranks
        if inside < len(members) and members[inside] == own and all(rank < len(members) for rank in ranks):
            meant = {rank: members[rank] for rank in ranks}
            found += [meant] if meant not in found else []
    return found
