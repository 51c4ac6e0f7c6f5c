"""A rank that alone did not give up waiting: it is what the others waited for.

Lines of nccl2 name no operation, and a launcher ends whoever has not given up yet: there the rank is only a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rankscope.analysis.logs.lines import TIMEOUTS, Line
from rankscope.analysis.model import Culprit, Finding
from rankscope.analysis.wording import ranks_text, wait_text
from rankscope.kinds.event_kinds import EVENTS

MOST_EVIDENCE = 3
FEWEST = 3
"""So many processes show how those of a node are numbered."""
MOST_RANKS = 1 << 20
_ALONE = "it did not wait for the others, they waited for it."
_UNNAMED = "a rank whose own watchdog saw no timeout had nothing pending, or was ended before it gave up."


def find_silent(lines: Sequence[Line], world: int, place: Callable[[int], Culprit]) -> Finding | None:
    """Most ranks gave up waiting, a few that the log covers did not; one is named, several are only candidates."""
    gave_up = {line.rank: line for line in reversed(lines) if line.rank is not None and line.pattern in TIMEOUTS}
    hurt = {line.rank for line in lines if line.role == "victim" or EVENTS[line.kind].waited} - {None}
    covered = {line.rank for line in lines if line.rank is not None and not EVENTS[line.kind].of_others}
    covered |= _closed(lines, covered, world)
    silent = sorted(covered - set(gave_up) - hurt)
    if len(gave_up) < 2 or not silent or len(silent) >= len(gave_up) or len(covered) < world:
        return None
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
            f"{_UNNAMED if unnamed else _ALONE}"
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
            *(gave_up[rank].evidence() for rank in sorted(gave_up)[:MOST_EVIDENCE]),
        ),
        next_steps=(
            f"Look at the stack of {ranks_text(silent)}, or read the end of its log: that is where it stopped.",
        ),
    )


def _closed(lines: Sequence[Line], covered: Collection[int], world: int) -> set[int]:
    """Ranks without a line of their own of which a launcher closed the processes.

    These are all that are missing, if they are as many; or processes whose numbers follow those of the other ranks.
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
    if len(firsts) != 1 or len(known) < FEWEST:
        return set()
    first = firsts.pop()
    return {pid - first for pid in unknown if 0 <= pid - first < MOST_RANKS} - set(covered)
