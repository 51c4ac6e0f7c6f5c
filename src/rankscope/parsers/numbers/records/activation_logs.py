"""Logs of torchtitan's numerics tool, "rank_3_activations.log": a block for each operation of one step.

"[layers.0.wq/op_3_mm]", then indented "Shape: [2, 3]", "L2 norm: 1.234560e+00", "Min", "Max", "Mean", "Output hash",
"Input hashes", "Location: file:line in f" and "Phase". Hashes are L1 norms, as DebugMode of torch computes them.
"""

from __future__ import annotations

import io
import re
from typing import Any

from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.numbers.model import NumbersContent
from rankscope.parsers.numbers.records.record_rows import (
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
)
from rankscope.parsers.safe_values import safe_text

TOOL = "torchtitan"
_BLOCK = re.compile(r"/op_\d{1,9}_[^/\]]{1,400}\]$")
_FIELD = re.compile(r"  ([A-Z][\w ]{1,20}): (.*)")
_NUMBER = re.compile(r"\d{1,15}")
_HASH = re.compile(r"-?(?:\d[\d.]*(?:e[+\-]?\d{1,4})?|nan|inf)", re.IGNORECASE)
_PLACE = re.compile(r"(.{1,1024}?):(\d{1,9})(?: in (\S{1,256}))?")
LONGEST_LINE = 4096
MOST_INPUTS = 64
"""Most inputs of an operation whose hashes are kept."""


def decode_activation_log(data: bytes) -> NumbersContent:
    """The operations of a log. Raises NotThisKindError without any."""
    rows, stacks = RecordRows(TOOL), dict[int, StackFrame]()
    name, begin, fields = "", 0, dict[str, str]()
    for number, raw in enumerate(io.BytesIO(data), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n") if len(raw) <= LONGEST_LINE else ""
        if line.startswith("[") and _BLOCK.search(line) is not None:
            _add(rows, stacks, name, begin, fields)
            name, begin, fields = line[1:-1], number, {}
        elif name and (found := _FIELD.fullmatch(line)) is not None:
            fields[found[1]] = found[2]
    _add(rows, stacks, name, begin, fields)
    content = rows.content(stacks=stacks)
    if not content.rows:
        raise NotThisKindError("a log of torchtitan's activations that holds no operation")
    return content


def _add(rows: RecordRows, stacks: dict[int, StackFrame], name: str, line: int, fields: dict[str, str]) -> None:
    """Adds the inputs and the output of one operation."""
    if not name:
        return
    told: dict[str, Any] = {
        "name": name, "site": "backward" if fields.get("Phase", "").strip() == "backward" else "forward",
        "stack_id": line,
    }  # fmt: skip
    place = _PLACE.match(fields.get("Location", ""))
    if place is not None:
        stacks[line] = StackFrame(safe_text(place[3]) or "", safe_text(place[1]) or "", int(place[2]))
    for number, text in enumerate(_HASH.findall(fields.get("Input hashes", ""))[:MOST_INPUTS]):
        rows.add(line, **told, slot=f"in{number}", **hash_columns(text))
    shape = sizes_of([int(n) for n in _NUMBER.findall(fields.get("Shape", ""))]) if "Shape" in fields else None
    count = count_of(shape)
    low, high, mean, norm = (real(fields.get(key)) for key in ("Min", "Max", "Mean", "L2 norm"))
    hashes = _HASH.findall(fields.get("Output hash", ""))
    told |= {"slot": "out0", "shape": shape, "numel": count, "dtype": short_dtype(fields.get("Dtype"))}
    own = statistics(low, high, mean, norm, count)
    text = hashes[0] if len(hashes) == 1 else None
    rows.add(line, **told, **(own | ({} if low is not None or text is None else hash_columns(text)) | _mark(text)))


def hash_columns(text: str) -> dict[str, Any]:
    """Columns of a printed L1 norm: one that is not finite says that a value is not."""
    value = real(text)
    return _mark(text) | ({"sum": value} if value is not None and value - value != 0 else {})


def _mark(text: str | None) -> dict[str, str]:
    return {} if text is None else {"md5": f"l1:{text[:40]}"}
