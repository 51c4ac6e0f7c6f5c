"""State of a watched job: whether it moves, how fast, and since when it does not.

Waiting ranks are accused only once it is frozen. A wait in one snapshot of a running job means nothing: every rank that
is a little behind looks like the one that all others wait for. So a verdict about waiting needs newer dumps with the
same frontiers for longer than any standstill the job was seen to recover from, or an end of files that used to come
regularly. Reading an unchanged file again proves nothing, so time counts only between versions of files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.freeze import COPY_AGE_NS, DumpPairs, Freeze, interval_ns
from rankscope.analysis.job_state import JobState, StateEvidence, state_of
from rankscope.analysis.model import Analysis, Finding, Status
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.input_kinds import LOG
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural, ranks_text

# History of earlier updates: when the job moved, how fast, and how often files came.


SECOND = 1_000_000_000
STANDSTILL_FACTOR = 2
"""Smallest ratio of a standstill to the longest one that the job recovered from."""
WRITING_NS = 3 * SECOND
"""Once all ranks have left files, more files of one dump may come for this long."""
MOST_SAMPLES = 16
"""Most samples from which rates are computed."""
RATE_WINDOW_NS = 30 * SECOND
"""Oldest sample for rates, except that two samples are always kept."""


@dataclass(frozen=True)
class CollectiveRate:
    """Collectives per second that the ranks of a group issue."""

    group: str
    description: str
    per_s: float


@dataclass(frozen=True)
class JobProgress:
    """The progress of the job at one update."""

    at_ns: int
    """Time of the update, on a monotonic clock."""
    fresh: bool
    """Whether files were written since the last update."""
    age_ns: int = 0
    """At the first update: the age of the newest file."""
    unread: bool = False
    """Whether some files have not been read at all yet."""
    ahead_ns: int = 0
    """How far the newest file is in the future, by the clock of this machine."""
    now_ns: int | None = None
    """Time of the update since the epoch, by the clock of this machine; None if it does not matter."""


Key = tuple[str, str]
"""Name and description of a group; its name and members if names repeat."""


@dataclass(frozen=True)
class ProgressHistory:
    """Bounded history of earlier updates."""

    samples: tuple[tuple[int, Mapping[Key, int]], ...] = ()
    """Frontiers by group, with the time of the newest event."""
    newest_ns: int | None = None
    still_ns: int = 0
    """Longest observed part of the current standstill."""
    got_over_ns: int = 0
    """The longest standstill that the job recovered from."""
    fresh_at_ns: int | None = None
    """The time since which nothing came, as far as it could be observed."""
    news_at_ns: int | None = None
    """The last time that something came: earlier than `fresh_at_ns` if the files were out of sight for a time."""
    gaps_ns: tuple[int, ...] = ()
    """The last gaps between files."""
    ranks: frozenset[int] = frozenset()
    """Ranks that have left files."""
    ranks_at_ns: int = 0
    """The last time that `ranks` grew."""
    rank_gap_ns: int = 0
    """The longest time after which `ranks` grew again."""
    least_ns: int | None = None
    """The shortest time from the newest event in a dump to its file time."""
    has_moved: bool = False
    """Whether newer dumps have shown newer events."""
    printed_ns: int | None = None
    """The last time a log was written, if no line and no dump tells issue times.

    The newest event is then the file time of the logs at the last increase of their operations.
    """
    issued: int = 0
    """Number of those operations: the sum of the frontiers of all ranks in all groups."""
    resumed_ns: int = 0
    """The newest event after the end of a standstill: rates do not include the standstill."""


def updated_history(memory: ProgressHistory, dataset: Dataset, look: JobProgress) -> ProgressHistory:
    """The history after an update of a whole job."""
    fronts = _frontiers(dataset)
    # the sum of the frontiers of all ranks in all groups
    issued = int(dataset.frontiers.select(pl.coalesce("last_enqueued", "last_kept").sum()).item() or 0)
    newest, printed = _newest(memory, dataset, issued)
    if memory.fresh_at_ns is None:
        written_ns = look.at_ns - max(0, look.age_ns)
        told = replace(memory, fresh_at_ns=written_ns, news_at_ns=written_ns)
    else:
        told = refreshed_history(memory, look.at_ns) if look.fresh else memory
    told = _grown(told, dataset, look, first=memory.fresh_at_ns is None)
    came = memory.fresh_at_ns is not None and bool(told.ranks - memory.ranks)
    if came and not dataset.dumps.is_empty() and not dataset.repeats["progressed"].any():
        # the first dumps of more ranks tell nothing of how the job goes on
        told = replace(told, samples=((newest, fronts),) if newest is not None else ())
    else:
        told = _moved(told, newest, fronts)
    told = replace(told, newest_ns=newest, printed_ns=printed, issued=issued)
    return replace(told, least_ns=_least_ns(dataset, memory.least_ns))


def _grown(memory: ProgressHistory, dataset: Dataset, look: JobProgress, *, first: bool) -> ProgressHistory:
    """The history with the ranks that have left files, at its `first` update and at later ones."""
    ranks = frozenset(dataset.seen_ranks)
    if first:
        # files may keep the times of the place that they are copied from, and more of them may come
        age_ns = 0 if dataset.missing_ranks and not dataset.dumps.is_empty() else max(0, look.age_ns)
        return replace(memory, ranks=ranks, ranks_at_ns=look.at_ns - age_ns)
    if not ranks - memory.ranks:
        return replace(memory, ranks=ranks)
    gap = max(memory.rank_gap_ns, look.at_ns - memory.ranks_at_ns)
    return replace(memory, ranks=ranks, ranks_at_ns=look.at_ns, rank_gap_ns=gap)


def _newest(memory: ProgressHistory, dataset: Dataset, issued: int) -> tuple[int | None, int | None]:
    """The newest event, and the last write of a log if nothing else tells the time."""
    newest = _newest_ns(dataset)
    printed = _printed_ns(dataset) if newest is None and issued else None
    if printed is None:
        return newest, None
    # more lines are not an event
    return printed if not memory.samples or issued != memory.issued else memory.newest_ns, printed


def _moved(memory: ProgressHistory, newest: int | None, fronts: Mapping[Key, int]) -> ProgressHistory:
    """The history with the current newest event and frontiers; the event itself is not yet recorded."""
    moved = memory.newest_ns is not None and newest is not None and newest > memory.newest_ns
    resumed = moved and memory.still_ns > pause_ns(memory)
    samples = memory.samples
    if newest is not None and (not samples or resumed or fronts != samples[-1][1]):
        back = bool(samples) and any(fronts.get(key, count) < count for key, count in samples[-1][1].items())
        samples = ((newest, fronts),) if back else (*samples, (newest, fronts))
        old = [s for s in samples[:-2] if newest - s[0] <= RATE_WINDOW_NS]
        samples = (*old, *samples[-2:])[-MOST_SAMPLES:]
    return replace(
        memory,
        samples=samples,
        still_ns=0 if moved else memory.still_ns,
        has_moved=memory.has_moved or moved,
        got_over_ns=max(memory.got_over_ns, memory.still_ns) if moved else memory.got_over_ns,
        resumed_ns=newest if resumed and newest is not None else memory.resumed_ns,
    )


def refreshed_history(memory: ProgressHistory, at_ns: int) -> ProgressHistory:
    """The history after files came at a time."""
    if memory.fresh_at_ns is None:
        return memory
    gaps = (*memory.gaps_ns, at_ns - memory.fresh_at_ns)[-MOST_SAMPLES:]
    return replace(memory, gaps_ns=gaps, fresh_at_ns=at_ns, news_at_ns=at_ns)


def pause_ns(memory: ProgressHistory) -> int:
    """Standstill after which a group has no rate any more."""
    return max(WRITING_NS, STANDSTILL_FACTOR * memory.got_over_ns)


def rates_of(memory: ProgressHistory) -> tuple[CollectiveRate, ...]:
    """Rates of the moving groups, the fastest first."""
    samples = [sample for sample in memory.samples if sample[0] >= memory.resumed_ns]
    if len(samples) < 2:
        return ()
    (begin, first), (end, last) = samples[0], samples[-1]
    seconds = (end - begin) / SECOND
    if seconds <= 0:
        return ()
    moved = [(key, count - first[key]) for key, count in last.items() if count > first.get(key, count)]
    rates = [
        CollectiveRate(name.rpartition("@")[0], description, count / seconds) for (name, description), count in moved
    ]
    return tuple(sorted(rates, key=lambda rate: (-rate.per_s, rate.group)))


def _least_ns(dataset: Dataset, before: int | None) -> int | None:
    """The shortest time seen from the newest event of a dump to the time of its file.

    It is small for a moving job, unless the clock of the files (of a server, or of a copy) is ahead of the ranks'.
    """
    events = dataset.ops.group_by("file").agg(newest=pl.max_horizontal(pl.col("created_ns", "completed_ns").max()))
    times = events.join(dataset.dumps.select("file", "mtime_ns"), on="file").drop_nulls()
    ages = (times["mtime_ns"] - times["newest"]).to_list()
    return min((max(0, age) for age in (*ages, *([] if before is None else [before]))), default=None)


def _newest_ns(dataset: Dataset) -> int | None:
    """The newest issue time; completions may be noticed only because a dump was written."""
    newest = dataset.ops["created_ns"].max()
    done = dataset.ops["completed_ns"].max()
    return max((int(t) for t in (newest, done) if isinstance(t, int)), default=None)


def _printed_ns(dataset: Dataset) -> int | None:
    """The last time a log was written."""
    written = dataset.files.filter(pl.col("used") & (pl.col("kind") == LOG.name))["mtime_ns"].max()
    return int(written) if isinstance(written, int) else None


def _frontiers(dataset: Dataset) -> dict[Key, int]:
    """The frontier of the first rank of each group, in collectives; groups without one are left out."""
    reached = pl.coalesce("last_enqueued", "last_kept")
    table = dataset.frontiers.group_by("group").agg(reached.max().alias("reached")).drop_nulls()
    names = dataset.groups.select("group", "name", "description", pl.col("ranks").list.first().alias("first"))
    rows = table.join(names, on="group").select("name", "description", "first", "reached").iter_rows()
    return {(f"{name}@{first}", description): reached for name, description, first, reached in rows}


# The state at the newest update.


FROZEN_NS = 60 * SECOND
"""Least standstill before a job is called frozen, unless the user sets it: writing a checkpoint looks the same."""
SILENT_NS = 600 * SECOND
"""Least silence before a job is called silent, if the usual gap between files is unknown."""
GAP_FACTOR = 20
"""Least ratio of the silence to the usual gap between files."""
FEWEST_GAPS = 3
"""Least ratio of the silence to the usual gap, if the user sets the time to freeze."""
DUMP_SPREAD_NS = 30 * SECOND
"""The dumps of the remaining ranks may come this long after those of the others: each rank has its own watchdog."""
COPY_FACTOR = 3
"""Least ratio of the wait for dumps of more ranks to the longest gap between those that came: large ones are copied
slowly."""
_STATUS_BY_STATE: Mapping[str, Status] = {"progressing": "progressing", "silent": "unknown"}
"""Status of a job with only logs and no finding, by whether its logs were seen to grow."""


@dataclass(frozen=True)
class LiveState:
    """The state of a watched job."""

    state: JobState
    reason: str
    still_ns: int | None = None
    """Standstill that files show; None if they show none."""
    needed_ns: int = FROZEN_NS
    """Standstill from which the job is called frozen."""
    since_ns: int | None = None
    """The newest event, by the clocks of the ranks."""
    rates: tuple[CollectiveRate, ...] = ()
    """Rates of the moving groups, the fastest first; empty for a job that does not move now."""
    came: bool = False
    """Whether anything was written while the job was watched."""
    news_at_ns: int | None = None
    """The last time anything was written, on a monotonic clock."""
    so_far: str = ""
    """ "10 of 16 dumps so far": what is there while dumps of more ranks are awaited; else ""."""
    judged_at_ns: int | None = None
    """The time at which the job is judged without them, on the same clock."""

    @property
    def per_s(self) -> float:
        """Collectives per second over all groups."""
        return sum(rate.per_s for rate in self.rates)

    @property
    def is_stopped(self) -> bool:
        """Whether a verdict about waiting may be given."""
        return self.state in ("frozen", "silent")


@dataclass(frozen=True)
class VerdictGate:
    """Judges the state of the job at each look, and lets verdicts about waiting through only once it is frozen."""

    freeze_after_ns: int | None = None
    """Standstill set by the user; None: derived from the job."""
    memory: ProgressHistory = field(default_factory=ProgressHistory)
    judge_at_ns: int | None = None
    """The next time to judge it if no file comes before; None if that changes nothing."""

    def resumed(self, at_ns: int) -> VerdictGate:
        """The gate after a time without sight: the silence in that time means nothing."""
        known = self.memory.fresh_at_ns is not None
        return replace(self, memory=replace(self.memory, fresh_at_ns=at_ns)) if known else self

    def look(self, dataset: Dataset, freeze: Freeze, look: JobProgress) -> tuple[VerdictGate, LiveState, Freeze]:
        """The gate for the next look, the state of the job, and its standstill for the analysis."""
        memory = updated_history(self.memory, dataset, look)
        freeze = _on_one_clock(freeze, max(look.ahead_ns, (memory.least_ns or 0) if memory.has_moved else 0))
        live = _judge(memory, self.freeze_after_ns, dataset, freeze, look)
        memory = replace(memory, still_ns=live.still_ns or 0)
        silent_ns = _silent_ns(memory, live.needed_ns, self.freeze_after_ns, dataset)
        silent_at = (memory.fresh_at_ns or 0) + silent_ns
        complete_at = memory.ranks_at_ns + _complete_ns(memory, dataset, self.freeze_after_ns)
        later = [at for at in (silent_at, complete_at) if at > look.at_ns]
        return replace(self, memory=memory, judge_at_ns=min(later, default=None)), live, _allowed(live, freeze)


def _on_one_clock(freeze: Freeze, ahead_ns: int) -> Freeze:
    """The standstill if the times of files are ahead of the times of events by `ahead_ns`."""
    if freeze.still_ns is None or not ahead_ns:
        return freeze
    proven = freeze.proven and not (freeze.timed and ahead_ns > DUMP_SPREAD_NS)
    return replace(freeze, still_ns=max(0, freeze.still_ns - ahead_ns), proven=proven)


def _judge(
    memory: ProgressHistory, asked_ns: int | None, dataset: Dataset, freeze: Freeze, look: JobProgress
) -> LiveState:
    needed = asked_ns or max(FROZEN_NS, freeze.needed_ns, STANDSTILL_FACTOR * memory.got_over_ns)
    still, why = _still(dataset, freeze)
    # a process notes its end before it writes its last dump
    moving = len(memory.samples) > 1 and not freeze.ends
    live = LiveState("progressing" if moving else "waiting", "", still, needed, memory.newest_ns, rates_of(memory))
    live = replace(live, reason="operations go on" if moving else "it is not known yet whether operations go on")
    live = replace(live, came=bool(memory.gaps_ns), news_at_ns=memory.news_at_ns)
    judged_at = memory.ranks_at_ns + _complete_ns(memory, dataset, asked_ns)
    if look.unread or (look.at_ns < judged_at and not (freeze.proven and _wrote_once(dataset))):
        return _incomplete(live, dataset, look, judged_at, moving=moving)
    pending = bool(dataset.ops.select(IS_PENDING.any()).item()) if dataset.ops.height else False
    same, same_why = _unchanged(dataset)
    if asked_ns is not None:
        # the user's limit is shorter than that of a report
        asked = f"; called frozen after {duration(asked_ns)}, as --freeze-after says"
        limit = max(FROZEN_NS, freeze.needed_ns)
        frozen_why = f"{why}{asked}" if needed <= (still or 0) < limit else why
        same_why = f"{same_why}{asked}" if (same or 0) < limit else same_why
    else:
        frozen_why = why
    chatter = (memory.printed_ns or 0) - (memory.newest_ns or 0) if memory.printed_ns is not None else 0
    evidence = StateEvidence(
        pending=pending,
        usual_ns=freeze.needed_ns,
        frozen_ns=needed,
        proof=freeze.reason if freeze.proven else "",
        ends=freeze.ends,
        still_ns=still,
        still_reason=frozen_why,
        idle_ns=same,
        idle_reason=same_why,
        over=_over(live, memory, asked_ns, dataset, look, waits=pending or dataset.dumps.is_empty()),
        chatter_ns=chatter if chatter > pause_ns(memory) else 0,
        pause_ns=pause_ns(memory),
        moves=moving,
    )
    state, reason = state_of(evidence)
    rested = state not in ("progressing", "waiting") or bool(evidence.chatter_ns)
    rested = rested or (still is not None and still > pause_ns(memory))
    return replace(live, state=state, reason=reason, rates=() if rested else live.rates)


def _wrote_once(dataset: Dataset) -> bool:
    """Whether every rank left one dump, all of one moment: after a timeout no more are to come."""
    written = dataset.written["written_ns"]
    if dataset.missing_ranks or written.len() < len(dataset.every_rank) or not dataset.repeats.is_empty():
        return False
    return int(written.max()) - int(written.min()) <= DUMP_SPREAD_NS  # type: ignore[arg-type]


def _incomplete(live: LiveState, dataset: Dataset, look: JobProgress, judged_at: int, *, moving: bool) -> LiveState:
    """The state while more files may be coming in, with the time until it is judged without them."""
    if not dataset.missing_ranks:
        more = f"more {'lines' if dataset.from_logs else 'dumps'} are coming in"
        return replace(live, reason=f"{live.reason}; {more}" if moving else more)
    so_far = f"{len(dataset.seen_ranks):,} of {len(dataset.every_rank):,} dumps so far"
    live = replace(live, so_far=so_far, judged_at_ns=None if look.unread else judged_at)
    more = so_far if look.unread else f"{so_far}; judged in {duration(judged_at - look.at_ns)} if no more come"
    return replace(live, reason=f"{live.reason}; {more}" if moving else more)


def _over(
    live: LiveState, memory: ProgressHistory, asked_ns: int | None, dataset: Dataset, look: JobProgress, *, waits: bool
) -> tuple[JobState, str] | None:
    """State and reason of a job that is long over, or of which nothing was written for long; None for any other."""
    old_ns = _old_ns(memory, look)
    if old_ns is not None:
        return "silent" if waits else "idle", f"the newest operation is {duration(old_ns)} old"
    quiet = look.at_ns - (memory.fresh_at_ns if memory.fresh_at_ns is not None else look.at_ns)
    if quiet < _silent_ns(memory, live.needed_ns, asked_ns, dataset):
        return None
    nothing, interval = f"nothing was written for {duration(quiet)}", interval_ns(dataset)
    if waits or interval is None:
        return "silent" if waits else "idle", nothing
    gone = f"although each rank dumps every {duration(interval)}: the processes are gone, or cannot write"
    return "frozen", f"{nothing}, {gone}"


def _old_ns(memory: ProgressHistory, look: JobProgress) -> int | None:
    """The age of the newest operation and line of a job that is long over; None for any other.

    Its files may be new: they were copied. A job that was seen to move is not over, whatever its clocks say.
    """
    known = [at for at in (memory.newest_ns, memory.printed_ns) if at is not None]
    if look.now_ns is None or not known or len(memory.samples) > 1:
        return None
    age = look.now_ns - max(known)
    return age if age > COPY_AGE_NS else None


def _complete_ns(memory: ProgressHistory, dataset: Dataset, asked_ns: int | None) -> int:
    """The delay after the last new dump in which dumps of other ranks may still come."""
    spread = max(DUMP_SPREAD_NS, COPY_FACTOR * memory.rank_gap_ns)
    wait = spread if dataset.missing_ranks else WRITING_NS
    return wait if asked_ns is None else min(wait, asked_ns)


def _silent_ns(memory: ProgressHistory, needed: int, asked_ns: int | None, dataset: Dataset) -> int:
    """The longest normal silence: from the median gap between files, or from the dump interval of each rank."""
    usual = sorted(memory.gaps_ns)[len(memory.gaps_ns) // 2] if memory.gaps_ns else interval_ns(dataset)
    if usual is None:
        return asked_ns or max(needed, SILENT_NS)
    return max(asked_ns, FEWEST_GAPS * usual) if asked_ns else max(needed, GAP_FACTOR * usual)


def _still(dataset: Dataset, freeze: Freeze) -> tuple[int | None, str]:
    """The standstill that files show: from the newest event to the newest dump, or between equal versions."""
    same, why = _unchanged(dataset)
    own = freeze.still_ns or 0
    if same is not None and same > own:
        return same, why
    return (own, f"the newest event is {duration(own)} older than the dumps") if own else (None, "")


def _unchanged(dataset: Dataset) -> tuple[int | None, str]:
    """The time over which newer dumps show the same."""
    since, until = DumpPairs(dataset).still or (0, 0)
    same = until - since
    return (same, f"dumps {duration(same)} apart show the same frontiers") if same > 0 else (None, "")


def _allowed(live: LiveState, freeze: Freeze) -> Freeze:
    """The standstill as the analysis is to take it."""
    freeze = replace(freeze, watched=True)
    if live.state == "frozen":
        return replace(freeze, stopped=True, still_ns=live.still_ns or freeze.still_ns, reason=live.reason)
    if live.state == "silent":
        return replace(freeze, stopped=None if freeze.stopped is False else freeze.stopped, reason=live.reason)
    if live.state == "idle":
        return freeze
    if live.state == "still":
        doubt = f"{live.reason}; it is called frozen after {duration(live.needed_ns)}"
    else:
        doubt = "the job is watched and was not seen to stand still"
    return replace(freeze, stopped=False, reason=doubt)


def with_state(analysis: Analysis, live: LiveState, ranks: int, *, logs: bool = False) -> Analysis:
    """The analysis of a watched job; without a verdict it says the state of the job instead.

    `logs`: logs are the only input.
    """
    soon = f"; called frozen after {duration(live.needed_ns)}"
    if analysis.status == "slow" and live.state == "still":
        return replace(analysis, verdict=f"{analysis.verdict}; now {live.reason}{soon}")
    told = plural(ranks, "rank")
    if logs and ranks and analysis.status == "unknown" and not analysis.findings and live.state in _STATUS_BY_STATE:
        # watching shows what logs alone do not tell
        return replace(analysis, status=_STATUS_BY_STATE[live.state], verdict=f"{told}: {live.reason}")
    if analysis.status not in ("progressing", "healthy") or live.state == "silent":
        return analysis
    if live.state == "frozen":
        return replace(analysis, status="unknown", verdict=f"{told}: {live.reason}")
    if live.state == "idle":
        if analysis.status == "progressing":
            return replace(analysis, status="unknown", verdict=f"{told}: {live.reason}")
        return replace(analysis, verdict=f"{told}, nothing is pending: {live.reason}") if live.reason else analysis
    line = f"{told}: {live.reason}"
    line += soon if live.state == "still" else ""
    return replace(analysis, status="progressing" if live.state == "progressing" else "unknown", verdict=line)


def with_awaited(analysis: Analysis, live: LiveState, awaited: Collection[int]) -> Analysis:
    """The analysis while dumps of `awaited` ranks may still come: nothing is held against these."""
    kept = tuple(f for f in analysis.findings if f.root_cause or not _is_about(f, awaited))
    if analysis.is_critical:
        return replace(analysis, findings=kept)
    status: Status = "progressing" if live.state == "progressing" else "unknown"
    return replace(analysis, findings=kept, status=status, verdict=live.reason)


def _is_about(finding: Finding, ranks: Collection[int]) -> bool:
    """Whether a finding says that these ranks left no dump, or suspects them only."""
    return finding.kind == "missing-dump" or (bool(finding.candidates) and set(finding.candidates) <= set(ranks))


def held_back(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with those that need a standstill turned into suspicions; causes stay first."""
    doubt = "The watched job was not seen to stand still. If it stays like this: "
    return [
        replace(
            _suspicion(finding, f"if the job stays still: {finding.title}"),
            kind="not-frozen",
            severity="info",
            explanation=f"{doubt}{finding.explanation}",
            blast_radius=0,
        )
        if finding.root_cause and FINDINGS[finding.kind].needs_stillness
        else finding
        for finding in findings
    ]


