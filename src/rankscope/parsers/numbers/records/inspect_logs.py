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
_HEAD = re.compile(rb"(?:[\d\-:, .T]{8,32} - )?[A-Z]{4,8} - (?P<name>\S.{0,500})")
_STEP = re.compile(rb"\d{1,12}")
_NAME = re.compile(r"(.+)_(activation|gradient|weight|output|wgrad|dgrad)_([a-z]\w*%?)$")
_SITES = {
    "activation": ("forward", "in0"), "output": ("forward", "out0"), "gradient": ("backward", "in0"),
    "dgrad": ("backward", "out0"), "weight": ("parameter", "in0"), "wgrad": ("gradient", "in0"),
}  # fmt: skip
LONGEST_LINE = 4096


def decode_inspect_log(data: bytes) -> NumbersContent:
    """The statistics of a log, those of one tensor and step in one row. Raises NotThisKindError without any."""
    rows, told = RecordRows(TOOL), dict[tuple[str, str, int], tuple[int, dict[str, float]]]()
    for number, line in enumerate(io.BytesIO(data), 1):
        parts = _parts(line)
        named = _NAME.fullmatch(parts[0]) if parts is not None else None
        if parts is None or named is None:
            rows.lost["lines without a statistic of a tensor"] += bool(line.strip())
            continue
        value, key = real(parts[2]), (named[1], named[2], parts[1])
        if value is not None and (key in told or len(told) < MOST_TENSORS):
            told.setdefault(key, (number, {}))[1][named[3]] = value
    if not told:
        raise NotThisKindError("a log of nvdlfw-inspect without a statistic of a tensor")
    for (layer, tensor, step), (number, values) in told.items():
        rows.add(number, name=layer, step=step, **_columns(tensor, values))
    return rows.content()


def _parts(line: bytes) -> tuple[str, int, str] | None:
    """Name, step and value of a line; None for any other line."""
    before, _, value = line[:LONGEST_LINE].rpartition(b"value=")
    head, _, step = before.rpartition(b"iteration=")
    named, told = _HEAD.fullmatch(head.strip()), _STEP.fullmatch(step.strip())
    if named is None or told is None:
        return None
    return named["name"].decode("utf-8", "replace"), int(told[0]), value.strip().decode("ascii", "replace")


MOST_TENSORS = 1 << 20
"""Most tensors and steps of a log."""


def _columns(tensor: str, values: dict[str, float]) -> dict[str, Any]:
    """The columns of the statistics of one tensor in one step."""
    site, slot = _SITES[tensor]
    low, high, mean, norm = (values.get(key) for key in ("min", "max", "mean", "l2_norm"))
    return {"site": site, "slot": slot, **statistics(low, high, mean, norm, None)}
