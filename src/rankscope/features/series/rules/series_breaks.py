"""Places at which a series of training breaks: values that are not finite, a loss that jumps, steps that take longer.

The rules must be silent on healthy runs: warm-up, spikes that recover, rows of an evaluation between those of the
training, restarts, losses of several processes in one log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from rankscope.features.series.read.line_recipes import MEAN
from rankscope.features.series.read.training_lines import OVERFLOW
from rankscope.features.series.rules.model import Lines, PrintedSeries, SeriesBreak, Values

WINDOW = 10
"""Values before a place that say what was usual there."""
FEWEST_AFTER = 5
"""Fewest values behind a jump that show that the loss does not come back."""
JUMP_SPREADS, JUMP_SHARE = 8.0, 0.5
"""A jump is larger than so many usual deviations, and than this share of the usual value."""
FEWEST_TIMES, SLOWER = 20, 1.4
"""Fewest step times to judge, and how much longer steps take that became slow."""
LEAST_STRIDE_NS = 10 * 1_000_000_000
"""Least time between two prints, so that seconds as printed are exact enough."""
FEWEST_SKIPPED = 5
"""Fewest prints in a row with skipped steps in each."""
SMALL_SCALE = 64.0
"""A loss scale that is so small is of no use any more: a scaler that works keeps thousands."""
STUCK = 0.5
"""Share of values that are not finite since the first one, from which on a series is lost."""
FEWEST_NORMS = 3
"""Fewest gradient norms in a row that are not finite, up to the end: a scaler of losses skips one now and then."""
_OF_TRAINING = re.compile(r"loss|norm|nll|perplexity|ppl", re.IGNORECASE)
_OF_EVALUATION = re.compile(r"(?:\b|_)(?:e?val(?:id(?:ation)?)?|test)[ _/.]", re.IGNORECASE)
_OF_POLICY = re.compile(
    r"reward|advantage|clip_?frac|clip_ratio|\bkl\b|ppo|grpo|pg_loss|policy|actor|critic|discriminator|loss_?[dg]\b",
    re.IGNORECASE,
)
"""Names in the prints of reinforcement learning and of adversaries, whose losses have no usual value."""
_SPREAD = 1.4826
"""Standard deviation of a normal distribution, in median deviations."""


def printed_series(training: pl.DataFrame) -> Iterator[PrintedSeries]:
    """The series of a table `training`, in the order of their first lines."""
    for _, rows in training.group_by("file", "printer", "raw_name", maintain_order=True):
        segments = rows["segment"].to_numpy()
        yield PrintedSeries(
            file=rows["file"][0],
            printer=rows["printer"][0],
            rank=rows["rank"][0],
            name=rows["name"][0],
            raw_name=rows["raw_name"][0],
            steps=rows["step"].cast(pl.Float64).fill_null(float("nan")).to_numpy(),
            values=rows["value"].to_numpy(),
            lines=rows["line"].to_numpy(),
            times_ns=rows["time_ns"].fill_null(0).to_numpy(),
            restarts=int(segments[-1]),
            since=int((segments == segments[-1]).argmax()),
        )


def series_breaks(series: Sequence[PrintedSeries]) -> list[SeriesBreak]:
    """All breaks of the series of a job: those of one kind together, each by its line."""
    by_policy = {printer_of(part) for part in series if _OF_POLICY.search(part.raw_name)}
    timed = {printer_of(part) for part in series if part.name == "step_s"}
    ends = {printer_of(part): int(part.lines[-1]) for part in sorted(series, key=lambda part: int(part.lines[-1]))}
    breaks: list[SeriesBreak | None] = []
    for part in series:
        losses = [other for other in series if other.name == "loss" and printer_of(other) == printer_of(part)]
        lost = _not_finite(part, ends[printer_of(part)], part.raw_name == "loss" and len(losses) > 1)
        breaks.append(lost)
        if part.name == "loss" and lost is None and printer_of(part) not in by_policy:
            breaks.append(_jump(part))
        if part.name == "loss" and printer_of(part) not in timed:
            breaks.append(_slower_by_clock(part))
        if part.name in ("skipped", "nans"):
            breaks.append(_skipping(part))
        if part.name == OVERFLOW:
            breaks.append(_overflowing(part, ends[printer_of(part)]))
        if part.name == "step_s":
            breaks.append(_slower(part, part.values[part.since :], np.arange(part.since, part.values.size)))
    return sorted(
        (broken for broken in breaks if broken is not None),
        key=lambda broken: (_ORDER.index(broken.kind), int(broken.series.lines[broken.at])),
    )


_ORDER = ("not-finite", "skipping", "jump", "slower", "passing")


def printer_of(series: PrintedSeries) -> tuple[int, int | None]:
    """The file and the number in front of its lines: series of one printer belong together."""
    return series.file, series.printer


def _not_finite(series: PrintedSeries, end_line: int, is_beside: bool) -> SeriesBreak | None:
    """Where a loss or norm is not finite any more; where it was so for a time, that.

    `end_line` is the line of the last print. `is_beside`: it is the mean that a progress bar of Lightning shows beside
    a loss, and which is nan where a program optimizes by hand.
    """
    known = series.name == "grad_norm" or "loss" in series.raw_name.lower()
    if series.name == "loss_scale" or not (known or _OF_TRAINING.search(series.raw_name)):
        return None
    bad = ~np.isfinite(series.values)
    if not bad.any():
        return None
    first, count = int(bad.argmax()), bad.size
    end = count - int(bad[::-1].argmax())
    start = first
    if known and bad[first:].mean() < STUCK:
        # it came back, and was lost again
        start = end - int((~bad[:end])[::-1].argmax())
    finite = np.flatnonzero(~bad[:start])
    before = float(series.values[finite[-1]]) if known and finite.size else float("nan")
    if series.name == "grad_norm":
        lost = end == count and (count - start >= FEWEST_NORMS or bool(bad.all()))
    else:
        # of a norm with another name only the values that are not finite are known
        lost = end == count and (known or int(series.lines[-1]) == end_line)
    # a mean keeps what one value in it left behind
    lost = lost and not series.raw_name.endswith(MEAN)
    if lost and not _OF_EVALUATION.search(series.raw_name) and not (is_beside and bad.all()):
        return SeriesBreak("not-finite", series, start, count, before, float(series.values[start]))
    return SeriesBreak("passing", series, first, end, before, float(series.values[first]))


def _jump(series: PrintedSeries) -> SeriesBreak | None:
    """The first value from which on a loss stays far above what was usual before."""
    values = series.values[series.since :]
    if values.size < WINDOW + FEWEST_AFTER or (values <= 0).any():
        return None
    least_after = np.minimum.accumulate(values[::-1])[::-1]
    for at in range(WINDOW, values.size - FEWEST_AFTER + 1):
        window = values[at - WINDOW : at]
        usual = float(np.median(window))
        spread = _SPREAD * float(np.median(np.abs(window - usual)))
        limit = usual + max(JUMP_SPREADS * spread, JUMP_SHARE * usual)
        if values[at] > limit and least_after[at] > float(window.max()):
            since = float(np.median(values[at:]))
            if since > limit:
                return SeriesBreak("jump", series, series.since + at, series.values.size, usual, since)
    return None


def _skipping(series: PrintedSeries) -> SeriesBreak | None:
    """The first of the prints up to the end that each tell of skipped steps or of iterations that are nan."""
    values = series.values
    # DeepSpeed counts all since the start, Megatron those since the last print
    grows = series.raw_name.lower() == "skipped"
    skipped = np.diff(values, prepend=0.0) > 0 if grows else values > 0
    if not skipped.size or not skipped[-1]:
        return None
    run = int((~skipped)[::-1].argmax()) if not skipped.all() else skipped.size
    at = skipped.size - run
    if series.name == "skipped" and (run < FEWEST_SKIPPED or not _all_skipped(series, at, grows)):
        return None
    return SeriesBreak("skipping", series, at, skipped.size, 0.0, float(values[-1]))


def _overflowing(series: PrintedSeries, end_line: int) -> SeriesBreak | None:
    """The first of the overflows up to the end of the log, after which hardly any loss scale is left.

    A scaler begins with a scale that is far too large: then it skips a few steps, and finds the right one.
    """
    if series.values.size < FEWEST_SKIPPED or series.values[-1] > SMALL_SCALE:
        return None
    gaps = np.diff(np.append(series.lines, end_line))
    if gaps[-1] > gaps[:-1].max():
        return None
    at = series.values.size - FEWEST_SKIPPED
    while at and gaps[at - 1] <= 2 * np.median(gaps[at:]) + 1 and series.values[at - 1] >= series.values[at]:
        at -= 1
    return SeriesBreak("skipping", series, at, series.values.size, float(series.values[at]), float(series.values[-1]))


def _all_skipped(series: PrintedSeries, at: int, grows: bool) -> bool:
    """Whether most steps since a print were skipped, and not one now and then."""
    steps = np.diff(series.steps[max(0, at - 1) :])
    counts = np.diff(series.values[max(0, at - 1) :]) if grows else series.values[max(1, at) :]
    return bool(steps.size and counts.size and np.nansum(counts) >= STUCK * np.nansum(steps) > 0)


def _slower_by_clock(series: PrintedSeries) -> SeriesBreak | None:
    """As `_slower`, by the times at which a series without step times was printed."""
    clock, of_step = series.times_ns[series.since :], series.steps[series.since :]
    if clock.size < FEWEST_TIMES or (clock == 0).any() or not np.isfinite(of_step).all():
        return None
    gaps = np.diff(clock)
    usual = float(np.median(gaps))
    if usual <= 0 or (gaps < 0).any():
        return None
    stride = max(1, int(np.ceil(LEAST_STRIDE_NS / usual)))
    places = np.arange(0, clock.size, stride)
    passed, steps = np.diff(clock[places]), np.diff(of_step[places])
    if (steps <= 0).any():
        return None
    return _slower(series, passed / 1e9 / steps, series.since + places[1:])


def _slower(series: PrintedSeries, times: Values, places: Lines) -> SeriesBreak | None:
    """The first step from which on most take far longer than the first third did; `places` are those of `times`."""
    if times.size < FEWEST_TIMES or not np.isfinite(times).all() or (times <= 0).any():
        return None
    early = times[2 : max(WINDOW, times.size // 3)]
    usual = float(np.median(early))
    spread = _SPREAD * float(np.median(np.abs(early - usual)))
    limit = max(SLOWER * usual, usual + JUMP_SPREADS * spread)
    if float(np.median(times[-FEWEST_AFTER:])) <= limit:
        return None
    slow = times > limit
    # the share of slow ones from each place on
    shares = np.cumsum(slow[::-1])[::-1] / np.arange(times.size, 0, -1)
    starts = np.flatnonzero(slow & (shares >= 0.8))
    starts = starts[starts <= times.size - FEWEST_AFTER]
    if not starts.size:
        return None
    at = int(starts[0])
    return SeriesBreak("slower", series, int(places[at]), series.values.size, usual, float(np.median(times[at:])))
