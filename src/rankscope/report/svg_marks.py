"""Marks of static pictures as SVG elements: scales, axes, lines and text. Colours are classes of the page's style.

Every text goes through `shown` and every attribute through the library's escaping, so no text of a file acts as markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import htpy
from htpy import Element, Node

from rankscope.report.blocks import Picture
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import clipped

WIDTH = 860
"""Width of a picture in its own units; a page scales it."""
_LEAST_LOG = 30.0
"""Ratio of the largest to the smallest value from which on a scale is logarithmic."""
_MOST_DECIMALS = 9

group, circle, segment, box, curve = (Element(name) for name in ("g", "circle", "line", "rect", "path"))
_label, _hint = Element("text"), Element("title")


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a finite value; one outside lies on the edge."""
        inside = min(max(value, self.low), self.high)
        low, high, inside = (math.log(v) if self.is_log else v / 2 for v in (self.low, self.high, inside))
        return self.start + (self.end - self.start) * ((inside - low) / (high - low) if high > low else 0.5)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round values on the scale with their labels, at most about `most`."""
        return _decades(self.low, self.high, most) if self.is_log else _steps(self.low, self.high, most)


def scale_of(values: Sequence[float], start: float, end: float) -> Scale:
    """The scale that shows all finite `values`, logarithmic if they are positive and far apart."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if low > 0 and high / low >= _LEAST_LOG:
        return Scale(low, high, start, end, is_log=True)
    room = (high / 2 - low / 2) * 0.1 or abs(high) * 0.05 or 1.0
    return Scale(max(low - room, -1.7e308), min(high + room, 1.7e308), start, end)


def _decades(low: float, high: float, most: int) -> list[tuple[float, str]]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        return [(value, f"{value:.2g}") for value in (low, high)]
    step = -(-(last - first) // most) or 1
    return [(10.0**power, f"1e{power}") for power in range(first, last + 1, step)]


def _steps(low: float, high: float, most: int) -> list[tuple[float, str]]:
    rough = high / most - low / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    if not power or not math.isfinite(power):
        return [(low, f"{low:.3g}")]
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    values = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    size = max((abs(value) for value in values), default=0.0)
    decimals = min(_MOST_DECIMALS, max(0, -math.floor(math.log10(step) + 1e-9) + (step / power == 2.5)))
    return [(value, f"{value:,.{decimals}f}" if 1e-4 <= size < 1e7 else f"{value:.3g}") for value in values]


def shown(text: str) -> str:
    """Text of a file as a page may show it: on one line, without what is invisible, and without secrets."""
    return plain(hide(text))


def px(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def words(x: float, y: float, text: str, kind: str = "", most: int = 200, **attributes: Any) -> Node:
    """Text at a place, cut to `most` characters; `kind` names classes, "end" and "middle" among them align it."""
    whole = shown(text)
    short = clipped(whole, most)
    hint = _hint[whole] if short != whole else None
    return _label(x=px(x), y=px(y), class_=kind or None, **attributes)[hint, short]


def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Node:
    """A straight line."""
    return segment(x1=px(x1), y1=px(y1), x2=px(x2), y2=px(y2), class_=kind)


def area(x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> Node:
    """A rectangle, with words that a pointer on it shows."""
    content = _hint[shown(hint)] if hint else None
    return box(x=px(x), y=px(y), width=px(max(width, 0)), height=px(max(height, 0)), class_=kind)[content]


def dot(x: float, y: float, radius: float, kind: str, hint: str = "") -> Node:
    """A point, with words that a pointer on it shows."""
    return circle(cx=px(x), cy=px(y), r=px(radius), class_=kind)[_hint[shown(hint)] if hint else None]


def trace(points: Sequence[tuple[float, float] | None], kind: str) -> Node:
    """A line through points; None is a gap, and a point between two gaps is a dot."""
    parts, pen_down = list[str](), False
    for number, point in enumerate(points):
        if point is None:
            pen_down = False
            continue
        alone = not pen_down and (number + 1 == len(points) or points[number + 1] is None)
        parts.append(f"{'L' if pen_down else 'M'}{px(point[0])} {px(point[1])}{'h0' if alone else ''}")
        pen_down = True
    return curve(d="".join(parts), class_=kind) if parts else None


def x_axis(scale: Scale, y: float, name: str) -> Iterator[Node]:
    """The horizontal axis at `y`, with its name at its end."""
    yield rule(scale.start, y, scale.end, y, "axis")
    for value, label in scale.ticks(8):
        yield rule(scale.at(value), y, scale.at(value), y + 4, "axis")
        yield words(scale.at(value), y + 17, label, "middle soft")
    yield words(scale.end, y + 32, name, "end soft")


def y_axis(scale: Scale, left: float, right: float, most: int = 5) -> Iterator[Node]:
    """The labels of the vertical axis, with a line across for each."""
    for value, label in scale.ticks(most):
        yield rule(left, scale.at(value), right, scale.at(value), "grid")
        yield words(left - 6, scale.at(value) + 4, label, "end soft")


def figure(picture: Picture, number: int) -> Node:
    """The picture with its title, its words below it, and the same words for those who cannot see it."""
    title, caption, known = shown(picture.title), shown(picture.caption), f"picture-{number}"
    drawing = htpy.svg(
        viewBox=f"0 0 {WIDTH} {px(picture.height)}", role="img", aria_labelledby=f"{known}-title {known}-text"
    )
    return htpy.figure[
        htpy.h3[title],
        htpy.div(".wide")[
            drawing[_hint(id=f"{known}-title")[title], Element("desc")(id=f"{known}-text")[caption], picture.marks]
        ],
        htpy.figcaption[caption],
    ]
