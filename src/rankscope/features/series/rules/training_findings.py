"""Findings on the steps that a trainer printed, and the verdict where nothing else is wrong. They accuse no rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.features.series.read.training_lines import OVERFLOW
from rankscope.features.series.rules.model import TRAINING_RESULTS, PrintedSeries, SeriesBreak, TrainingResults
from rankscope.features.series.rules.series_breaks import WINDOW, printed_series, printer_of, series_breaks
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.wording import plural

WORDS = {
    "loss": "loss", "grad_norm": "gradient norm", "lr": "learning rate", "loss_scale": "loss scale",
    "step_s": "step time", "skipped": "skipped steps", "nans": "iterations that are nan",
    OVERFLOW: "loss scale after an overflow",
}  # fmt: skip
PRINTS_BEFORE, PRINTS_SINCE = 3, 2
"""Prints around a break that stand as evidence."""
RISEN = 5.0
"""A gradient norm that is so many times its usual value before a break has risen."""
UNSEEN = "a log of steps shows neither which rank a value comes from nor whether the job went on behind its last line"


def with_training(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with findings on the steps; they lead it where nothing else is known to be wrong."""
    dataset = facts.dataset
    series = tuple(printed_series(dataset.training))
    results = TrainingResults(series, tuple(series_breaks(series)))
    known = TRAINING_RESULTS.put(analysis, results)
    leads = not any(finding.severity == "critical" for finding in analysis.findings)
    writer = _StepWriter(dataset, results)
    told = [replace(finding, id=f"f{len(analysis.findings) + at}") for at, finding in enumerate(writer.findings(), 1)]
    if not leads:
        # what ended the job is known: broken values stand beside it
        told = [replace(f, severity="warning" if f.severity == "critical" else f.severity) for f in told]
        return replace(known, findings=(*analysis.findings, *told))
    worst = next((finding for finding in told if finding.severity != "info"), None)
    if worst is not None and (worst.severity == "critical" or not _is_warned(analysis)):
        first = replace(worst, root_cause=worst.severity == "critical")
        rest = (*analysis.findings, *(finding for finding in told if finding is not worst))
        status = FINDINGS[worst.kind].status_alone
        return replace(known, status=status, verdict=worst.title, findings=(first, *rest))
    known = replace(known, findings=(*analysis.findings, *told))
    if analysis.status == "unknown" and dataset.from_logs and dataset.ops.is_empty() and not _is_warned(analysis):
        noted = next((finding.title for finding in told if finding.kind == "values-not-finite"), "")
        seen = f"; {noted}, nothing else wrong seen" if noted else ", nothing wrong seen"
        return replace(known, verdict=f"{steps_text(results)}{seen}; {UNSEEN}")
    return known


def _is_warned(analysis: Analysis) -> bool:
    return any(finding.severity == "warning" for finding in analysis.findings)


def steps_text(results: TrainingResults) -> str:
    """The steps of a job in words: "120 steps (1 to 120)"."""
    longest = results.longest
    steps = np.unique(longest.steps[np.isfinite(longest.steps)])
    if not steps.size:
        return plural(longest.values.size, "printed step")
    low, high = int(steps[0]), int(steps[-1])
    what = "step" if steps.size == high - low + 1 else "printed step"
    return f"{plural(steps.size, what)} ({low:,}{f' to {high:,}' if high > low else ''})"


def number_text(value: float) -> str:
    """A value as a trainer prints it, in four digits; "nan" and "inf" for those that are not finite."""
    return f"{value:.4g}"


def _step(broken: SeriesBreak) -> int | None:
    step = broken.series.steps[broken.at]
    return int(step) if np.isfinite(step) else None


