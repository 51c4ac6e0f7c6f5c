"""Questions of what would be gained, and findings on a trace of steps.

The headline of traces stays: what would be gained is asked about the ranks that it accuses.
"""

from __future__ import annotations

from dataclasses import replace

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Culprit, Evidence, Finding
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.whatif.gain_text import gain_line, gain_noun, part_text, slowdown_line, span
from rankscope.features.whatif.model import WHAT_IF_RESULTS, Gain, WhatIf
from rankscope.features.whatif.step_graph import CircleError
from rankscope.schema import Dataset
from rankscope.text.wording import digits, plural

CLEAR = 0.1
"""Part of a step from which what it loses is told by itself: the paper calls a job slow from a slowdown of 1.1."""
ASKED = ("healthy", "slow", "progressing", "unknown")
"""Statuses of jobs that make steps."""


def with_what_if(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with the answers, and with a finding of what makes steps longer; nothing for a job that stands."""
    dataset = facts.dataset
    if analysis.status not in ASKED or analysis.is_critical:
        return analysis
    try:
        told = _asked(facts, analysis)
    except CircleError as error:
        if not dataset.from_step_ops:
            return analysis
        return replace(analysis, status="unknown", verdict=f"a trace of steps that cannot be simulated: {error}")
    if told is None:
        return analysis
    analysis = WHAT_IF_RESULTS.put(analysis, told)
    if dataset.from_step_ops:
        return _of_steps(dataset, analysis, told)
    cause = told.cause
    if cause is None or cause.cause in ("worker", "link") or cause.share < CLEAR:
        return analysis
    finding = replace(_finding(told, cause), severity="info", id=f"f{len(analysis.findings) + 1}")
    return replace(analysis, findings=(*analysis.findings, finding))


def _asked(facts: Facts, analysis: Analysis) -> WhatIf | None:
    """The answers for the best of what was read; None if it does not tell times."""
    from rankscope.features.whatif.answers import answers

    dataset = facts.dataset
    if not dataset.step_ops.is_empty():
        from rankscope.features.whatif.pipeline_schedule import pipeline_schedule

        return answers(pipeline_schedule(dataset.step_ops), "step-trace")
    from rankscope.features.whatif.matched_schedule import matched_schedule
    from rankscope.features.whatif.recorded_calls import traced_calls, traced_kernels

    accused = tuple(sorted({rank for f in analysis.findings if f.kind == "straggler" for rank in f.culprit_ranks}))
    traces = TRACE_RESULTS.find(analysis)
    if traces is None or traces.matched.is_empty():
        return None
    calls, steps_known = traced_calls(dataset, traces)
    schedule = matched_schedule(calls, traced_kernels(dataset, traces, calls), steps_known=steps_known)
    return answers(schedule, "traces", accused, steps_known=steps_known) if schedule is not None else None


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
        title=title, explanation=_EXPLANATIONS[cause.cause], evidence=evidence, culprit_ranks=accused,
        root_cause=bool(accused),
        culprits=tuple(Culprit(rank) for rank in accused), blast_radius=0, next_steps=(_STEPS[cause.cause],),
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


_EXPLANATIONS = {
    "worker": "A simulated step keeps all else as recorded, and has these ranks compute as long as the others of their "
    "stage.",
    "stage": "A simulated step keeps all else as recorded, and gives all stages equally much to compute. Each rank of "
    "the stage takes as long, so no rank is the cause.",
    "sequence": "A simulated step keeps all else as recorded, and gives all micro batches equally much to compute. "
    "Times vary in forward and backward alike, and on no rank more than on others.",
    "link": "A simulated step keeps all else as recorded, and has these transfers take as long as "
    "others of their kind.",
    "launch": "A step is simulated in which each operation begins when all that it waits for has ended.",
}
_STEPS = {
    "worker": "Look at clocks, temperature and other processes of these ranks, and take their host out if it stays",
    "stage": "Move layers from the longest stage to others; the last has the loss, the first the embedding",
    "sequence": "Balance the sum of squared sequence lengths over ranks and micro batches when they are packed",
    "link": "Look at the network between these ranks: cables, routes, counters of errors",
    "launch": "Look at what the host does there: data loading, garbage collection, launches",
}
