"""Summaries of tensors in texts of torchtitan's numerics tool, of torch's DebugMode and of nvidia-dlfw-inspect.

"[layers.0.wq/op_3_mm]", then indented "Shape: [2, 3]", "L2 norm: 1.234560e+00", "Min", "Max", "Mean", "Output hash",
"Input hashes", "Location: file:line in f" and "Phase". Hashes are L1 norms, as DebugMode of torch computes them.

"aten::mm(t: f32[2, 3], t: f32[3, 4])  ->  t: f32[2, 4]  # {'input_hash': ((6.0, 2.5), {}), 'hash': 13.9}". Modules
stand as "[nn.Mod] Net.fc" above what they call, which is indented deeper; "# File: f:3 in g, code: ..." is the line of
Python. Hashes are L1 norms in float64, or those of torch.hash_tensor, which are integers.

"INFO - decoder.layers.0.fc1_activation_max <spaces or tabs> iteration=000002 <spaces or tabs> value=4.3188", with a
time before it if asked. A value may be reduced over a group, and is rounded: only its trend is told.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rankscope.features.numbers.read.model import NumbersContent
from rankscope.features.numbers.read.records.record_rows import (
    UNSET,
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
)
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import safe_text

TORCHTITAN = "torchtitan"
_BLOCK = re.compile(r"/op_\d{1,9}_[^/\]]{1,400}\]$")
_FIELD = re.compile(r"  ([A-Z][\w ]{1,20}): (.*)")
_NUMBER = re.compile(r"\d{1,15}")
_HASH = re.compile(r"-?(?:\d[\d.]*(?:e[+\-]?\d{1,4})?|nan|inf)", re.IGNORECASE)
_LOCATION = re.compile(r"(.{1,1024}?):(\d{1,9})(?: in (\S{1,256}))?")
LONGEST_LOG_LINE = 4096
MOST_INPUTS = 64
"""Most inputs of an operation whose hashes are kept."""


def decode_activation_log(data: bytes) -> NumbersContent:
    """The operations of a log. Raises NotThisKindError without any."""
    rows, stacks = RecordRows(TORCHTITAN), dict[int, StackFrame]()
    name, begin, fields = "", 0, dict[str, str]()
    for number, raw in enumerate(io.BytesIO(data), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n") if len(raw) <= LONGEST_LOG_LINE else ""
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
    facts: dict[str, Any] = {
        "name": name,
        "site": "backward" if fields.get("Phase", "").strip() == "backward" else "forward",
        "stack_id": line,
    }
    place = _LOCATION.match(fields.get("Location", ""))
    if place is not None:
        stacks[line] = StackFrame(safe_text(place[3]) or "", safe_text(place[1]) or "", int(place[2]))
    for number, text in enumerate(_HASH.findall(fields.get("Input hashes", ""))[:MOST_INPUTS]):
        rows.add(line, **facts, slot=f"in{number}", **hash_columns(text))
    shape = sizes_of([int(n) for n in _NUMBER.findall(fields.get("Shape", ""))]) if "Shape" in fields else None
    count = count_of(shape)
    low, high, mean, norm = (real(fields.get(key)) for key in ("Min", "Max", "Mean", "L2 norm"))
    hashes = _HASH.findall(fields.get("Output hash", ""))
    facts |= {"slot": "out0", "shape": shape, "numel": count, "dtype": short_dtype(fields.get("Dtype"))}
    summary = statistics(low, high, mean, norm, count)
    text = hashes[0] if len(hashes) == 1 else None
    rows.add(line, **facts, **(summary | ({} if low is not None or text is None else hash_columns(text)) | _mark(text)))


def hash_columns(text: str) -> dict[str, Any]:
    """Columns of a printed L1 norm: one that is not finite says that a value is not."""
    value = real(text)
    return _mark(text) | ({"sum": value} if value is not None and value - value != 0 else {})


def _mark(text: str | None) -> dict[str, str]:
    return {} if text is None else {"md5": f"l1:{text[:40]}"}


DEBUG_MODE = "DebugMode"
_TENSOR = re.compile(r"(?<![\w.])(?:dt|ft|t)(?:\$\d{1,12})?: ([a-z]\w{0,16})\[([\d, ]{0,200})\]")
_CALL = re.compile(r"(\s*)([A-Za-z_]\w{0,60}::[\w.]{1,200})\((.*)")
_MODULE = re.compile(r"(\s*)\[nn\.Mod\] (\S.{0,400})")
_PLACE = re.compile(r"\s*# File: (.{1,1024}?):(\d{1,9}) in ([\w.<>]{1,256}), code:")
_TOKEN = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[+\-]?\d{1,4})?|\d+e[+\-]?\d{1,4}|nan|inf|\d+)(?![\w.])")
LONGEST_TEXT_LINE = 1 << 16
MOST_TENSORS = 256
"""Most tensors of one operation."""
OPS = {
    "allreduce_": "all_reduce", "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "allgather_": "all_gather",
    "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather", "broadcast_": "broadcast",
    "broadcast": "broadcast", "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "alltoall_": "all_to_all", "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
}  # fmt: skip
"""Names of operations of torch.distributed, by the name of torch's dispatcher."""


