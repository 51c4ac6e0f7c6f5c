"""Statistics logs of nvidia-dlfw-inspect, which Transformer Engine uses: a line for each statistic, four decimals.

"INFO - decoder.layers.0.fc1_activation_max <spaces or tabs> iteration=000002 <spaces or tabs> value=4.3188", with a
time before it if asked. A value may be reduced over a group, and is rounded: only its trend is told.
"""

from __future__ import annotations

import io
import re
from typing import Any

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.numbers.model import NumbersContent
from rankscope.parsers.numbers.records.record_rows import RecordRows, real, statistics

TOOL = "nvdlfw-inspect"
_LINE = re.compile(
    rb"(?:[\d\-:, .T]{8,32} - )?[A-Z]{4,8} - (?P<name>\S.{0,400}?)\s{1,200}iteration=(?P<step>\d{1,12})\s{1,200}"
    rb"value=(?P<value>-?[\w.+\-]{1,40})\s{0,40}"
)
_NAME = re.compile(r"(.+)_(activation|gradient|weight|output|wgrad|dgrad)_([a-z]\w*%?)$")
_SITES = {
    "activation": ("forward", "in0"), "output": ("forward", "out0"), "gradient": ("backward", "in0"),
    "dgrad": ("backward", "out0"), "weight": ("parameter", "in0"), "wgrad": ("gradient", "in0"),
}  # fmt: skip
LONGEST_LINE = 4096


def looks_like_inspect_log(head: bytes) -> bool:
    """Whether the first line of a file with these first bytes is a statistic."""
    return _LINE.match(head.lstrip()) is not None


def decode_inspect_log(data: bytes) -> NumbersContent:
    """The statistics of a log, those of one tensor and step in one row. Raises NotThisKindError without any."""
    rows, told = RecordRows(TOOL), dict[tuple[str, str, int], tuple[int, dict[str, float]]]()
    for number, line in enumerate(io.BytesIO(data), 1):
        match = _LINE.fullmatch(line.rstrip()) if len(line) <= LONGEST_LINE else None
        named = _NAME.fullmatch(match["name"].decode("utf-8", "replace")) if match is not None else None
        if match is None or named is None:
            rows.lost["lines without a statistic of a tensor"] += bool(line.strip())
            continue
        value = real(match["value"].decode("ascii", "replace"))
        key = named[1], named[2], int(match["step"])
        if value is not None and (key in told or len(told) < MOST_TENSORS):
            told.setdefault(key, (number, {}))[1][named[3]] = value
    if not told:
        raise NotThisKindError("a log of nvdlfw-inspect without a statistic of a tensor")
    for (layer, tensor, step), (number, values) in told.items():
        rows.add(number, name=layer, step=step, **_columns(tensor, values))
    return rows.content()


MOST_TENSORS = 1 << 20
"""Most tensors and steps of a log."""


def _columns(tensor: str, values: dict[str, float]) -> dict[str, Any]:
    """The columns of the statistics of one tensor in one step."""
    site, slot = _SITES[tensor]
    low, high, mean, norm = (values.get(key) for key in ("min", "max", "mean", "l2_norm"))
    return {"site": site, "slot": slot, **statistics(low, high, mean, norm, None)}
