"""A rank that had not issued a collective when others gave up waiting in it, even if it went on later.

The counters that ranks print when the watchdog asks for dumps are of that moment. A rank that wakes up later goes on,
so by the end of its log it has issued the collective.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import polars as pl

from rankscope.analysis.model import Culprit, Finding, GroupRef
from rankscope.features.logs.rules.log_lines import CLOCK_SKEW_NS, LogLine, precedes, ranks_of
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset, Group
from rankscope.text.wording import ranks_text, wait_text

MOST_EVIDENCE = 3


@dataclass(frozen=True)
class _LateArrival:
    """Ranks that were late to one collective."""

    group: int
    seq: int
    late: tuple[LogLine, ...]
    gave_up: tuple[LogLine, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(line.rank for line in self.late if line.rank is not None))


def find_late_arrival(lines: Sequence[LogLine], dataset: Dataset, place: Callable[[int], Culprit]) -> Finding | None:
    """The rank that was late and waited for nobody itself; None unless there is exactly one."""
    waits = {(line.rank, line.values.get("seq")) for line in lines if line.kind == "watchdog-timeout"}
    told: defaultdict[int, dict[int, LogLine]] = defaultdict(dict)
    for line in lines:
        if line.kind == "pg-status" and line.group is not None and line.rank is not None:
            told[line.group].setdefault(line.rank, line)
    found = [
        one for group, first in told.items()
        if not dataset.group_list[group].has_p2p and (one := _in_group(group, first, waits)) is not None
    ]  # fmt: skip
    ranks = {rank for one in found for rank in one.ranks}
    if len(ranks) != 1:
        return None
    named = max((one for one in found if one.late), key=lambda one: len(one.gave_up))
    return _finding(named, len(found) == 1, dataset, place)


def _in_group(group: int, first: dict[int, LogLine], waits: set[tuple[int | None, int | None]]) -> _LateArrival | None:
    """The late arrivals of a group; `first` has the first counters that each rank printed of it."""
    gave_up = {rank: line for rank, line in first.items() if (rank, line.values.get("at_work")) in waits}
    if not gave_up:
        return None
    seq: int = min(line.values["at_work"] for line in gave_up.values())
    waited = {rank for rank, _ in waits}
    late = tuple(
        line for rank, line in first.items()
        if rank not in waited and line.values.get("at_work") is None and _before(line, seq)
        and any(precedes(other, line, CLOCK_SKEW_NS) for other in gave_up.values())
    )  # fmt: skip
    return _LateArrival(group, seq, late, tuple(line for line in gave_up.values() if line.values["at_work"] == seq))


def _before(line: LogLine, seq: int) -> bool:
    enqueued = line.values.get("last_enqueued")
    return isinstance(enqueued, int) and enqueued < seq


def _finding(one: _LateArrival, only: bool, dataset: Dataset, place: Callable[[int], Culprit]) -> Finding:
    group, own = dataset.group_list[one.group], one.late[0]
    waiting = ranks_of(one.gave_up)
    name = group.description or group.name
    reasons = () if only else ("it may wait in another group, about which it printed nothing",)
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(one.ranks)} had not issued #{one.seq} of {name} when {ranks_text(waiting)} gave up waiting "
        f"in it ({own.place})",
        explanation=(
            f"{wait_text(waiting)} in #{one.seq} until the timeout. After that {ranks_text(one.ranks)} still "
            f"reported #{own.values['last_enqueued']} as its last operation. Anything later came too late."
        ),
        root_cause=True,
        culprit_ranks=one.ranks,
        culprits=tuple(map(place, one.ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="high" if only else "medium",
        confidence_reasons=reasons,
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        seq=one.seq,
        evidence=(own.evidence(), *(line.evidence() for line in one.gave_up[:MOST_EVIDENCE])),
        next_steps=(
            f"Look at what {ranks_text(one.ranks)} did between #{own.values['last_enqueued']} and #{one.seq}: its log, "
            "its stack, the time that loading or saving took.",
        ),
    )


# A rank that alone did not give up waiting: the others waited for it.

MOST_LINES = 3
FEWEST_PROCESSES = 3
"""Fewest processes that show the numbering of the processes of a node."""
MOST_RANKS = 1 << 20
_LATE_REASON = "it did not wait for the others, they waited for it."
_CANDIDATES_REASON = "a rank whose own watchdog saw no timeout had nothing pending, or was ended before it gave up."


def find_silent(lines: Sequence[LogLine], world: int, place: Callable[[int], Culprit]) -> Finding | None:
    """The ranks in the logs that did not give up waiting while most did; several are only candidates."""
    gave_up = {line.rank: line for line in reversed(lines) if line.rank is not None and line.has(GAVE_UP)}
    hurt = {line.rank for line in lines if line.role == "victim" or EVENTS[line.kind].waited} - {None}
    covered = {line.rank for line in lines if line.rank is not None and not EVENTS[line.kind].of_others}
    covered |= _closed(lines, covered, world)
    silent = sorted(covered - set(gave_up) - hurt)
    if len(gave_up) < 2 or not silent or len(silent) >= len(gave_up) or len(covered) < world:
        return None
    return _silent_finding(lines, gave_up, silent, place)


MOST_ABSENT = 8
FEWEST_WAITING = 3
"""Fewest members that gave up for each that did not, where nothing is here of those."""


def find_absent(lines: Sequence[LogLine], dataset: Dataset) -> Finding | None:
    """The few members of a group that did not give up in a work in which all others did: candidates only.

    Nothing need be here of them: a member of a known group exists.
    """
    gave_up = {line.rank: line for line in reversed(lines) if line.rank is not None and line.has(GAVE_UP)}
    hurt = {line.rank for line in lines if line.role == "victim" or EVENTS[line.kind].waited} - {None}
    works = dataset.ops.filter(
        (pl.col("source") == "c10d-log") & pl.col("timeout_ms").is_not_null() & pl.col("seq").is_not_null()
        & pl.col("group").is_not_null() & ~pl.col("is_p2p")
    ).group_by("group", "seq").agg(pl.col("rank").unique(), pl.col("op").cast(pl.String).first())  # fmt: skip
    for at, seq, ranks, op in works.sort(pl.col("rank").list.len(), "group", descending=True).iter_rows():
        waiting = sorted(rank for rank in ranks if rank in gave_up)
        absent = sorted(set(dataset.group_list[at].ranks) - set(ranks) - hurt - set(gave_up))
        if absent and len(absent) <= MOST_ABSENT and len(waiting) >= FEWEST_WAITING * len(absent):
            return _absent_finding({rank: gave_up[rank] for rank in waiting}, absent, dataset.group_list[at], (op, seq))
    return None


def _absent_finding(gave_up: dict[int, LogLine], absent: list[int], group: Group, work: tuple[str, int]) -> Finding:
    op, seq = work
    first = min(gave_up.values(), key=lambda line: (line.file, line.offset))
    name = group.description or group.name
    who, whose = ranks_text(absent), "its" if len(absent) == 1 else "their"
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{who} may not have come: all others gave up waiting in {op} #{seq}{f' of {name}' if name else ''} "
        f"({first.place})",
        explanation=f"{wait_text(sorted(gave_up))} until the timeout. {who.capitalize()} printed no timeout here.",
        candidates=tuple(absent),
        waiting_ranks=tuple(sorted(gave_up)),
        blast_radius=len(gave_up),
        confidence="low",
        confidence_reasons=(
            f"{whose} lines may be missing here, or come from a rank that was ended before its timeout",
        ),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        seq=seq,
        op=op,
        evidence=tuple(gave_up[rank].evidence() for rank in sorted(gave_up)[:MOST_LINES]),
        next_steps=(f"Look at the stack of {who}, or read the end of {whose} log: that is where it stopped.",),
    )


def _silent_finding(
    lines: Sequence[LogLine], gave_up: dict[int, LogLine], silent: list[int], place: Callable[[int], Culprit]
) -> Finding:
    """The finding that the `silent` ranks did not come; `gave_up` has the first timeout of each other rank."""
    own = next((line for line in lines if line.rank == silent[0] and line.kind == "torchrun-failure"), None)
    first = next(iter(sorted(gave_up.values(), key=lambda line: (line.file, line.offset))))
    ended = f"; {own.text}" if own is not None else ""
    unnamed = any(line.values.get("library") == "nccl2" for line in gave_up.values())
    one = len(silent) == 1 and not unnamed
    ranks = tuple(silent) if one else ()
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(silent)} {'did' if one else 'may'} not {'come' if one else 'have come'}: "
        f"all others gave up waiting ({first.place})",
        explanation=(
            f"{wait_text(sorted(gave_up))} until the timeout. {ranks_text(silent).capitalize()} printed none{ended}: "
            f"{_CANDIDATES_REASON if unnamed else _LATE_REASON}"
        ),
        root_cause=one,
        culprit_ranks=ranks,
        culprits=tuple(map(place, ranks)),
        candidates=() if one else tuple(silent),
        waiting_ranks=tuple(sorted(gave_up)),
        blast_radius=len(gave_up),
        confidence="medium" if one else "low",
        confidence_reasons=(
            "a rank that was ended before its own timeout would look the same",
            *(("the lines do not name the operation that was waited for",) if unnamed else ()),
        ),
        evidence=(
            *([own.evidence()] if own else ()),
            *(gave_up[rank].evidence() for rank in sorted(gave_up)[:MOST_LINES]),
        ),
        next_steps=(
            f"Look at the stack of {ranks_text(silent)}, or read the end of its log: that is where it stopped.",
        ),
    )


def _closed(lines: Sequence[LogLine], covered: Collection[int], world: int) -> set[int]:
    """Ranks without a line of their own whose processes a launcher closed.

    Those are all missing ranks, if the numbers are equal; or processes whose numbers follow those of the other ranks.
    """
    missing = set(range(world)) - set(covered)
    known = {(line.rank, line.values["pid"]) for line in lines if line.rank is not None and line.values.get("pid")}
    closed = {
        line.values.get("pid") for line in lines if line.kind == "signal" and line.values.get("sender") == "launcher"
    }
    unknown = closed - {pid for _, pid in known} - {None}
    if len(missing) == len(unknown):
        return missing
    firsts = {pid - rank for rank, pid in known}
    if len(firsts) != 1 or len(known) < FEWEST_PROCESSES:
        return set()
    first = firsts.pop()
    return {pid - first for pid in unknown if 0 <= pid - first < MOST_RANKS} - set(covered)
