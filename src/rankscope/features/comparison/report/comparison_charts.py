"""Charts of two runs on axes: training series, ratios of durations, and ranks by their times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from htpy import Node

from rankscope.features.comparison.rules.model import RankDot, RankScatter, RunLine, SeriesPicture
from rankscope.features.comparison.rules.series_comparison import LEAST_BASELINES, REAL, ROUNDING
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE, LEAST_STEPS, TimeRatio
from rankscope.report.blocks import Picture
from rankscope.report.svg_marks import (
    WIDTH,
    Scale,
    area,
    curve,
    dot,
    px,
    rule,
    scale_of,
    segment,
    trace,
    words,
    x_axis,
    y_axis,
)
from rankscope.text.wording import duration, plural, ranks_text, sentence

MOST_NAMED = 6
"""Most ranks that are named in a scatter plot."""
_LEFT, _RIGHT = 64, WIDTH - 28
_TOP, _VALUES_END, _GAP, _SIZES_END = 40.0, 220.0, 26, 330.0
_OUTLIER = 6
"""A rank stands apart if it is so many median distances from the middle."""


# Training series.


def series_picture(one: SeriesPicture) -> Picture:
    """The values of all runs by step, and below them how much they differ."""
    whose = f"{one.name}{f' of rank {one.rank}' if one.rank is not None else ''}"
    steps = Scale(one.steps[0], max(one.steps[-1], one.steps[0] + 1), _LEFT, _RIGHT)
    values = scale_of([value for line in one.lines for value in line.values if value is not None], _VALUES_END, _TOP)
    marks = [*y_axis(values, _LEFT, _RIGHT), *_bands(one, steps, values), *_lines(one, steps, values), *_legend(one)]
    end = _VALUES_END
    if one.first is not None:
        marks += _sizes(one, steps)
        end = _SIZES_END
        marks += _first_mark(steps.at(one.first), one.first, end)
    marks += x_axis(steps, end + 4, "step")
    scaled = ", logarithmic" if values.is_log else ""
    return Picture(f"{whose} by step{scaled}", _series_caption(one, whose), end + 42, marks)


def _series_caption(one: SeriesPicture, whose: str) -> str:
    thinned = f" {one.count:,} steps are thinned to {len(one.steps):,}." if one.count > len(one.steps) else ""
    if one.first is None:
        return f"{whose}: no difference between A and B in {plural(one.count, 'step')}.{thinned}"
    at = one.steps.index(one.first)
    sizes = [size for size in one.relative if size is not None and math.isfinite(size)]
    largest = f"; the largest relative difference is {max(sizes):.1e}" if sizes else ""
    a, b = (next(line for line in one.lines if line.label[0] == side) for side in "AB")
    several = sum(_side(line) == "a" for line in one.lines) >= LEAST_BASELINES
    how = "and stays out of twice the range of the baselines" if several else "by more than its printed digits"
    share = f"{100 * sum(one.differs) / len(one.differs):.0f} % of the steps that are drawn differ"
    return (
        f"{whose} differs first at step {one.first}: {_number(a.values[at])} in {a.label}, {_number(b.values[at])} in "
        f"{b.label}. {share}{largest}. The lower part has one point for each step that differs {how}.{thinned}"
    )


def _number(value: float | None) -> str:
    return "no value" if value is None else f"{value:.9g}"


def _side(line: RunLine) -> str:
    return "b" if line.label.startswith("B") else "a"


def _bands(one: SeriesPicture, steps: Scale, values: Scale) -> Iterator[Node]:
    """The range between the runs of a side, if it has several."""
    for side, group in groupby(one.lines, _side):
        lines = list(group)
        columns = [[v for v in column if v is not None and math.isfinite(v)] for column in _columns(lines)]
        ends = [(step, min(c), max(c)) for step, c in zip(one.steps, columns, strict=True) if c]
        if len(lines) > 1 and ends:
            outline = [(steps.at(step), values.at(low)) for step, low, _ in ends]
            outline += [(steps.at(step), values.at(high)) for step, _, high in reversed(ends)]
            path = "L".join(f"{px(x)} {px(y)}" for x, y in outline)
            yield curve(d=f"M{path}Z", class_=f"band {side}")


def _columns(lines: Sequence[RunLine]) -> Iterator[tuple[float | None, ...]]:
    return zip(*(line.values for line in lines), strict=True)


def _lines(one: SeriesPicture, steps: Scale, values: Scale) -> Iterator[Node]:
    """A line for each run; a step that a run lacks is no gap, as runs may log at other steps."""
    for line in one.lines:
        points = [
            (steps.at(step), values.at(value)) if math.isfinite(value) else None
            for step, value in zip(one.steps, line.values, strict=True)
            if value is not None
        ]
        yield trace(points, f"line {_side(line)}{' thin' if len(one.lines) > 2 else ''}")
    yield from _no_numbers(one, steps)


def _no_numbers(one: SeriesPicture, steps: Scale) -> Iterator[Node]:
    """Crosses at the top for values that are no numbers, and the first step of each run that has some."""
    told = []
    for line in one.lines:
        side = _side(line)
        odd = [step for step, v in zip(one.steps, line.values, strict=True) if v is not None and not math.isfinite(v)]
        for step in odd[:: max(1, len(odd) // 50)]:
            yield words(steps.at(step), _TOP + (-2 if side == "a" else 10), "\u00d7", f"middle {side}")
        told += [f"{line.label} from step {odd[0]} on"] if odd else []
    if told:
        yield words(_LEFT, 16, f"\u00d7 no number: {', '.join(told)}", "hot", 60)


def _legend(one: SeriesPicture) -> Iterator[Node]:
    x = float(_RIGHT)
    for line in reversed(one.lines[:12]):
        yield words(x, 16, line.label, "end strong")
        yield segment(x1=px(x - 54), y1="12", x2=px(x - 22), y2="12", class_=f"line {_side(line)}")
        x -= 74


def _first_mark(x: float, step: int, end: float) -> Iterator[Node]:
    """The line at the first step that differs."""
    yield rule(x, _TOP - 6, x, end + 4, "first")
    is_right = x > WIDTH / 2
    kind = "end strong" if is_right else "strong"
    yield words(x + (-6 if is_right else 6), _TOP + 4, f"first difference: step {step}", kind)


def _sizes(one: SeriesPicture, steps: Scale) -> Iterator[Node]:
    """The relative difference of each step that differs, on a logarithmic scale with the limits of its kinds."""
    sized = [(s, r) for s, r, d in zip(one.steps, one.relative, one.differs, strict=True) if d and r is not None]
    finite = [size for _, size in sized if math.isfinite(size) and size > 0]
    low, high = min([ROUNDING / 5, *finite]), max([REAL * 10, *finite])
    scale = Scale(low, high, _SIZES_END - 6, _VALUES_END + _GAP + 10, is_log=True)
    yield words(_LEFT, _VALUES_END + _GAP, "relative difference |A - B| / |A|", "soft")
    yield from y_axis(scale, _LEFT, _RIGHT, 4)
    for limit, name in ((ROUNDING, "rounding ends here"), (REAL, "real changes begin here")):
        yield rule(_LEFT, scale.at(limit), _RIGHT, scale.at(limit), "limit")
        yield words(_RIGHT, scale.at(limit) - 3, name, "end small soft")
    for step, size in sized:
        if math.isfinite(size):
            yield dot(steps.at(step), scale.at(max(size, low)), 2, "mark")
        else:
            yield words(steps.at(step), scale.end, "\u00d7", "middle hot")


# Ratios of durations.


def ratios_picture(times: Sequence[TimeRatio]) -> Picture | None:
    """Ratios of medians with their intervals, one in a row; None without any."""
    known = [one for one in times if math.isfinite(one.ratio) and one.ratio > 0]
    if not known:
        return None
    ends = [end for one in known for end in (one.ratio, one.low or one.ratio, one.high or one.ratio) if end > 0]
    scale = Scale(max(min([*ends, 0.9]) * 0.98, 0.25), min(max([*ends, 1.1]) * 1.02, 4.0), 330, 640, is_log=True)
    bottom = 34.0 + 24 * len(known)
    inner = scale.at(1 - LEAST_CHANGE), scale.at(1 + LEAST_CHANGE)
    marks: list[Node] = [area(inner[0], 22, inner[1] - inner[0], bottom - 22, "calm")]
    marks += [words(scale.at(1), 14, "equal", "middle soft"), rule(scale.at(1), 22, scale.at(1), bottom, "first")]
    for number, one in enumerate(known):
        marks += _ratio_row(one, scale, 44.0 + 24 * number)
    marks += [words(scale.start, bottom + 18, f"\u2190 B faster, {scale.low:.2f}", "soft")]
    marks += [words(scale.end, bottom + 18, f"B slower, {scale.high:.2f} \u2192", "end soft")]
    apart = [one for one in known if one.stands_out]
    found = ", ".join(f"{one.name} ({one.ratio:.3f})" for one in apart[:4])
    outside = f"Outside: {found}." if apart else "None is outside."
    caption = (
        f"Median times of B divided by those of A, with a line for the 95 % interval within these two runs, from "
        f"{LEAST_STEPS} values on. Two runs of one setting differ by themselves: a change below "
        f"{100 * LEAST_CHANGE:.0f} %, the grey band, does not count. {outside}"
    )
    return Picture("Durations: B / A", caption, bottom + 28, marks)


def _ratio_row(one: TimeRatio, scale: Scale, y: float) -> Iterator[Node]:
    kind = "hot" if one.stands_out else "mark"
    yield words(4, y, one.name, "strong" if one.stands_out else "", 46)
    if one.low is not None and one.high is not None:
        yield rule(scale.at(one.low), y - 4, scale.at(one.high), y - 4, f"whisker {kind}")
    yield dot(scale.at(one.ratio), y - 4, 4, kind if one.low is not None else f"hollow {kind}")
    a, b = (duration(round(seconds * 1e9)) for seconds in (one.median_a, one.median_b))
    yield words(scale.end + 14, y, f"{one.ratio:.3f}", "strong")
    yield words(WIDTH - 4, y, f"{a} \u2192 {b}", "end soft")


# Ranks by their times.


def scatter_picture(found: RankScatter) -> Picture:
    """Each rank by its mean time in A and in B; on the diagonal nothing changed."""
    ends = [time for one in found.dots for time in (one.in_a, one.in_b)]
    bottom, left, size = 400.0, 90, 380
    common = scale_of(ends, left, left + size)
    down = Scale(common.low, common.high, bottom, bottom - size, common.is_log)
    marks: list[Node] = [rule(left, bottom, left + size, bottom - size, "first")]
    for value, _ in common.ticks(5):
        unit, factor = ("ms", 1e3) if abs(value) >= 1e-3 else ("us", 1e6)
        time = f"{value * factor:.4g} {unit}" if value else "0"
        marks.append(words(common.at(value), bottom + 17, time, "middle soft"))
        marks.append(words(left - 6, down.at(value) + 4, time, "end soft"))
    marks += [rule(left, bottom, left + size, bottom, "axis"), rule(left, bottom, left, bottom - size, "axis")]
    marks.append(words(left + size, bottom + 34, "in A", "end strong"))
    marks.append(words(left + 8, bottom - size + 8, "in B", "strong"))
    apart = outliers(found.dots)
    named = apart[:MOST_NAMED]
    # one dot for a pixel: ranks are many
    drawn = {(round(common.at(one.in_a)), round(down.at(one.in_b))): one for one in found.dots if one not in named}
    marks += [dot(common.at(one.in_a), down.at(one.in_b), 3.5, "mark", f"rank {one.rank}") for one in drawn.values()]
    marks += _named(named, common, down, left + size + 40)
    what = "mean time in a collective" if found.is_wait else "mean delay behind the middle of the peers"
    return Picture(f"Ranks: {what}, A and B", _scatter_caption(found, apart), bottom + 44, marks)


def _named(dots: Sequence[RankDot], across: Scale, down: Scale, x: float) -> Iterator[Node]:
    """The ranks that stand apart, with a line from each to its name."""
    ordered = sorted(dots, key=lambda one: down.at(one.in_b))
    for number, one in enumerate(ordered):
        y = 60.0 + 44 * number
        yield rule(across.at(one.in_a), down.at(one.in_b), x - 6, y - 4, "grid")
        yield dot(across.at(one.in_a), down.at(one.in_b), 4.5, "hot", f"rank {one.rank}")
        yield words(x, y, f"rank {one.rank}", "strong")
        a, b = (_signed(seconds) for seconds in (one.in_a, one.in_b))
        yield words(x, y + 16, f"{a} in A, {b} in B", "soft")


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else ''}{duration(round(abs(seconds) * 1e9))}"


def _scatter_caption(found: RankScatter, apart: Sequence[RankDot]) -> str:
    ranks = sentence(ranks_text([one.rank for one in apart], 60))
    said = f"{ranks} changed otherwise than most." if apart else "No rank changed otherwise than most."
    if found.is_wait:
        how = "A rank that waits less than the others is the one that they wait for; below the line it waits less in B."
    else:
        how = "A rank above the line is later in B than in A, by the clocks of the hosts; no dump has durations."
    return f"{plural(len(found.dots), 'rank')}, over the collectives that both runs have. {said} {how}"


def outliers(dots: Sequence[RankDot]) -> list[RankDot]:
    """Ranks whose change from A to B is far from the median change, the farthest first."""
    if len(dots) < 3:
        return []
    middle = median(one.in_b - one.in_a for one in dots)
    usual = median(abs(one.in_b - one.in_a - middle) for one in dots)
    level = max(abs(one.in_a) for one in dots) * LEAST_CHANGE
    limit = max(_OUTLIER * usual, level)
    apart = [one for one in dots if abs(one.in_b - one.in_a - middle) > limit]
    return sorted(apart, key=lambda one: -abs(one.in_b - one.in_a - middle))