def if_it_runs(analysis: Analysis, reason: str) -> Analysis:
    """The analysis by `as_waiting` as a suspicion, because a log also falls silent if all of its processes are killed.

    Then they end one after the other, and the first one killed looks like the rank that the others wait for. `reason`
    says how long the logs have been silent.
    """
    if not any(finding.root_cause for finding in analysis.findings):
        return analysis
    findings = []
    for finding in analysis.findings:
        if not finding.root_cause:
            findings.append(replace(finding, severity="warning") if finding.severity == "critical" else finding)
            continue
        ranks = finding.culprit_ranks or finding.candidates
        whose = ranks_text(ranks) if ranks else "the ranks that are named"
        suspicion = replace(
            _suspicion(finding, f"if the processes still run: {finding.title}"),
            severity="warning",
            confidence="low",
            confidence_reasons=("logs also fall silent when all processes are killed",),
            next_steps=(f"Check whether the processes still run, those of {whose} first.", *finding.next_steps),
        )
        findings.append(suspicion)
    verdict = f"{reason}; if the processes still run, {analysis.verdict}"
    return replace(analysis, status="unknown", verdict=verdict, findings=tuple(findings))


def _suspicion(finding: Finding, title: str) -> Finding:
    """A root cause as a suspicion: its culprits become candidates."""
    ranks = finding.culprit_ranks or finding.candidates
    return replace(finding, root_cause=False, title=title, culprit_ranks=(), culprits=(), candidates=ranks)
