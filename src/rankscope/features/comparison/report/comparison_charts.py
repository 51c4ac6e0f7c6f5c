"""Charts of two runs: training series, ratios of durations, ranks by times, lanes where runs part, and heat maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from htpy import Node

from rankscope.features.comparison.rules.model import (
    HeatMap,
    LaneCell,
    LanePair,
    MapRow,
    RankDot,
    RankScatter,
    RunLine,
    SeriesPicture,
)
from rankscope.features.comparison.rules.series_comparison import LEAST_BASELINES, REAL, ROUNDING
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE, LEAST_STEPS, TimeRatio
from rankscope.report.blocks import Picture
from rankscope.report.svg_marks import (
    WIDTH,
    Scale,
    area,
    curve,
    dot,
    group,
    px,
    rule,
    scale_of,
    segment,
    trace,
    words,
    x_axis,
    y_axis,
)
from rankscope.text.wording import clipped, duration, plural, ranks_text, sentence

MOST_NAMED = 6
"""Most ranks that are named in a scatter plot."""
_LEFT, _RIGHT = 64, WIDTH - 28
_TOP, _VALUES_END, _GAP, _SIZES_END = 40.0, 220.0, 26, 330.0
_OUTLIER = 6
"""A rank stands apart if it is so many median distances from the middle."""


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
    for side, of_side in groupby(one.lines, _side):
        lines = list(of_side)
        columns = [
            [v for v in column if v is not None and math.isfinite(v)]
            for column in zip(*(line.values for line in lines), strict=True)
        ]
        ends = [(step, min(c), max(c)) for step, c in zip(one.steps, columns, strict=True) if c]
        if len(lines) > 1 and ends:
            outline = [(steps.at(step), values.at(low)) for step, low, _ in ends]
            outline += [(steps.at(step), values.at(high)) for step, _, high in reversed(ends)]
            path = "L".join(f"{px(x)} {px(y)}" for x, y in outline)
            yield curve(d=f"M{path}Z", class_=f"band {side}")


def _lines(picture: SeriesPicture, steps: Scale, values: Scale) -> Iterator[Node]:
    """A line for each run; a step that a run lacks is no gap, as runs may log at other steps."""
    for line in picture.lines:
        points = [
            (steps.at(step), values.at(value)) if math.isfinite(value) else None
            for step, value in zip(picture.steps, line.values, strict=True)
            if value is not None
        ]
        yield trace(points, f"line {_side(line)}{' thin' if len(picture.lines) > 2 else ''}")
    # crosses at the top for values that are no numbers, and the first step of each run that has some
    gaps = []
    for line in picture.lines:
        side = _side(line)
        odd = [
            step for step, v in zip(picture.steps, line.values, strict=True) if v is not None and not math.isfinite(v)
        ]
        for step in odd[:: max(1, len(odd) // 50)]:
            yield words(steps.at(step), _TOP + (-2 if side == "a" else 10), "\u00d7", f"middle {side}")
        gaps += [f"{line.label} from step {odd[0]} on"] if odd else []
    if gaps:
        yield words(_LEFT, 16, f"\u00d7 no number: {', '.join(gaps)}", "hot", 60)


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


def ratios_picture(times: Sequence[TimeRatio]) -> Picture | None:
    """Ratios of medians with their intervals, one in a row; None without any."""
    known = [ratio for ratio in times if math.isfinite(ratio.ratio) and ratio.ratio > 0]
    if not known:
        return None
    ends = [
        end for ratio in known for end in (ratio.ratio, ratio.low or ratio.ratio, ratio.high or ratio.ratio) if end > 0
    ]
    scale = Scale(max(min([*ends, 0.9]) * 0.98, 0.25), min(max([*ends, 1.1]) * 1.02, 4.0), 330, 640, is_log=True)
    bottom = 34.0 + 24 * len(known)
    inner = scale.at(1 - LEAST_CHANGE), scale.at(1 + LEAST_CHANGE)
    marks: list[Node] = [area(inner[0], 22, inner[1] - inner[0], bottom - 22, "calm")]
    marks += [words(scale.at(1), 14, "equal", "middle soft"), rule(scale.at(1), 22, scale.at(1), bottom, "first")]
    for number, ratio in enumerate(known):
        marks += _ratio_row(ratio, scale, 44.0 + 24 * number)
    marks += [words(scale.start, bottom + 18, f"\u2190 B faster, {scale.low:.2f}", "soft")]
    marks += [words(scale.end, bottom + 18, f"B slower, {scale.high:.2f} \u2192", "end soft")]
    apart = [ratio for ratio in known if ratio.stands_out]
    names = ", ".join(f"{ratio.name} ({ratio.ratio:.3f})" for ratio in apart[:4])
    outside = f"Outside: {names}." if apart else "None is outside."
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


def scatter_picture(scatter: RankScatter) -> Picture:
    """Each rank by its mean time in A and in B; on the diagonal nothing changed."""
    ends = [time for point in scatter.dots for time in (point.in_a, point.in_b)]
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
    apart = outliers(scatter.dots)
    named = apart[:MOST_NAMED]
    # one dot for a pixel: ranks are many
    drawn = {
        (round(common.at(point.in_a)), round(down.at(point.in_b))): point
        for point in scatter.dots
        if point not in named
    }
    marks += [
        dot(common.at(point.in_a), down.at(point.in_b), 3.5, "mark", f"rank {point.rank}") for point in drawn.values()
    ]
    marks += _named(named, common, down, left + size + 40)
    what = "mean time in a collective" if scatter.is_wait else "mean delay behind the middle of the peers"
    return Picture(f"Ranks: {what}, A and B", _scatter_caption(scatter, apart), bottom + 44, marks)


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


def _scatter_caption(scatter: RankScatter, apart: Sequence[RankDot]) -> str:
    ranks = sentence(ranks_text([point.rank for point in apart], 60))
    said = f"{ranks} changed otherwise than most." if apart else "No rank changed otherwise than most."
    if scatter.is_wait:
        how = "A rank that waits less than the others is the one that they wait for; below the line it waits less in B."
    else:
        how = "A rank above the line is later in B than in A, by the clocks of the hosts; no dump has durations."
    return f"{plural(len(scatter.dots), 'rank')}, over the collectives that both runs have. {said} {how}"


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


_LANES_LEFT = 26
_BOX, _ROW, _PAIR = 46, 52, 154
_CHARACTER = 6.0
"""Width of a character in a box."""


def lanes_picture(pairs: Sequence[LanePair]) -> Picture | None:
    """The operations of each rank in A and below them in B; None without any."""
    if not pairs:
        return None
    columns = max(len(one.in_a) for one in pairs)
    width = min(130.0, (WIDTH - _LANES_LEFT - 4) / max(columns, 1))
    marks: list[Node] = []
    for number, one in enumerate(pairs):
        marks += _pair(one, 38.0 + _PAIR * number, width)
    title = "Where they part: operations of A above those of B"
    return Picture(title, _lanes_caption(pairs), _PAIR * len(pairs) + 4, marks)


def _lanes_caption(pairs: Sequence[LanePair]) -> str:
    first = pairs[0]
    at = _parting(first)
    ours, theirs = (_cell_words(lane[at]) for lane in (first.in_a, first.in_b))
    return (
        f"{sentence(ranks_text(first.ranks, 60))} at operation {first.operation + at:,}: {ours} in A, {theirs} in B. "
        "A thick frame and \u2260 mark a difference, dashes a gap, and \u2026 an operation that did not end."
    )


def _parting(pair: LanePair) -> int:
    kinds = [{a.kind, b.kind} for a, b in zip(pair.in_a, pair.in_b, strict=False)]
    return next((place for place, kind in enumerate(kinds) if kind != {"equal"}), 0)


def _cell_words(cell: LaneCell) -> str:
    return "nothing" if cell.kind == "absent" else f"{cell.op} {cell.tensors} ({cell.place})".replace("  ", " ")


def _pair(one: LanePair, top: float, width: float) -> Iterator[Node]:
    at = _parting(one)
    yield words(0, top - 24, sentence(ranks_text(one.ranks, 60)), "strong")
    if at:
        yield words(_LANES_LEFT, top - 8, f"operation {one.operation:,}", "soft", 16)
    yield words(_LANES_LEFT + at * width, top - 8, "\u2193 here they part", "hot")
    for number, (label, lane) in enumerate((("A", one.in_a), ("B", one.in_b))):
        y = top + _ROW * number
        yield words(_LANES_LEFT - 8, y + 27, label, f"end strong {label.lower()}")
        for place, cell in enumerate(lane):
            yield _cell(cell, _LANES_LEFT + place * width, y, width - 5)
    if one.left_out:
        yield words(WIDTH - 4, top - 8, f"{plural(one.left_out, 'more operation')} not drawn", "end soft")


def _cell(cell: LaneCell, x: float, y: float, width: float) -> Node:
    """A box with operation, tensors and number; a difference and an open end are told by signs, too."""
    most = max(10, int(width / _CHARACTER))
    hint = "no operation" if cell.kind == "absent" else f"{_cell_words(cell)}{', did not end' if cell.is_open else ''}"
    frame = area(x, y, width, _BOX, f"op {cell.kind}{' open' if cell.is_open else ''}", hint)
    if cell.kind == "absent":
        return group[frame, words(x + width / 2, y + 28, "\u2013", "middle soft")]
    op = f"\u2260 {cell.op}" if cell.kind == "differs" else cell.op
    name, _, number = cell.place.rpartition(" #")
    place = f"{clipped(name, most - len(number) - 4)} #{number}" if name else ""
    return group[
        frame,
        words(x + 5, y + 14, op, "code strong", most),
        words(x + 5, y + 28, cell.tensors, "code", most),
        words(x + 5, y + 41, f"{place} \u2026" if cell.is_open else place, "code soft", most),
    ]


_KINDS = {
    "schedule": "Schedules: share of operations that differ, by rank and operation",
    "values": "Values: relative difference, by series and step",
    "times": "Times: B less A, by rank and collective",
}
_LEVELS = ((0.0, "equal"), *((end, f"\u2264 {end:g}") for end in (ROUNDING, 1e-5, REAL, 1e-3, 0.1)))
"""Upper ends of the classes of a relative difference."""
_SHARES = (
    (0.0, "equal"),
    (0.0, ""),
    (0.05, "\u2264 5 %"),
    (0.2, "\u2264 20 %"),
    (0.5, "\u2264 50 %"),
    (0.999, "< all"),
)
"""Upper ends of the classes of a share; the palest colour is left out, so that one operation among many shows."""
_MAP_LEFT, _MAP_RIGHT, _HEIGHT, _HEAD = 190, WIDTH - 14, 17, 12


def heat_picture(found: HeatMap) -> Picture:
    """The rows of a heat map, its axis and its legend."""
    largest = _usual(found)
    marks: list[Node] = []
    for number, row in enumerate(found.rows):
        y = _HEAD + _HEIGHT * number
        marks.append(words(_MAP_LEFT - 8, y + 12, row.label, "end", 28))
        marks += _row(row, found, largest, y)
    bottom = _HEAD + _HEIGHT * len(found.rows)
    noun = {"schedule": "operation", "values": "step", "times": "collective"}[found.kind]
    marks += [rule(_MAP_LEFT, bottom + 2, _MAP_RIGHT, bottom + 2, "axis")]
    marks += [words(_MAP_LEFT, bottom + 18, f"{noun} {found.first:,}", "soft")]
    marks += [words(_MAP_RIGHT, bottom + 18, f"{noun} {found.last:,}", "end soft")]
    marks += _map_legend(found, largest, bottom + 32)
    return Picture(_KINDS[found.kind], _heat_caption(found), bottom + 56, marks)


def _row(row: MapRow, found: HeatMap, largest: float, y: float) -> Iterator[Node]:
    """Neighbours of one class as one rectangle, with a sign where colour alone would not tell."""
    width = (_MAP_RIGHT - _MAP_LEFT) / len(row.cells)
    place = 0
    for kind, run in groupby(_class(cell, found, largest) for cell in row.cells):
        size = len(list(run))
        x = _MAP_LEFT + place * width
        if kind:
            yield area(x, y, size * width - 0.6, _HEIGHT - 1.5, kind)
        sign = {"less3": "\u2212", "odd": "!"}.get(kind)
        if sign:
            yield words(x + size * width / 2, y + 12, sign, "middle sign")
        place += size


def _class(cell: float | None, found: HeatMap, largest: float) -> str:
    """The class of a cell; "" is blank."""
    if cell is None or math.isnan(cell):
        return ""
    if math.isinf(cell):
        return "odd"
    if found.kind == "times":
        level = min(3, math.floor(abs(cell) / largest * 3.5)) if largest else 0
        return f"{'less' if cell < 0 else 'more'}{level}" if level else "q0"
    levels = _LEVELS if found.kind == "values" else _SHARES
    number = next((place for place, (end, _) in enumerate(levels) if cell <= end), len(levels))
    return f"q{number}" if number < len(levels) else "q6"


def _usual(found: HeatMap) -> float:
    """The size of a difference of times that gets the strongest colour: one of 20 is larger."""
    if found.kind != "times":
        return 1.0
    sizes = sorted(abs(cell) for row in found.rows for cell in row.cells if cell is not None and math.isfinite(cell))
    return sizes[int(0.95 * (len(sizes) - 1))] if sizes else 0.0


def _map_legend(found: HeatMap, largest: float, y: float) -> Iterator[Node]:
    if found.kind == "times":
        end = duration(round(largest * 1e9))
        between = [("less2", ""), ("less1", ""), ("q0", "0"), ("more1", ""), ("more2", "")]
        entries = [("less3", f"-{end}"), *between, ("more3", f"+{end}")]
    elif found.kind == "values":
        entries = [*_numbered(_LEVELS), ("q6", "> 0.1"), ("odd", "no number")]
    else:
        entries = [*_numbered(_SHARES), ("q6", "all")]
    x = float(_LANES_LEFT)
    for kind, name in entries:
        yield area(x, y, 14, 12, kind)
        yield words(x + 18, y + 11, name, "small soft")
        x += 28 + 7 * len(name)
    yield words(x, y + 11, "blank: not in both", "small soft")


def _numbered(levels: Sequence[tuple[float, str]]) -> Iterator[tuple[str, str]]:
    return ((f"q{place}", name) for place, (_, name) in enumerate(levels) if name)


def _heat_caption(found: HeatMap) -> str:
    noun = "series" if found.kind == "values" else "ranks"
    more = f" {found.left_out:,} more {noun} not drawn." if found.left_out else ""
    touched = [row.label for row in found.rows if any(cell for cell in row.cells)]
    if found.kind == "times":
        means = {row.label: [cell for cell in row.cells if cell is not None] for row in found.rows}
        most = max(means, key=lambda label: abs(sum(means[label]) / max(len(means[label]), 1)))
        change = sum(means[most]) / max(len(means[most]), 1)
        return (
            f"Blue with \u2212 means less in B, orange more. On average {most} changes most: "
            f"{'-' if change < 0 else '+'}{duration(round(abs(change) * 1e9))} for a collective.{more}"
        )
    names = "; ".join(touched[:4]) + (f" and {len(touched) - 4} more" if len(touched) > 4 else "")
    return f"Darker cells differ more. Rows with a difference: {names or 'none'}.{more}"