def decode_debug_text(data: bytes) -> NumbersContent:
    """The operations of a text. Raises NotThisKindError without any."""
    rows, stacks, counts = RecordRows(DEBUG_MODE), dict[int, StackFrame](), Counter[str]()
    modules: list[tuple[int, str]] = []
    place = 0
    for number, raw in enumerate(io.BytesIO(data), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n") if len(raw) <= LONGEST_TEXT_LINE else ""
        if (called := _CALL.match(line)) is not None:
            while modules and modules[-1][0] >= len(called[1]):
                modules.pop()
            name = f"{modules[-1][1]}/{called[2]}" if modules else called[2]
            columns = {"name": name, "occurrence": counts[name], "stack_id": place or None}
            counts[name] += 1
            _add_call(rows, number, called[2], called[3], columns)
        elif (module := _MODULE.match(line)) is not None:
            modules = [outer for outer in modules if outer[0] < len(module[1])] + [(len(module[1]), module[2])]
        elif (frame := _PLACE.match(line)) is not None:
            place = number
            stacks[number] = StackFrame(safe_text(frame[3]) or "", safe_text(frame[1]) or "", int(frame[2]))
    content = rows.content(stacks=stacks)
    if not content.rows:
        raise NotThisKindError("a text of DebugMode that holds no tensor")
    return content


def _add_call(rows: RecordRows, line: int, op: str, rest: str, columns: dict[str, Any]) -> None:
    """Adds the inputs and outputs of one operation."""
    if UNSET.search(op):
        return
    call, _, log = rest.partition("  # {")
    before, _, after = call.partition("  ->  ")
    inside, _, hashes_out = log.rpartition("'hash': ")
    library, _, word = op.partition("::")
    if library in ("c10d", "_c10d_functional") and (known := OPS.get(word.partition(".")[0])) is not None:
        columns = columns | {"site": "collective", "op": known, "name": ""}
    else:
        columns = columns | {"site": "forward"}
    for slot, text, hashes in (("in", before, inside), ("out", after, hashes_out)):
        tensors = _TENSOR.findall(text)[:MOST_TENSORS]
        marks = list(_marks(hashes, len(tensors)))
        for number, (dtype, sizes) in enumerate(tensors):
            shape = sizes_of([int(n) for n in re.findall(r"\d{1,15}", sizes)])
            mark = hash_columns(marks[number][1]) if marks and marks[number][0] == "l1" else {}
            hash_column = mark or ({"md5": f"xor:{marks[number][1]}"} if marks else {})
            rows.add(
                line, **columns, slot=f"{slot}{number}", dtype=dtype, shape=shape, numel=count_of(shape), **hash_column
            )


def _marks(text: str, count: int) -> Iterator[tuple[str, str]]:
    """The kind and text of a hash for each of `count` tensors; none where it cannot be told which is whose.

    Numbers with a point are norms, those without are of torch.hash_tensor; with both kinds the exact one is taken, but
    for a norm that is not finite.
    """
    tokens = _TOKEN.findall(text)
    whole = [one for one in tokens if one.lstrip("-").isdigit()]
    norms = [one for one in tokens if not one.lstrip("-").isdigit()]
    for number in range(count):
        norm = norms[number] if len(norms) == count else None
        if norm is not None and (len(whole) != count or norm.lstrip("-") in ("nan", "inf")):
            yield "l1", norm
        elif len(whole) == count:
            yield "xor", whole[number]
        else:
            return


INSPECT = "nvdlfw-inspect"
_HEAD = re.compile(rb"(?:[\d\-:, .T]{8,32} - )?[A-Z]{4,8} - (?P<name>\S.{0,500})")
_STEP = re.compile(rb"\d{1,12}")
_NAME = re.compile(r"(.+)_(activation|gradient|weight|output|wgrad|dgrad)_([a-z]\w*%?)$")
_SITES = {
    "activation": ("forward", "in0"),
    "output": ("forward", "out0"),
    "gradient": ("backward", "in0"),
    "dgrad": ("backward", "out0"),
    "weight": ("parameter", "in0"),
    "wgrad": ("gradient", "in0"),
}


def decode_inspect_log(data: bytes) -> NumbersContent:
    """The statistics of a log, those of one tensor and step in one row. Raises NotThisKindError without any."""
    rows, statistics_of = RecordRows(INSPECT), dict[tuple[str, str, int], tuple[int, dict[str, float]]]()
    for number, line in enumerate(io.BytesIO(data), 1):
        parts = _parts(line)
        named = _NAME.fullmatch(parts[0]) if parts is not None else None
        if parts is None or named is None:
            rows.lost["lines without a statistic of a tensor"] += bool(line.strip())
            continue
        value, key = real(parts[2]), (named[1], named[2], parts[1])
        if value is not None and (key in statistics_of or len(statistics_of) < MOST_STATISTICS):
            statistics_of.setdefault(key, (number, {}))[1][named[3]] = value
    if not statistics_of:
        raise NotThisKindError("a log of nvdlfw-inspect without a statistic of a tensor")
    for (layer, tensor, step), (number, values) in statistics_of.items():
        site, slot = _SITES[tensor]
        low, high, mean, norm = (values.get(key) for key in ("min", "max", "mean", "l2_norm"))
        printed = statistics(low, high, mean, norm, None)
        rows.add(number, name=layer, step=step, site=site, slot=slot, **printed)
    return rows.content()


def _parts(line: bytes) -> tuple[str, int, str] | None:
    """Name, step and value of a line; None for any other line."""
    before, _, value = line[:LONGEST_LOG_LINE].rpartition(b"value=")
    head, _, step = before.rpartition(b"iteration=")
    named, step_match = _HEAD.fullmatch(head.strip()), _STEP.fullmatch(step.strip())
    if named is None or step_match is None:
        return None
    return named["name"].decode("utf-8", "replace"), int(step_match[0]), value.strip().decode("ascii", "replace")


MOST_STATISTICS = 1 << 20
"""Most tensors and steps of a log."""
