"""Decoder of flame graphs, the default output of `py-spy record`: samples by the boxes of a picture.

    <g><title>step (train.py:7) (85 samples, 85.00%)</title><rect x="15.0000%" y="84" ... fg:x="15" fg:w="85"/>

A box stands above or below the box of its caller, within its width. Boxes too narrow to be drawn are lost: their
samples count for the call that made them. `flamegraph.pl` writes x and width in pixels, and no `fg:x`.
Source: inferno's src/flamegraph/mod.rs, flamegraph.pl, and pictures that py-spy 0.4 made.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from rankscope.parsers.contents import NotThisKindError

MOST_BOXES = 200_000
_BOX = re.compile(
    r"<title>(?P<name>[^<]{1,4000}?) \((?P<count>[\d,]{1,15}) (?:samples?|us|ms|µs)[^<)]{0,40}\)</title>\s*"
    r"<rect (?P<rect>[^>]{1,600})>"
)
_VALUE = re.compile(r'(?:^|\s)(fg:x|fg:w|x|y|width)="([\d.]{1,20})')
_SLACK = 0.2
"""Pixels, or hundredths of the width, by which a rounded box may stand out of its caller's."""


class _FlameBox(NamedTuple):
    name: str
    times: int
    left: float
    width: float
    depth: float


def looks_like_flame_graph(head: bytes) -> bool:
    """Whether the first bytes begin a picture that may be a flame graph."""
    start = head[:4096].lstrip()
    return start.startswith((b"<?xml", b"<svg", b"<!DOCTYPE svg")) and (b"<svg" in start or b"<!DOCTYPE svg" in start)


def flame_stacks(data: bytes) -> Iterator[tuple[list[str], int]]:
    """The stacks of a flame graph: names of calls, outermost first, and how often the stack was seen.

    Raises NotThisKindError for another picture.
    """
    text = data.decode("utf-8", "replace")
    boxes = list(_boxes(text))
    if not boxes:
        raise NotThisKindError("a picture that is no flame graph: take py-spy dump of each rank instead")
    root = max(boxes, key=lambda box: (box.width, box.name == "all"))
    # the root is at the top, or at the bottom
    sign = 1 if sum(box.depth > root.depth for box in boxes) * 2 >= len(boxes) - 1 else -1
    ordered = sorted(boxes, key=lambda box: (sign * box.depth, box.left))
    levels: dict[float, list[_FlameBox]] = {}
    for box in ordered:
        levels.setdefault(sign * box.depth, []).append(box)
    rows = list(levels.values())
    yield from _below(rows, 0, rows[0], [])


def _below(
    rows: list[list[_FlameBox]], level: int, boxes: list[_FlameBox], path: list[str]
) -> Iterator[tuple[list[str], int]]:
    """The stacks of boxes that stand side by side, and of those in them."""
    waiting = [(level, box, path) for box in reversed(boxes)]
    while waiting:
        at, box, above = waiting.pop()
        here = above if at == 0 and box.name == "all" else [*above, html.unescape(box.name)]
        inner = [
            other
            for other in (rows[at + 1] if at + 1 < len(rows) else ())
            if box.left - _SLACK <= other.left and other.left + other.width <= box.left + box.width + _SLACK
            and other.width > 0
        ]  # fmt: skip
        rest = box.times - sum(other.times for other in inner)
        if here and rest > 0:
            yield here, rest
        waiting += [(at + 1, other, here) for other in reversed(inner)]


def _boxes(text: str) -> Iterator[_FlameBox]:
    for number, found in enumerate(_BOX.finditer(text)):
        if number >= MOST_BOXES:
            return
        values = {name: float(value) for name, value in _VALUE.findall(found["rect"]) if value.count(".") <= 1}
        if "y" in values and values.keys() & {"fg:w", "width"}:
            left, width = values.get("fg:x", values.get("x", 0.0)), values.get("fg:w", values.get("width", 0.0))
            yield _FlameBox(found["name"], int(found["count"].replace(",", "")), left, width, values["y"])
