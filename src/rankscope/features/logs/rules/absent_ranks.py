"""`missing-rank`: ranks that did not come while others waited until their timeout.

They left the program, were late and went on, or alone did not give up waiting. The counters that ranks print when the
watchdog asks for dumps are of that moment. A rank that wakes up later goes on, so by the end of its log it has issued
the collective.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.analysis.model import Finding
from rankscope.features.logs.rules.log_lines import CLOCK_SKEW_NS, LogEvidence, LogLine, precedes, ranks_of
from rankscope.text.wording import ranks_text, wait_text

EXIT_PATTERN = "not-destroyed"
MOST_EVIDENCE = 3
FEWEST_PROCESSES = 3
"""Fewest processes that show the numbering of the processes of a node."""
MOST_RANKS = 1 << 20
MOST_ABSENT = 8
FEWEST_WAITING = 3
"""Fewest members that gave up for each that did not, where nothing is here of those."""


def find_left(logs: LogEvidence) -> Iterator[Finding]:
    """The ranks that ended their program, if fewer than those that gave up waiting later."""
    exits = {line.rank: line for line in reversed(logs.lines) if line.rank is not None and line.pattern == EXIT_PATTERN}
    waited = [line for rank, line in logs.gave_up.items() if rank not in exits]
    left = {
        rank: line
        for rank, line in sorted(exits.items())
        if waited and all(precedes(line, other, CLOCK_SKEW_NS) for other in waited)
    }
    if not left or len(left) >= len(waited):
        return
    ranks = tuple(left)
    waiting = tuple(sorted(rank for rank in logs.gave_up if rank not in left))
    yield Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(ranks)} left the program while the others went on ({left[ranks[0]].place})",
        explanation=(
            f"{ranks_text(ranks).capitalize()} reached the exit of the program without destroying the process "
            f"groups. {wait_text(waiting)} after that, until the timeout."
        ),
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium",
        confidence_reasons=("why the program ended is not in the log",),
        evidence=(
            *(line.evidence() for line in list(left.values())[:MOST_EVIDENCE]),
            *(logs.gave_up[rank].evidence() for rank in waiting[:MOST_EVIDENCE]),
        ),
        next_steps=(
            f"Find out why {ranks_text(ranks)} left the loop early: fewer batches than the others, a return or "
            "sys.exit on one rank only, or an exception that was caught.",
        ),
    )


def find_late_arrival(logs: LogEvidence) -> Iterator[Finding]:
    """The rank that had not issued a collective when others gave up waiting in it, and waited for nobody itself;
    nothing unless there is exactly one such rank."""
    waits = {(line.rank, line.values.get("seq")) for line in logs.lines if line.kind == "watchdog-timeout"}
    waited = {rank for rank, _ in waits}
    # by group, the first counters that each rank printed
    counters: defaultdict[int, dict[int, LogLine]] = defaultdict(dict)
    for line in logs.lines:
        if line.kind == "pg-status" and line.group is not None and line.rank is not None:
            counters[line.group].setdefault(line.rank, line)
    best: tuple[int, int, tuple[LogLine, ...], list[LogLine]] | None = None
    late_ranks: set[int] = set()
    timed_out = 0
    for at, first in counters.items():
        gave_up = [line for rank, line in first.items() if (rank, line.values.get("at_work")) in waits]
        if not gave_up or logs.dataset.group_list[at].has_p2p:
            continue
        timed_out += 1
        seq: int = min(line.values["at_work"] for line in gave_up)
        late = tuple(
            line
            for rank, line in first.items()
            if rank not in waited
            and line.values.get("at_work") is None
            and isinstance(issued := line.values.get("last_enqueued"), int)
            and issued < seq
            and any(precedes(other, line, CLOCK_SKEW_NS) for other in gave_up)
        )
        late_ranks |= {*ranks_of(late)}
        waiting = [line for line in gave_up if line.values["at_work"] == seq]
        if late and (best is None or len(waiting) > len(best[3])):
            best = at, seq, late, waiting
    if best is not None and len(late_ranks) == 1:
        yield _late(logs, *best, only=timed_out == 1)


def _late(
    logs: LogEvidence, at: int, seq: int, late: tuple[LogLine, ...], gave_up: Sequence[LogLine], *, only: bool
) -> Finding:
    """The finding on a rank that was late to #`seq` of the group `at`; `only`: ranks gave up in no other group."""
    group, ranks, waiting = logs.dataset.group_list[at], ranks_of(late), ranks_of(gave_up)
    who, last = ranks_text(ranks), late[0].values["last_enqueued"]
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{who} had not issued #{seq} of {group.description or group.name} when {ranks_text(waiting)} gave up "
        f"waiting in it ({late[0].place})",
        explanation=(
            f"{wait_text(waiting)} in #{seq} until the timeout. After that {who} still reported #{last} as its last "
            "operation. Anything later came too late."
        ),
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="high" if only else "medium",
        confidence_reasons=() if only else ("it may wait in another group, about which it printed nothing",),
        group=logs.group(at),
        seq=seq,
        evidence=(late[0].evidence(), *(line.evidence() for line in gave_up[:MOST_EVIDENCE])),
        next_steps=(
            f"Look at what {who} did between #{last} and #{seq}: its log, its stack, the time that loading or saving "
            "took.",
        ),
    )


