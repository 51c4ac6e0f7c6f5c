"""Late ranks as findings: the amount, the cause, the cost, and the next step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rankscope.analysis.late_ranks import ABOVE, FLOOR_SHARE, LateRank, LostTime
from rankscope.analysis.model import Analysis, Confidence, Evidence, Finding, GroupRef, RankExplanation, Reason
from rankscope.analysis.places import Places
from rankscope.features.traces.rules.host_time import span_text
from rankscope.features.traces.rules.lateness_causes import LATE_QUANTILE, PROFILER_FRAMES
from rankscope.features.traces.rules.model import TRACE_RESULTS, Lateness, TraceAnalysis
from rankscope.features.traces.rules.trace_story import TraceStory, group_label
from rankscope.schema import Dataset, Frame
from rankscope.text.wording import digits, duration, plural, ranks_text

MOST_EVIDENCE = 3
"""Most collectives quoted as evidence."""
FEWEST_UNITS = 5
"""With fewer units a finding is less certain."""
STEPS_BY_CAUSE = {
    "compute": "Compare the GPU of rank {rank} with the others: clocks, temperature, throttling (nvidia-smi -q -d "
    "CLOCK,PERFORMANCE), and what it is given to compute.",
    "launch": "Look for what else runs on the device of rank {rank}: other processes, or streams that its kernels wait "
    "for.",
    "host": "Look at {where} on rank {rank}: data loading, Python, the garbage collector, other processes on its host.",
    "unknown": "Record the traces with all categories: no span shows what rank {rank} did before it came.",
}
SLOW_HOST_STEP = (
    "Compare the processor of rank {rank} with the others: clocks, what else runs on its host, threads "
    "(OMP_NUM_THREADS), and what it is given to compute."
)
"""Advice for slow computing in a job without devices."""
UNREAD_STEP = "Wait for the rest of the traces: it shows what rank {rank} did before it came."
"""Advice while only collectives and steps of the traces are read."""
STACK_STEP = "Record with with_stack=True: no span shows what the host of rank {rank} did in that time."


@dataclass(frozen=True)
class StragglerWriter:
    """Converts late ranks to findings."""

    story: TraceStory
    places: Places

    def findings(self) -> list[Finding]:
        """A finding for each late rank, the costliest first."""
        return [self._finding(late) for late in self.story.late]

    def suspects(self) -> list[Finding]:
        """A finding without a culprit for the rank for which the others wait again and again, if nobody is late by
        itself."""
        lost = self.story.lost
        if self.story.late or lost is None or lost.rank is None:
            return []
        waiting = self._waiting(lost.rank)
        return [Finding(
            kind="straggler",
            severity="warning",
            title=lost_text(self.story, lost),
            explanation=(
                f"Between two collectives rank {lost.rank} works no longer by itself than the others, as far as spans "
                "show. It may wait for something that is not traced (a file, a lock, another process, a rank without "
                "a trace), or the others do the same work at another place of the step."
            ),
            candidates=(lost.rank,),
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence="low",
            confidence_reasons=("no work of its own explains it",),
            next_steps=(STEPS_BY_CAUSE["unknown"].format(rank=lost.rank), STACK_STEP.format(rank=lost.rank)),
        )]  # fmt: skip

    def _finding(self, late: LateRank) -> Finding:
        cause = self.story.causes[late.rank]
        here = late.rows(self.story.joined)
        own = here.filter(pl.col("rank") == late.rank)
        waiting = self._waiting(late.rank)
        group = int(own["group"][0])
        found = self.story.dataset.group_list[group]
        confidence, reasons = self._confidence(late)
        return Finding(
            kind="straggler",
            severity="warning",
            title=self._title(late, own, cause),
            explanation=self._explanation(late, cause, waiting),
            root_cause=True,
            culprit_ranks=(late.rank,),
            culprits=(self.places.culprit(late.rank),),
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence=confidence,
            confidence_reasons=reasons,
            group=GroupRef(found.name, found.description, found.ranks, key=found.id),
            op=str(own["op"][0]),
            stack=_frames(cause) or self._recorded_stack(own),
            evidence=self._evidence(late, here, own),
            counter_evidence=self._against(late, own),
            next_steps=(self._next(cause),),
        )

    def _recorded_stack(self, own: pl.DataFrame) -> tuple[Frame, ...]:
        """The stack, from dumps, at which the rank issued the collective to which it came latest."""
        if self.story.dataset.ops.is_empty():
            return ()
        latest = own.sort("own_ns", descending=True).select(pl.col("row").cast(pl.Int64))
        found = latest.join(self.story.recorded, on="row", maintain_order="left")["op_row"]
        return self.story.dataset.stack(self.story.dataset.ops["stack_id"][found[0]]) if len(found) else ()

    def _title(self, late: LateRank, own: pl.DataFrame, cause: Lateness) -> str:
        typical = _typical(late, own)
        floor = typical // 10
        last = int((own["margin_ns"] > 0).sum())
        behind = int((own["own_ns"] > floor).sum())
        label = group_label(self.story.dataset.group_list, own["group"][0], self.story.dataset.world_size)
        how = f"arrives last in {last}" if last * 2 > own.height else f"arrives late in {behind}"
        when = "" if late.every == 1 else f" in every {_ordinal(late.every)} step"
        what = f"{how} of {own.height:,} {own['op'][0]} of {label}{when}, by {duration(typical)}"
        return f"rank {late.rank} {what}{self._why(cause)}; costs {self._cost(late)}"

    def _why(self, cause: Lateness) -> str:
        """The cause as the end of the title."""
        unread = cause.cause == "unknown" and self.story.dataset.has_sparse_traces
        return "; its work in that time is not read yet" if unread else cause_text(cause)

    def _next(self, cause: Lateness) -> str:
        """The next step for a late rank."""
        if cause.cause == "unknown" and self.story.dataset.has_sparse_traces:
            return UNREAD_STEP.format(rank=cause.rank)
        if self.story.spans.on_host and cause.cause == "compute":
            return SLOW_HOST_STEP.format(rank=cause.rank)
        if cause.cause == "host" and not cause.what:
            return STACK_STEP.format(rank=cause.rank)
        where = span_text(cause.where or cause.what) if cause.cause == "host" else ""
        return STEPS_BY_CAUSE[cause.cause].format(rank=cause.rank, where=where)

    def _cost(self, late: LateRank) -> str:
        # with several late ranks, each hides the cost of the others
        lost = late.cost_ns if len(self.story.late) == 1 else late.median_ns // late.every
        if self.story.steps.is_empty():
            return f"{digits(100 * lost / max(late.unit_ns, 1))} % of the time"
        return f"{duration(lost)} of each {duration(late.unit_ns)} step"

    def _explanation(self, late: LateRank, cause: Lateness, waiting: tuple[int, ...]) -> str:
        unit, each = ("steps", "") if not self.story.steps.is_empty() else ("parts of the window", " in each")
        when = "" if late.every == 1 else f", every {_ordinal(late.every)},"
        interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
        text = (
            f"Nothing hangs, but {plural(len(waiting), 'rank')} {'waits' if len(waiting) == 1 else 'wait'} for rank "
            f"{late.rank}: in {late.late_in} of {late.units} {unit}{when} it works longer by itself than the others "
            f"between two collectives, by {duration(late.median_ns)}{each} (median; 95 % interval {interval})."
        )
        if cause.cause == "unknown":
            return text
        return f"{text} {_cause_sentence(cause)}"

    def _waiting(self, rank: int) -> tuple[int, ...]:
        """Members of the groups of the rank."""
        groups = self.story.joined.filter(pl.col("rank") == rank)["group"].unique()
        ranks = self.story.joined.filter(pl.col("group").is_in(groups.implode()))["rank"].unique()
        return tuple(sorted(r for r in ranks if r != rank))

    def _confidence(self, late: LateRank) -> tuple[Confidence, tuple[str, ...]]:
        reasons = []
        if late.units < FEWEST_UNITS:
            reasons.append(f"only {plural(late.units, 'step')} were recorded")
        if late.uneven:
            interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
            reasons.append(f"it is late by unequal amounts, {interval}, which may be chance in only a few steps")
        if partial := self._untraced(late):
            reasons.append(f"of its group, {partial} not traced")
        if late.every > 1 and late.late_in <= FEWEST_UNITS:
            reasons.append(f"it was seen only {plural(late.late_in, 'time')} in {plural(late.units, 'step')}")
        if self.story.clocks.error_ns * 2 > late.median_ns:
            reasons.append(f"clocks may be off by {duration(self.story.clocks.error_ns)}")
        return ("low" if late.uneven else "medium" if reasons else "high"), tuple(reasons)

    def _untraced(self, late: LateRank) -> str:
        """The members of the group at which it is late that were not traced; "" if all were."""
        own = late.rows(self.story.joined).filter(pl.col("rank") == late.rank)
        members = self.story.dataset.group_list[int(own["group"][0])].ranks
        missing = sorted(set(members) - self.story.traced_ranks)
        if not missing or not own["partial"].any():
            return ""
        return f"{ranks_text(missing)} {'was' if len(missing) == 1 else 'were'}"

    def _evidence(self, late: LateRank, here: pl.DataFrame, own: pl.DataFrame) -> tuple[Evidence, ...]:
        """The collectives at which it was latest: its own arrival, and the longest waiting member of the first one."""
        out = []
        worst = own.sort("own_ns", descending=True).head(MOST_EVIDENCE)
        for row in worst.iter_rows(named=True):
            came = f"came {duration(row['late_ns'])} after the others to {row['op']} {self._place(row)}"
            own_time, usual = duration(row["work_ns"]), duration(row["usual_work_ns"])
            worked = f"{own_time} of its own time, {usual} on the others"
            time = row["arrived_ns"] - row["offset_ns"]
            out.append(Evidence(f"{came}: {worked}", self.story.paths.get(row["file"]), late.rank, time_ns=time))
        same = here.join(worst.head(1).select("channel", "window", "place"), on=["channel", "window", "place"])
        first = same.sort("waited_ns", descending=True).row(0, named=True)
        text = f"waited {duration(first['waited_ns'])} in it"
        time = first["arrived_ns"] - first["offset_ns"]
        out.insert(1, Evidence(text, self.story.paths.get(first["file"]), first["rank"], time_ns=time))
        return tuple(out)

    def _place(self, row: dict[str, object]) -> str:
        step = "" if self.story.steps.is_empty() else f" of step {row['unit']}"
        return f"#{row['seq']}{step}" if row["seq"] is not None else f"{row['spot']}{step}"

    def _against(self, late: LateRank, own: pl.DataFrame) -> tuple[Evidence, ...]:
        others = int((own["margin_ns"] <= 0).sum())
        text = f"another rank came last in {others:,} of these {own.height:,} collectives"
        steps = late.units - late.late_in if late.every == 1 else 0
        out = [Evidence(text)] if others else []
        return (*out, *([Evidence(f"it was not late by itself in {steps} of {late.units} steps")] if steps else []))


def lost_text(story: TraceStory, lost: LostTime) -> str:
    """The cost of waiting for the last ranks: "the others wait for rank 1 for 200 ms (89 %) of each step"."""
    unit = "part of the window" if story.steps.is_empty() else "step"
    time = f"{duration(lost.lost_ns)} ({100 * lost.lost_ns / max(lost.unit_ns, 1):.0f} %) of each {unit}"
    if lost.rank is None:
        return f"ranks wait for the last of them for {time}, and it is not always the same one"
    times = f"in {lost.last_in} of {lost.units}"
    return f"the others wait for rank {lost.rank} for {time}, {times}, and the traces do not show why"


def cause_text(cause: Lateness) -> str:
    """The cause as the end of a sentence: ", because its host was in load (data.py:12)"."""
    if cause.cause == "unknown":
        return "; its work in that time is not known"
    if cause.cause == "host":
        if not cause.what:
            return ", because its host was outside of any recorded operation"
        where = f" in {span_text(cause.where)}" if cause.where else ""
        doing = f" ({cause.detail})" if cause.detail and cause.detail not in cause.what.replace("_", " ") else ""
        return f", because its host was in {span_text(cause.what)}{where}{doing}"
    if cause.cause == "launch":
        return ", because its kernels start late after they were launched"
    return f", because {cause.detail}"


def _cause_sentence(cause: Lateness) -> str:
    share = f"{100 * cause.share:.0f} %"
    if cause.cause == "compute":
        return (
            f"Its device computed for {share} of that time; {cause.detail}, most time goes to {span_text(cause.what)}."
        )
    if cause.cause == "launch":
        return f"Its device was idle for {share} of that time although kernels had been launched."
    what = f", which was in {span_text(cause.what)}" if cause.what else "; no span shows what it did"
    return f"{share} of that time goes to its host{what}."


def _typical(late: LateRank, own: pl.DataFrame) -> int:
    """Its typical delay at one collective; a unit that is not a step may have several."""
    if late.spot is not None:
        return int(own["own_ns"].median() or 0)  # type: ignore[arg-type]
    latest = own["own_ns"].quantile(LATE_QUANTILE) or 0.0
    return int(own.filter(pl.col("own_ns") >= latest / 2)["own_ns"].to_numpy().mean())


def _ordinal(number: int) -> str:
    """Ordinals: 2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _frames(cause: Lateness) -> tuple[Frame, ...]:
    """The Python functions among the surrounding spans, innermost first: "data.py(12): load"."""
    out = []
    for name in cause.stack:
        if any(own in name for own in PROFILER_FRAMES):
            continue
        file, at, rest = name.partition("(")
        line, closing, function = rest.partition("): ")
        if at and closing and line.isdigit():
            out.append(Frame(function, file, int(line)))
    return tuple(out)


