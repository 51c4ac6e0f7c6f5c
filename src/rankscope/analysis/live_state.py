"""Whether a job that is watched moves, and since when it does not: before that is sure, nobody is accused of waiting.

A wait on one snapshot of a running job is nothing: every rank that is a little behind looks like the one all wait for.
So a verdict about waiting needs newer dumps that show the same frontiers for longer than the job was ever seen to
stand still, or that nothing comes any more where something always came. Reading a file again that nobody wrote again
proves nothing, so time counts only between versions of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from rankscope.analysis.collective_calls import PENDING
from rankscope.analysis.freeze import Freeze, Repeats, interval_ns
from rankscope.analysis.model import Analysis, Finding, Status
from rankscope.analysis.progress_history import (
    LONGER,
    SECOND,
    WRITING_NS,
    Look,
    Memory,
    Rate,
    pause_ns,
    rates_of,
    remember,
)
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural

State = Literal["waiting", "progressing", "still", "frozen", "silent", "idle"]
FROZEN_NS = 60 * SECOND
"""No job is called frozen before, unless it is asked for: one that writes a checkpoint stands as still."""
SILENT_NS = 600 * SECOND
"""Nothing came for so long, where it is not known how often something comes."""
GAPS = 20
"""Nothing came for so many times the usual gap."""
MISSED = 3
"""At least for so many, where the user says from when on a job is frozen."""
COMING_NS = 30 * SECOND
"""Where some have not, their dumps may come for so long after those of the others: each has a watchdog of its own."""
_SEEN: Mapping[str, Status] = {"progressing": "progressing", "silent": "unknown"}
"""What a job is called whose logs alone say nothing of how it goes, where they were seen to grow, or not to."""


@dataclass(frozen=True)
class Live:
    """How a job that is watched is."""

    state: State
    reason: str
    still_ns: int | None = None
    """For how long files show that nothing moved; None if they do not."""
    needed_ns: int = FROZEN_NS
    """From when on it is called frozen."""
    since_ns: int | None = None
    """When the newest event was, by the clocks of the ranks."""
    rates: tuple[Rate, ...] = ()
    """Of the groups that move, the fastest first; none of a job that does not just now."""
    came: bool = False
    """Whether anything was written while it was watched."""
    news_at_ns: int | None = None
    """When something was written last, on a clock that never goes back."""

    @property
    def per_s(self) -> float:
        """Collectives a second over all groups."""
        return sum(rate.per_s for rate in self.rates)

    @property
    def is_stopped(self) -> bool:
        """Whether a verdict about waiting may be given."""
        return self.state in ("frozen", "silent")


@dataclass(frozen=True)
class Gate:
    """Says with each look how the job is, and lets verdicts about waiting through only once it is frozen."""

    freeze_after_ns: int | None = None
    """As the user wants it; None: as the job itself tells."""
    memory: Memory = field(default_factory=Memory)
    judge_at_ns: int | None = None
    """When it is to be judged again if nothing comes before; None if that changes nothing."""

    def resumed(self, at_ns: int) -> Gate:
        """The same after a time in which nothing could be seen: that nothing came then says nothing."""
        known = self.memory.fresh_at_ns is not None
        return replace(self, memory=replace(self.memory, fresh_at_ns=at_ns)) if known else self

    def look(self, dataset: Dataset, freeze: Freeze, look: Look) -> tuple[Gate, Live, Freeze]:
        """The gate for the next look, how the job is, and what its standstill is to be taken for."""
        memory = remember(self.memory, dataset, look)
        freeze = _on_one_clock(freeze, max(look.ahead_ns, (memory.least_ns or 0) if memory.has_moved else 0))
        live = _judge(memory, self.freeze_after_ns, dataset, freeze, look)
        memory = replace(memory, still_ns=live.still_ns or 0)
        silent_ns = _silent_ns(memory, live.needed_ns, self.freeze_after_ns, dataset)
        silent_at = (memory.fresh_at_ns or 0) + silent_ns
        complete_at = memory.ranks_at_ns + _complete_ns(dataset, self.freeze_after_ns)
        later = [at for at in (silent_at, complete_at) if at > look.at_ns]
        return replace(self, memory=memory, judge_at_ns=min(later, default=None)), live, _allowed(live, freeze)


def _on_one_clock(freeze: Freeze, ahead_ns: int) -> Freeze:
    """What the times of files say of a standstill where these are so far ahead of the times of events."""
    if freeze.still_ns is None or not ahead_ns:
        return freeze
    proven = freeze.proven and not (freeze.timed and ahead_ns > COMING_NS)
    return replace(freeze, still_ns=max(0, freeze.still_ns - ahead_ns), proven=proven)


def _judge(memory: Memory, asked_ns: int | None, dataset: Dataset, freeze: Freeze, look: Look) -> Live:
    needed = asked_ns or max(FROZEN_NS, freeze.needed_ns, LONGER * memory.got_over_ns)
    still, why = _still(dataset, freeze)
    moving = len(memory.samples) > 1
    live = Live("progressing" if moving else "waiting", "", still, needed, memory.newest_ns, rates_of(memory))
    live = replace(live, reason="operations go on" if moving else "nothing tells yet whether operations go on")
    live = replace(live, came=bool(memory.gaps_ns), news_at_ns=memory.news_at_ns)
    if look.unread or look.at_ns - memory.ranks_at_ns < _complete_ns(dataset, asked_ns):
        what = "lines" if dataset.from_logs else "dumps"
        more = "dumps of more ranks are coming in" if dataset.missing_ranks else f"more {what} are coming in"
        return replace(live, reason=f"{live.reason}; {more}" if moving else more)
    pending = bool(dataset.ops.select(PENDING.any()).item()) if dataset.ops.height else False
    return _stopped(live, memory, asked_ns, dataset, freeze, look, pending=pending) or _paused(
        live, memory, freeze, why, pending=pending
    )


def _stopped(
    live: Live, memory: Memory, asked_ns: int | None, dataset: Dataset, freeze: Freeze, look: Look, *, pending: bool
) -> Live | None:
    """How a job is that has ended, is frozen, or writes nothing any more; None of any other."""
    stopped, reasons = replace(live, rates=()), _ended(dataset)
    if not pending and reasons == {"exit"}:
        return replace(stopped, state="idle", reason="every process came to the end of its program")
    if freeze.proven:
        return replace(stopped, state="frozen", reason=freeze.reason)
    still, why = _still(dataset, freeze) if pending else _unchanged(dataset)
    if still is not None and still >= live.needed_ns:
        return replace(stopped, state="frozen", reason=why if pending else f"{why}, and no rank is in a collective")
    if reasons:
        return replace(stopped, state="idle", reason="every process has ended")
    return _quiet(stopped, memory, asked_ns, dataset, look, pending or dataset.dumps.is_empty())


def _paused(live: Live, memory: Memory, freeze: Freeze, why: str, *, pending: bool) -> Live:
    """A job that is not known to have stopped, with how long it has not moved.

    A log that says nothing more of operations may be that of a job which replays a graph of them: it is no standstill.
    """
    chatter = (memory.printed_ns or 0) - (memory.newest_ns or 0)
    if memory.printed_ns is not None and chatter > pause_ns(memory):
        told = f"logs were written to {duration(chatter)} after they told of the newest operation"
        return replace(live, state="waiting", reason=told, rates=())
    if live.still_ns is None:
        return live
    if live.still_ns > freeze.needed_ns:
        return replace(live, state="still" if pending else "idle", reason=why, rates=())
    return replace(live, reason=why, rates=()) if live.rates and live.still_ns > pause_ns(memory) else live


def _quiet(live: Live, memory: Memory, asked_ns: int | None, dataset: Dataset, look: Look, waits: bool) -> Live | None:
    """How the job is if nothing was written for long; None if something was."""
    quiet = look.at_ns - (memory.fresh_at_ns if memory.fresh_at_ns is not None else look.at_ns)
    if quiet < _silent_ns(memory, live.needed_ns, asked_ns, dataset):
        return None
    nothing, interval = f"nothing was written for {duration(quiet)}", interval_ns(dataset)
    if waits or interval is None:
        return replace(live, state="silent" if waits else "idle", reason=nothing)
    gone = f"though each rank dumps every {duration(interval)}: the processes are gone, or cannot write"
    return replace(live, state="frozen", reason=f"{nothing}, {gone}")


def _ended(dataset: Dataset) -> frozenset[str]:
    """How the processes of all ranks ended, as their sidecars say; empty if not all have."""
    ends = dataset.messages.filter(pl.col("kind") == "process-end")
    if ends.is_empty() or set(ends["rank"]) != set(range(dataset.world_size)):
        return frozenset()
    return frozenset(ends["values"].str.json_path_match("$.reason").fill_null("").to_list())


def _complete_ns(dataset: Dataset, asked_ns: int | None) -> int:
    """How long after the first dump of a rank that of another may come: they are written one after the other."""
    wait = COMING_NS if dataset.missing_ranks else WRITING_NS
    return wait if asked_ns is None else min(wait, asked_ns)


def _silent_ns(memory: Memory, needed: int, asked_ns: int | None, dataset: Dataset) -> int:
    """For how long nothing may come: the median gap between what came tells it, or how often each rank dumps."""
    usual = sorted(memory.gaps_ns)[len(memory.gaps_ns) // 2] if memory.gaps_ns else interval_ns(dataset)
    if usual is None:
        return asked_ns or max(needed, SILENT_NS)
    return max(asked_ns, MISSED * usual) if asked_ns else max(needed, GAPS * usual)


def _still(dataset: Dataset, freeze: Freeze) -> tuple[int | None, str]:
    """How long files show that nothing moved: from the newest event to the newest dump, or between equal versions."""
    same, why = _unchanged(dataset)
    own = freeze.still_ns or 0
    if same is not None and same > own:
        return same, why
    return (own, f"dumps were written {duration(own)} after the newest event") if own else (None, "")


def _unchanged(dataset: Dataset) -> tuple[int | None, str]:
    """For how long newer dumps show the same."""
    since, until = Repeats(dataset).still or (0, 0)
    same = until - since
    return (same, f"dumps {duration(same)} apart show the same frontiers") if same > 0 else (None, "")


def _allowed(live: Live, freeze: Freeze) -> Freeze:
    """The standstill as the analysis is to take it."""
    freeze = replace(freeze, watched=True)
    if live.state == "frozen":
        return replace(freeze, stopped=True, still_ns=live.still_ns or freeze.still_ns, reason=live.reason)
    if live.state == "silent":
        return replace(freeze, stopped=None if freeze.stopped is False else freeze.stopped, reason=live.reason)
    if live.state == "idle":
        return freeze
    return replace(freeze, stopped=False, reason=_doubt(live))


def with_state(analysis: Analysis, live: Live, ranks: int, *, logs: bool = False) -> Analysis:
    """The analysis of a job that is watched; where there is no verdict, it says how the job is instead.

    `logs`: they are all that is known of it.
    """
    soon = f"; called frozen after {duration(live.needed_ns)}"
    if analysis.status == "slow" and live.state == "still":
        return replace(analysis, verdict=f"{analysis.verdict}; now {live.reason}{soon}")
    told = plural(ranks, "rank")
    if logs and ranks and analysis.status == "unknown" and not analysis.findings and live.state in _SEEN:
        # what logs do not tell, those see who watch them
        return replace(analysis, status=_SEEN[live.state], verdict=f"{told}: {live.reason}")
    if analysis.status not in ("progressing", "healthy") or live.state == "silent":
        return analysis
    if live.state == "frozen":
        return replace(analysis, status="unknown", verdict=f"{told}: {live.reason}")
    if live.state == "idle":
        ended = analysis.status == "healthy" and bool(live.reason)
        return replace(analysis, verdict=f"{told}, nothing is pending: {live.reason}") if ended else analysis
    line = f"{told}: {live.reason}"
    line += soon if live.state == "still" else ""
    return replace(analysis, status="progressing", verdict=line)


def held_back(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with those that need a standstill turned into suspicions, the causes first as before."""
    return [_suspected(f) if f.root_cause and FINDINGS[f.kind].needs_stillness else f for f in findings]


def _suspected(finding: Finding) -> Finding:
    return replace(
        finding, kind="not-frozen", severity="info", root_cause=False, title=f"not yet: {finding.title}",
        explanation=f"The job is watched and was not seen to stand still. If it stays so: {finding.explanation}",
        culprit_ranks=(), culprits=(), candidates=finding.culprit_ranks or finding.candidates, blast_radius=0,
    )  # fmt: skip


def _doubt(live: Live) -> str:
    if live.state == "still":
        return f"{live.reason}; it is called frozen after {duration(live.needed_ns)}"
    return "the job is watched and was not seen to stand still"