@dataclass(frozen=True)
class _StepWriter:
    dataset: Dataset
    results: TrainingResults

    def findings(self) -> Iterator[Finding]:
        """One finding of each kind of break: the first in the log, with what else broke as evidence."""
        by_kind: dict[str, list[SeriesBreak]] = {}
        for broken in self.results.breaks:
            by_kind.setdefault(broken.kind, []).append(broken)
        lost = by_kind.get("not-finite", [])
        if lost:
            yield self._not_finite(lost)
        if "skipping" in by_kind:
            yield self._skipping(by_kind["skipping"][0])
        if "jump" in by_kind:
            yield self._jump(by_kind["jump"][0])
        if "slower" in by_kind:
            yield self._slower(by_kind["slower"][0])
        passing = by_kind.get("passing", [])
        if passing:
            yield self._passing(passing, bool(lost))

    def _not_finite(self, breaks: Sequence[SeriesBreak]) -> Finding:
        order = ("loss", "grad_norm")
        named = [broken for broken in breaks if broken.series.name in order]
        first = min(named or breaks, key=lambda broken: order.index(broken.series.name) if named else 0)
        series, at = first.series, first.at
        what, value = self._what(series), number_text(first.after)
        finite = np.flatnonzero(np.isfinite(series.values[:at]))
        since = f"from its first print on ({series.place(0)})"
        if finite.size:
            last = int(finite[-1])
            since = f"from {series.place(at)} on ({number_text(float(series.values[last]))} at {series.place(last)})"
        beside = self._loss_beside(first) if series.name == "grad_norm" else ""
        told = [*self._causes(first), *self._others(breaks, first)]
        return Finding(
            kind="loss-not-finite", severity="critical", title=f"{what} is {value} {since}{beside}",
            explanation=" ".join([
                *([f"None of the {plural(series.values.size - at, 'print')} since then is finite."]
                  if not np.isfinite(series.values[at:]).any() else []),
                *told, "A log of steps does not show in which module, or on which rank, it began.",
            ]),
            confidence="high", evidence=tuple(self._around(first)), step=_step(first),
        )  # fmt: skip

    def _passing(self, breaks: Sequence[SeriesBreak], is_lost: bool) -> Finding:
        said = []
        for broken in breaks[:WINDOW]:
            series = broken.series
            span = series.place(broken.at)
            last = series.place(broken.end - 1)
            until = "" if last == span else f" to {last}"
            back = ", and finite again behind it" if broken.end < series.values.size else ""
            said.append(f"{self._what(series)} is {number_text(broken.after)} at {span}{until}{back}.")
        first = breaks[0]
        # what is not finite up to the last print may stay so
        at_end = first.end == first.series.values.size and first.series.name == "grad_norm"
        serious = not is_lost and (
            at_end or any(broken.series.name == "loss" and np.isfinite(broken.before) for broken in breaks)
        )
        bad = int((~np.isfinite(first.series.values)).sum())
        among = f", in {bad} of {first.series.values.size} prints" if bad > 1 else ""
        among += ", the last among them" if at_end else ""
        return Finding(
            kind="values-not-finite",
            severity="warning" if serious else "info",
            title=f"{self._what(first.series)} is {number_text(first.after)} at {first.series.place(first.at)}{among}",
            explanation=" ".join(text[:1].upper() + text[1:] for text in said)
            + " A scaler of losses, or a batch that is left out, makes single ones.",
            confidence="high",
            evidence=tuple(self._around(first)),
        )

    def _jump(self, broken: SeriesBreak) -> Finding:
        series, at = broken.series, broken.at
        return Finding(
            kind="loss-jump",
            severity="warning",
            title=f"{self._what(series)} jumps at {series.place(at)} from {number_text(broken.before)} to "
            f"{number_text(float(series.values[at]))} and does not come back ({number_text(broken.after)} since)",
            explanation=" ".join(
                [
                    f"None of the {series.values.size - at:,} values since is as low as those of the {WINDOW} prints "
                    f"before.",
                    *self._causes(broken),
                ]
            ),
            confidence="medium",
            confidence_reasons=("another mix of data raises a loss, too",),
            step=_step(broken),
            evidence=tuple(self._around(broken)),
        )

    def _slower(self, broken: SeriesBreak) -> Finding:
        series, at = broken.series, broken.at
        times = broken.after / broken.before
        return Finding(
            kind="steps-slower",
            severity="warning",
            title=f"steps take {number_text(broken.after)} s since {series.place(at)}, {number_text(broken.before)} s "
            f"before ({times:.1f} times as long)",
            explanation="The log does not show which rank is late: one slow rank makes all steps longer.",
            confidence="medium",
            confidence_reasons=("longer sequences or another batch size take longer, too",),
            evidence=tuple(self._around(broken)),
        )

    def _skipping(self, broken: SeriesBreak) -> Finding:
        series, at = broken.series, broken.at
        what = "iterations are nan" if series.name == "nans" else "steps are skipped"
        title = f"{what} in every print since {series.place(at)}"
        if series.name == OVERFLOW:
            title = (
                "gradients overflow again and again up to the end of the log, and each of these steps is skipped: the "
                f"loss scale {'is' if broken.before == broken.after else f'fell from {number_text(broken.before)} to'} "
                f"{number_text(broken.after)}"
            )
        return Finding(
            kind="steps-skipped",
            severity="warning",
            title=title,
            explanation=" ".join(["The model does not change in a step that is skipped.", *self._causes(broken)]),
            confidence="high",
            evidence=tuple(self._around(broken)),
        )

    @cached_property
    def _paths(self) -> dict[int, str]:
        """The path of each file, by its row of `files`."""
        return dict(self.dataset.files.select("file", "path").iter_rows())

    @cached_property
    def _beside(self) -> dict[tuple[int, int | None], list[PrintedSeries]]:
        """The series of each printer."""
        printers: dict[tuple[int, int | None], list[PrintedSeries]] = {}
        for series in self.results.series:
            printers.setdefault(printer_of(series), []).append(series)
        return printers

    def _of(self, broken: SeriesBreak, name: str) -> tuple[PrintedSeries, int] | None:
        """The series of a name beside a break, and the number of its values in front of the print that broke."""
        for series in self._beside[printer_of(broken.series)]:
            if series.name == name:
                return series, int(np.searchsorted(series.lines, broken.series.lines[broken.at]))
        return None

    def _what(self, series: PrintedSeries) -> str:
        """The quantity in words; of two of one name, as it is printed."""
        word = WORDS.get(series.name)
        alike = [other for other in self._beside[printer_of(series)] if other.name == series.name]
        return f"the {word}" if word and len(alike) == 1 else series.raw_name

    def _loss_beside(self, broken: SeriesBreak) -> str:
        loss = self._of(broken, "loss")
        if loss is None:
            return ""
        values = loss[0].values[loss[1] :]
        if values.size and (values == 0).all():
            return ", beside a loss of 0"
        return ", while the loss is finite" if values.size and np.isfinite(values).all() else ""

    def _causes(self, broken: SeriesBreak) -> Iterator[str]:
        """Sentences on the gradients, scales and rates around a break."""
        norm = self._of(broken, "grad_norm")
        if norm is not None and broken.series.name == "loss":
            yield from self._norm_before(*norm)
        scale = self._of(broken, "loss_scale") or self._of(broken, OVERFLOW)
        if scale is not None and scale[1] > 1:
            window = scale[0].values[max(0, scale[1] - WINDOW) : scale[1] + 1]
            if window[-1] < window[0]:
                fall = f"from {number_text(window[0])} to {number_text(window[-1])}"
                yield f"The loss scale fell {fall} in the prints before."
        overflows = self._of(broken, OVERFLOW)
        if overflows is not None:
            yield f"The log tells of {plural(overflows[0].values.size, 'overflow')} with a skipped step."
        rate = self._of(broken, "lr")
        if rate is not None and rate[1] < rate[0].values.size and broken.kind != "slower":
            now = float(rate[0].values[rate[1]])
            trend = ""
            if rate[1] > 0 and now > float(rate[0].values[rate[1] - 1]):
                trend = ", and was still rising"
            yield f"The learning rate was {number_text(now)}{trend}."
        loss = self._of(broken, "loss")
        later = loss[0].values[loss[1] :] if loss is not None else np.empty(0)
        if broken.series.name == "grad_norm" and later.size and (later == 0).all():
            yield "Transformers' Trainer prints 0 for a loss that is nan (logging_nan_inf_filter)."

    @staticmethod
    def _norm_before(norm: PrintedSeries, before: int) -> Iterator[str]:
        window = norm.values[max(0, before - WINDOW) : before]
        lost = np.flatnonzero(~np.isfinite(window))
        if lost.size:
            place = norm.place(max(0, before - WINDOW) + int(lost[0]))
            yield f"The gradient norm was {number_text(window[lost[0]])} before that, at {place}."
        elif window.size > 1:
            usual, last = float(np.median(window[:-1])), float(window[-1])
            if last > RISEN * usual > 0:
                rise = f"from {number_text(usual)} to {number_text(last)}"
                yield f"The gradient norm had risen {rise} in the print before."

    def _others(self, breaks: Sequence[SeriesBreak], first: SeriesBreak) -> Iterator[str]:
        others = [broken for broken in breaks if printer_of(broken.series) != printer_of(first.series)]
        printers = sorted({broken.series.printer for broken in others if broken.series.printer is not None})
        if printers:
            yield f"So it is in the lines of {plural(len(printers), 'more process')}."

    def _around(self, broken: SeriesBreak) -> Iterator[Evidence]:
        """The prints around a break, with all that is known of each."""
        series = broken.series
        path = self._paths.get(series.file)
        for at in range(max(0, broken.at - PRINTS_BEFORE), min(series.values.size, broken.at + PRINTS_SINCE)):
            low = int(series.lines[at - 1]) if at else -1
            parts = []
            order = list(WORDS)
            for other in sorted(
                self._beside[printer_of(series)],
                key=lambda other: order.index(other.name) if other.name in order else len(order),
            ):
                places = np.flatnonzero((other.lines > low) & (other.lines <= series.lines[at]))
                if not places.size or (other.name in ("skipped", "nans") and not other.values[places[-1]]):
                    continue
                if other.name in WORDS or other is series:
                    parts.append(f"{self._what(other).removeprefix('the ')} {number_text(other.values[places[-1]])}")
            yield Evidence(f"{series.place(at)}: {', '.join(parts)}", file=path, line=int(series.lines[at]))