# Explanations for one rank with only traces: its lateness, its waits, and the accused rank.

LATENESS_RULE = (
    "it works longer by itself than the others between two collectives, in most steps, by more than chance explains "
    f"(above {100 * FLOOR_SHARE:.0f} % of a step, and {ABOVE} times what the others are late by)"
)
CLEARING_EVIDENCE = (
    "a trace of more steps in which it is not late, or a program in which it is meant to do more than the others"
)


def explain_traced(dataset: Dataset, analysis: Analysis, rank: int) -> RankExplanation:
    """Explains why a rank is accused of being late, or why not."""
    traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
    accusing = next((f for f in analysis.findings if rank in f.culprit_ranks), None)
    if accusing is not None:
        rule = LATENESS_RULE if accusing.kind == "straggler" else accusing.explanation
        return RankExplanation(rank, True, accusing.id or None, f"rank {rank} is accused: {accusing.title}", (
            Reason("rule", Evidence(f"{accusing.kind}: {rule}")),
            *(Reason("evidence", e) for e in accusing.evidence),
            *_states(traces, rank),
            *(Reason("against", e) for e in accusing.counter_evidence),
            Reason("clears", Evidence(CLEARING_EVIDENCE)),
        ))  # fmt: skip
    if rank not in dataset.traces["rank"]:
        return RankExplanation(rank, False, None, f"rank {rank} is not accused: there is no trace of it", ())
    root = analysis.cause
    said = f"{root.id} {root.kind}: {root.title}" if root else f"nobody is accused: {analysis.verdict}"
    lines = [Reason("root", Evidence(said)), *_states(traces, rank)]
    lines += [reason for other in (root.culprit_ranks if root else ()) for reason in _states(traces, other)]
    caused_by = root.id or None if root else None
    return RankExplanation(rank, False, caused_by, f"rank {rank} is not accused: {_short(traces, rank)}", tuple(lines))


def _short(traces: TraceAnalysis, rank: int) -> str:
    late, waited = _median(traces, rank)
    if late is None:
        return "no operation of its trace was matched to another rank"
    return f"it is {duration(late)} late by itself in the median step, and waits {duration(waited or 0)}"


def _median(traces: TraceAnalysis, rank: int) -> tuple[int | None, int | None]:
    own = traces.steps.filter(pl.col("rank") == rank).select(pl.col("late_ns", "waited_ns").median().cast(pl.Int64))
    return own.row(0)


def _states(traces: TraceAnalysis, rank: int) -> Iterator[Reason]:
    late, waited = _median(traces, rank)
    if late is not None:
        waits = f"{duration(waited or 0)} waiting for others"
        text = f"{duration(late)} late by itself in the median step, {waits}"
        yield Reason("state", Evidence(text, rank=rank))
    last = traces.last.filter(pl.col("last") == rank)
    sure = int(last["sure"].sum())
    text = f"last in {last.height:,} of {plural(traces.last.height, 'collective')}, surely in {sure}"
    yield Reason("state", Evidence(text, rank=rank))
