"""Of which attempt a log is: as its directory says, else as the time it was written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.logs.restarts import begins
from rankscope.assemble.naming import attempt_of
from rankscope.assemble.sources import Source

COPIED_NS = 86_400 * 1_000_000_000
"""A file written so long after the last event was copied: its time tells nothing."""


def settle(logs: Sequence[Source], runs: Sequence[Attempt]) -> None:
    """Gives each log the number of its attempt; the newest where nothing tells."""
    # what stands outside of all attempts, as what torchrun itself printed, is of the newest too
    told = [s for s in logs if attempt_of(s.shown) is not None]
    newest = max(told, key=lambda s: (s.mtime_ns or 0, s.shown), default=None)
    tags = {attempt_of(s.shown): i for i, run in enumerate(runs) for s in run.files}
    homes: dict[str, set[int]] = defaultdict(set)
    for i, run in enumerate(runs):
        for file in run.files:
            homes[file.directory].add(i)
    for source in logs:
        tag, home = attempt_of(source.shown), homes.get(source.directory, set())
        if not runs:
            own = newest is None or tag in (None, attempt_of(newest.shown))
            source.attempt, source.note = (0, None) if own else (None, "of an earlier attempt")
        elif tag is not None and tag in tags:
            source.attempt = tags[tag]
        else:
            source.attempt = next(iter(home)) if len(home) == 1 else _by_time(source, runs)


def run_in(logs: Sequence[Source], runs: Sequence[Attempt], chosen: int, asked: bool) -> int:
    """Which run to read of a log in which several follow each other; -1 for the last.

    With dumps their attempts are counted from the newest back; without, `chosen` counts the runs of the logs, if it was
    `asked` for. Raises NoSuchAttemptError.
    """
    if runs or not asked:
        return chosen - len(runs) if runs else -1
    count = 1 + max((len(begins(s.log)) for s in logs if s.log is not None), default=0)
    if not 0 <= chosen < count:
        raise NoSuchAttemptError(chosen, count)
    return chosen


def _by_time(source: Source, runs: Sequence[Attempt]) -> int:
    """The last attempt that had begun when the log was last written to."""
    last, written = runs[-1].newest_ns, source.mtime_ns
    if written is None or (last is not None and written > last + COPIED_NS):
        return len(runs) - 1
    begun = [i for i, run in enumerate(runs) if (run.started_ns or 0) <= written]
    return begun[-1] if begun else len(runs) - 1
