"""Questions of what would be gained, and findings on a trace of steps.

What would be gained is asked about the ranks that the headline accuses. It stays unless a stage or the lengths of
sequences explain why they are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Culprit, Evidence, Finding
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.whatif.gain_text import (
    ADVICE,
    EXPLANATIONS,
    gain_line,
    gain_noun,
    part_text,
    slowdown_line,
    span,
)
from rankscope.features.whatif.model import WHAT_IF_REASON, WHAT_IF_RESULTS, Gain, TimesError, WhatIf
from rankscope.features.whatif.step_graph import CircleError
from rankscope.schema import Dataset
from rankscope.text.wording import digits, plural

CLEAR = 0.1
"""Part of a step from which what it loses is told by itself: the paper calls a job slow from a slowdown of 1.1."""
EXPLAINING = ("stage", "sequence", "worker", "link")
"""Causes for which other ranks come late."""
ASKED = ("healthy", "slow", "progressing", "unknown")
"""Statuses of jobs that make steps."""


def with_what_if(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with the answers, and with a finding of what makes steps longer; nothing for a job that stands.

    Late ranks are no longer accused where their stage or the lengths of sequences explain it.
    """
    dataset = facts.dataset
    if analysis.status not in ASKED or analysis.is_critical:
        return analysis
    late = tuple(f for f in analysis.findings if f.kind == "straggler" and f.root_cause)
    accused = tuple(sorted({rank for finding in late for rank in finding.culprit_ranks}))
    try:
        answers = _asked(facts, analysis, accused)
    except CircleError as error:
        if not dataset.from_step_ops:
            return WHAT_IF_REASON.put(analysis, str(error))
        return replace(analysis, status="unknown", verdict=f"a trace of steps that cannot be simulated: {error}")
    except TimesError as error:
        return WHAT_IF_REASON.put(analysis, str(error))
    if answers is None:
        return analysis
    analysis = WHAT_IF_RESULTS.put(analysis, answers)
    if dataset.from_step_ops:
        return _of_steps(dataset, analysis, answers)
    cause = answers.cause
    if answers.acquitted:
        return _acquitted(analysis, answers, late)
    if cause is None or cause.cause in ("worker", "link") or cause.share < CLEAR:
        return analysis
    finding = replace(_finding(answers, cause), severity="info", id=f"f{len(analysis.findings) + 1}")
    return replace(analysis, findings=(*analysis.findings, finding))


def _acquitted(analysis: Analysis, answers: WhatIf, late: Sequence[Finding]) -> Analysis:
    """The analysis in which what explains their lateness stands for the ranks that were accused."""
    cause = next(gain for gain in answers.gains if gain.cause in EXPLAINING)
    finding = _finding(answers, cause)
    said = tuple(Evidence(f"{each.title}, which this explains") for each in late)
    finding = replace(finding, severity="warning", id=late[0].id, evidence=(*said, *finding.evidence))
    place = analysis.findings.index(late[0])
    ids = {each.id for each in late}
    rest = [
        replace(each, caused_by=finding.id) if each.caused_by in ids else each
        for each in analysis.findings
        if each not in late
    ]
    findings = (*rest[:place], finding, *rest[place:])
    return replace(analysis, findings=findings, verdict=finding.title)


def _asked(facts: Facts, analysis: Analysis, accused: tuple[int, ...]) -> WhatIf | None:
    """The answers for the best of what was read; None if it does not tell times. Raises CircleError and TimesError."""
    from rankscope.features.whatif.answers import answers

    dataset = facts.dataset
    if not dataset.step_ops.is_empty():
        from rankscope.features.whatif.pipeline_schedule import pipeline_schedule

        return answers(pipeline_schedule(dataset.step_ops), "step-trace")
    from rankscope.features.whatif.matched_schedule import matched_schedule

    traces = TRACE_RESULTS.find(analysis)
    if traces is not None and not traces.matched.is_empty():
        from rankscope.features.whatif.recorded_calls import traced_calls, traced_kernels

        calls, steps_known = traced_calls(dataset, traces)
        schedule = matched_schedule(calls, traced_kernels(dataset, traces, calls), steps_known=steps_known)
        return answers(schedule, "traces", accused, steps_known=steps_known) if schedule is not None else None
    if dataset.ops.is_empty() or dataset.from_logs:
        return None
    from rankscope.features.whatif.dump_calls import timed_calls

    schedule = matched_schedule(timed_calls(dataset), steps_known=True)
    return answers(schedule, "dumps", accused) if schedule is not None else None


def _of_steps(dataset: Dataset, analysis: Analysis, told: WhatIf) -> Analysis:
    """The verdict of a trace of steps: its cause, else that all is typical."""
    cause = told.cause
    of = f"{plural(len(dataset.seen_ranks), 'worker')}, {plural(told.steps, 'step')}"
    if cause is None:
        return replace(analysis, status="healthy", verdict=f"{of}: {slowdown_line(told)}, and nothing stands out")
    finding = replace(_finding(told, cause), id=f"f{len(analysis.findings) + 1}")
    clear = cause.share >= CLEAR
    known = replace(analysis, findings=(finding, *analysis.findings))
    verdict = finding.title if clear else f"{of}: {slowdown_line(told)}; {gain_line(told, cause)}"
    return replace(known, status="slow" if clear else "healthy", verdict=verdict)


def _finding(told: WhatIf, cause: Gain) -> Finding:
    """The cause of longer steps: an accusation of ranks only if they alone are longer than their peers."""
    shows = [slowdown_line(told)]
    if told.worst_workers is not None:
        shows.append(f"without the worst 3 % of workers {part_text(told.worst_workers)} of that goes")
    if told.last_stage is not None:
        shows.append(f"without what is special of the last stage {part_text(told.last_stage)} of that goes")
    if told.correlation is not None:
        shows.append(f"forward and backward of one micro batch correlate by {told.correlation:.2f}")
    evidence = tuple(Evidence(text) for text in (*shows, *(gain_line(told, gain) for gain in told.gains[1:])))
    accused = cause.ranks if cause.cause == "worker" and cause.share >= CLEAR else ()
    times = span(told.measured_ns, cause.step_ns)
    unit = "a step" if told.steps else "for what was recorded"
    title = f"{_what(told, cause)}: without that {times} {unit}"
    return Finding(
        kind="straggler" if accused else "uneven-work", severity="warning" if cause.share >= CLEAR else "info",
        title=title, explanation=EXPLANATIONS[cause.cause], evidence=evidence, culprit_ranks=accused,
        root_cause=bool(accused),
        culprits=tuple(Culprit(rank) for rank in accused), blast_radius=0, next_steps=(ADVICE[cause.cause],),
        confidence="high" if cause.share >= CLEAR else "medium", about=() if accused else cause.ranks,
    )  # fmt: skip


def _what(told: WhatIf, cause: Gain) -> str:
    """The subject of the title."""
    if cause.cause == "worker":
        return f"{gain_noun(cause)} {'takes' if len(cause.ranks) == 1 else 'take'} longer than the others of the stage"
    if cause.cause == "stage":
        return f"stage {cause.stage} of {told.stages} takes longer on all its ranks, so nobody is to blame"
    if cause.cause == "sequence":
        return "micro batches take unequally long, by the lengths of their sequences, so nobody is to blame"
    if cause.cause == "link":
        return f"{gain_noun(cause).removeprefix('the ')} is slower than others of its kind"
    return f"{digits(100 * cause.share)} % of each step passes between operations"
