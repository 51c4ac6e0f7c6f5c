"""Ranks that never came to `init_process_group`, and more processes than the job has ranks.

Every rank counts itself in at a barrier in the store and says, while it waits, how many have come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from rankscope.analysis.logs.lines import Line, ranks_of
from rankscope.analysis.model import Culprit, Finding
from rankscope.analysis.wording import plural, ranks_text

SHOWN = 4


def find_startup(lines: Sequence[Line], place: Callable[[int], Culprit]) -> list[Finding]:
    """A finding for each barrier that did not open, or that too many came to."""
    by_key: defaultdict[object, list[Line]] = defaultdict(list)
    for line in lines:
        known = line.kind == "store-barrier" and line.rank is not None
        if known and None not in (line.values.get("world_size"), line.values.get("came")):
            by_key[line.values.get("key")].append(line)
    found = [_crowded(own) or _short(own, place) for own in by_key.values()]
    return [finding for finding in found if finding is not None]


def _crowded(own: list[Line]) -> Finding | None:
    size, came = own[-1].values["world_size"], max(line.values["came"] for line in own)
    if came <= size:
        return None
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{plural(came, 'process')} came to set up a group of {size} ({own[0].place})",
        explanation=(
            "Processes of another run, or of a restart, count at the same store: the job waits for a number that is "
            "never reached again."
        ),
        root_cause=True,
        waiting_ranks=ranks_of(own),
        confidence="medium",
        confidence_reasons=("whose processes are too many is not told",),
        evidence=tuple(line.evidence() for line in own[:SHOWN]),
        next_steps=("End left-over processes, or choose another MASTER_PORT.",),
    )


def _short(own: list[Line], place: Callable[[int], Culprit]) -> Finding | None:
    gave_up = [line for line in own if line.values.get("timed_out")]
    if not gave_up:
        return None
    size, came = gave_up[-1].values["world_size"], max(line.values["came"] for line in own)
    waiting = ranks_of(own)
    absent = tuple(sorted(set(range(size)) - set(waiting))) if size <= 1 << 20 else ()
    # only where everybody who came has spoken is it known who did not
    ranks = absent if len(absent) == size - came and 2 * len(absent) <= size else ()
    who = ranks_text(ranks) if ranks else f"{size - came} of {plural(size, 'rank')}"
    first = gave_up[0]
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{who} never came to init_process_group ({first.place})",
        explanation=f"{ranks_text(waiting).capitalize()} waited there until the timeout; {came} of {size} came.",
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium" if ranks else "low",
        confidence_reasons=() if ranks else ("which ranks did not come is not told",),
        evidence=tuple(line.evidence() for line in gave_up[:SHOWN]),
        next_steps=("See whether these processes started at all, and what they print first.",),
    )
