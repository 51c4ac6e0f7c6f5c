"""Ranks that ended their program while the others went on: what those wait in after that never finishes.

torch warns at the exit of a process that did not take its groups down. All ranks print that after a run that went well
or was stopped; a few that print it before the others give up waiting have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.logs.lines import CLOCKS_NS, TIMEOUTS, Line, precedes
from rankscope.analysis.model import Culprit, Finding
from rankscope.analysis.wording import ranks_text, wait_text

EXIT = "not-destroyed"
SHOWN = 3


def find_left(lines: Sequence[Line], place: Callable[[int], Culprit]) -> Finding | None:
    """The ranks that left, fewer than those that gave up waiting later; None without any."""
    gave_up = {line.rank: line for line in reversed(lines) if line.rank is not None and line.pattern in TIMEOUTS}
    exits = {line.rank: line for line in reversed(lines) if line.rank is not None and line.pattern == EXIT}
    waited = [line for rank, line in gave_up.items() if rank not in exits]
    left = {
        rank: line for rank, line in sorted(exits.items())
        if waited and all(precedes(line, other, CLOCKS_NS) for other in waited)
    }  # fmt: skip
    if not left or len(left) >= len(waited):
        return None
    ranks = tuple(left)
    waiting = tuple(sorted(rank for rank in gave_up if rank is not None and rank not in left))
    own = next(iter(left.values()))
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(ranks)} left the program while the others went on ({own.place})",
        explanation=(
            f"{ranks_text(ranks).capitalize()} came to the exit of the program without taking the process groups down. "
            f"{wait_text(waiting)} until the timeout, after that."
        ),
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium",
        confidence_reasons=("why the program ended is not in the log",),
        evidence=(
            *(line.evidence() for line in list(left.values())[:SHOWN]),
            *(gave_up[rank].evidence() for rank in waiting[:SHOWN]),
        ),
        next_steps=(
            f"Find out why {ranks_text(ranks)} left the loop early: fewer batches than the others, a return or "
            "sys.exit on one rank only, or an exception that was caught.",
        ),
    )