def find_silent(logs: LogEvidence) -> Iterator[Finding]:
    """The ranks in the logs that did not give up waiting while most did; several are only candidates."""
    gave_up, lines = logs.gave_up, logs.lines
    if logs.is_cut(gave_up.values()):
        return
    covered = logs.covered | _closed(logs)
    silent = sorted(covered - set(gave_up) - logs.hurt)
    if len(gave_up) < 2 or not silent or len(silent) >= len(gave_up) or len(covered) < logs.world:
        return
    end = next((line for line in lines if line.rank == silent[0] and line.kind == "torchrun-failure"), None)
    first = min(gave_up.values(), key=lambda line: (line.file, line.offset))
    unnamed = any(line.values.get("library") == "nccl2" for line in gave_up.values())
    alone = len(silent) == 1 and not unnamed
    others = "all others" if len(gave_up) + len(silent) == logs.world else ranks_text(sorted(gave_up))
    ranks = tuple(silent) if alone else ()
    why = (
        "a rank whose own watchdog saw no timeout had nothing pending, or was ended before it gave up."
        if unnamed
        else "it did not wait for the others, they waited for it."
    )
    yield Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(silent)} {'did' if alone else 'may'} not {'come' if alone else 'have come'}: "
        f"{others} gave up waiting ({first.place})",
        explanation=(
            f"{wait_text(sorted(gave_up))} until the timeout. {ranks_text(silent).capitalize()} printed none"
            f"{f'; {end.text}' if end is not None else ''}: {why}"
        ),
        root_cause=alone,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        candidates=() if alone else tuple(silent),
        waiting_ranks=tuple(sorted(gave_up)),
        blast_radius=len(gave_up),
        confidence="medium" if alone else "low",
        confidence_reasons=(
            "a rank that was ended before its own timeout would look the same",
            *(("the lines do not name the operation that was waited for",) if unnamed else ()),
        ),
        evidence=(
            *([end.evidence()] if end else ()),
            *(gave_up[rank].evidence() for rank in sorted(gave_up)[:MOST_EVIDENCE]),
        ),
        next_steps=(
            f"Look at the stack of {ranks_text(silent)}, or read the end of its log: that is where it stopped.",
        ),
    )


def _closed(logs: LogEvidence) -> set[int]:
    """Ranks without a line of their own whose processes a launcher closed.

    Those are all missing ranks, if the numbers are equal; or processes whose numbers follow those of the other ranks.
    """
    missing = set(range(logs.world)) - logs.covered
    known = {(line.rank, line.values["pid"]) for line in logs.lines if line.rank is not None and line.values.get("pid")}
    closed = {
        line.values.get("pid")
        for line in logs.lines
        if line.kind == "signal" and line.values.get("sender") == "launcher"
    }
    unknown = closed - {pid for _, pid in known} - {None}
    if len(missing) == len(unknown):
        return missing
    firsts = {pid - rank for rank, pid in known}
    if len(firsts) != 1 or len(known) < FEWEST_PROCESSES:
        return set()
    first = firsts.pop()
    return {pid - first for pid in unknown if 0 <= pid - first < MOST_RANKS} - logs.covered


def find_absent(logs: LogEvidence) -> Iterator[Finding]:
    """The few members of a group that did not give up in a work in which all others did: candidates only.

    Nothing need be here of them: a member of a known group exists.
    """
    gave_up = logs.gave_up
    works = logs.dataset.ops.filter(
        (pl.col("source") == "c10d-log")
        & pl.col("timeout_ms").is_not_null()
        & pl.col("seq").is_not_null()
        & pl.col("group").is_not_null()
        & ~pl.col("is_p2p")
    )
    works = works.group_by("group", "seq").agg(pl.col("rank").unique(), pl.col("op").cast(pl.String).first())
    for at, seq, ranks, op in works.sort(pl.col("rank").list.len(), "group", descending=True).iter_rows():
        group = logs.dataset.group_list[at]
        waiting = sorted(rank for rank in ranks if rank in gave_up)
        absent = sorted(set(group.ranks) - set(ranks) - logs.hurt - set(gave_up))
        if not absent or len(absent) > MOST_ABSENT or len(waiting) < FEWEST_WAITING * len(absent):
            continue
        if logs.is_cut(gave_up[rank] for rank in waiting):
            # the lines of the others may be those that were cut off
            continue
        first = min((gave_up[rank] for rank in waiting), key=lambda line: (line.file, line.offset))
        name = group.description or group.name
        who, whose = ranks_text(absent), "its" if len(absent) == 1 else "their"
        yield Finding(
            kind="missing-rank",
            severity="critical",
            title=f"{who} may not have come: all others gave up waiting in {op} #{seq}{f' of {name}' if name else ''} "
            f"({first.place})",
            explanation=f"{wait_text(waiting)} until the timeout. {who.capitalize()} printed no timeout here.",
            candidates=tuple(absent),
            waiting_ranks=tuple(waiting),
            blast_radius=len(waiting),
            confidence="low",
            confidence_reasons=(
                f"{whose} lines may be missing here, or come from a rank that was ended before its timeout",
            ),
            group=logs.group(at),
            seq=seq,
            op=op,
            evidence=tuple(gave_up[rank].evidence() for rank in waiting[:MOST_EVIDENCE]),
            next_steps=(f"Look at the stack of {who}, or read the end of {whose} log: that is where it stopped.",),
        )
        return
