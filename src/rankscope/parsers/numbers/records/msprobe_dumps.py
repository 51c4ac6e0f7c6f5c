"""dump.json of msprobe: statistics of the inputs and outputs of modules and operations, in the order of the program.

Names, in both orders of the last two parts: "Module.layers.0.Linear.forward.0", "Functional.conv2d.0.forward",
"Distributed.all_reduce.0.forward", "Module.layers.0.Linear.parameters_grad".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.numbers.model import NumbersContent
from rankscope.parsers.numbers.records.msprobe_collectives import MOST_DEPTH, GroupCalls
from rankscope.parsers.numbers.records.record_rows import (
    UNSET,
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
)

TOOL = "msprobe"
_NOT_FINITE = re.compile(rb"(?<=[:\[,\s])(-?(?:NaN|Infinity))(?=\s*[,}\]])")
_NAME = re.compile(r"(.+)\.(?:(forward|backward)\.(\d{1,9})|(\d{1,9})\.(forward|backward))$")
_GRADIENTS = ".parameters_grad"
_WRITES = re.compile(r"(?:fill|zero|copy|normal|uniform|random|set|trunc_normal|constant)_$|^__setitem__$")
"""Operations that overwrite their first input, of which the old values mean nothing."""
_HASH = re.compile(r"[0-9a-fA-F]{8}|[0-9a-fA-F]{32}")
LARGEST_CALL = 16 << 20
"""Bytes of the largest entry that is read."""


class DumpDocument(msgspec.Struct):
    """The whole file; entries are read one by one."""

    data: dict[str, msgspec.Raw]
    task: str = ""
    level: str = ""


_DECODER = msgspec.json.Decoder(DumpDocument)
_INVALID = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def decode_dump_document(data: bytes) -> NumbersContent:
    """The tensors of a dump.json. Raises NotThisKindError for a file that is cut off, or holds something else."""
    if b"NaN" in data or b"Infinity" in data:
        data = _NOT_FINITE.sub(rb'"\1"', data)
    try:
        document = _DECODER.decode(data)
    except _INVALID as error:
        raise NotThisKindError(f"a dump.json of msprobe that cannot be read, or is cut off: {error}") from error
    rows, calls, groups = RecordRows(TOOL), [], GroupCalls()
    for number, (name, raw, line) in enumerate(_entries(data, document)):
        calls.append(name)
        _add_entry(rows, groups, CallEntry(name, line, number), raw)
        if rows.is_full:
            break
    return rows.content(groups.groups.values(), calls)


class CallEntry(NamedTuple):
    """Name of an entry, its line in the file, and its number, by which its stack is found."""

    name: str
    line: int
    number: int


def _entries(data: bytes, document: DumpDocument) -> Iterator[tuple[str, msgspec.Raw, int]]:
    """Names, contents and lines of the entries, in their order; after a name with escapes the line stays the last one:
    each search for one reads the whole file."""
    at, line = 0, 1
    for name, raw in document.data.items():
        found = data.find(b'"' + name.encode("utf-8", "replace") + b'"', at) if at >= 0 else -1
        if found < 0:
            at = -1
        else:
            line += data.count(b"\n", at, found)
            at = found
        yield name, raw, line


def _add_entry(rows: RecordRows, groups: GroupCalls, entry: CallEntry, raw: msgspec.Raw) -> None:
    """Adds the tensors of one entry."""
    try:
        record = msgspec.json.decode(raw) if len(memoryview(raw)) <= LARGEST_CALL else None
    except _INVALID:
        record = None
    if not isinstance(record, dict):
        rows.lost["entries that cannot be read"] += 1
        return
    told: dict[str, Any] = {"stack_id": entry.number}
    if record.get("is_recompute") is True:
        told["recompute"] = True
    if entry.name.endswith(_GRADIENTS):
        module = _module(entry.name.removesuffix(_GRADIENTS))
        for key, found in _tensors({key: _first(one) for key, one in record.items()}):
            _add(rows, entry, found, told | {"site": "gradient", "name": f"{module}.{key}", "slot": "in0"})
        return
    match = _NAME.fullmatch(entry.name)
    if match is None:
        rows.lost["entries with a name of another form"] += 1
        return
    kind, _, api = match[1].partition(".")
    told["occurrence"] = min(int(match[3] or match[4]), (1 << 31) - 1)
    if kind == "Distributed":
        for tensor, columns in groups.rows(api, record):
            _add(rows, entry, tensor, told | columns)
    elif kind in ("Module", "Cell"):
        _add_parameters(rows, entry, _module(match[1]), record, told)
        _add_flow(rows, entry, record, told | {"name": _module(match[1]), "site": match[2] or match[5]})
    elif not UNSET.search(api):
        _add_flow(rows, entry, record, told | {"name": match[1], "site": match[2] or match[5]}, _WRITES.search(api))


def _module(name: str) -> str:
    """The dotted name of a module, without "Module." and its class: "layers.0" of "Module.layers.0.Linear"."""
    return name.partition(".")[2].rpartition(".")[0]


def _add_parameters(
    rows: RecordRows, entry: CallEntry, module: str, record: dict[str, Any], told: dict[str, Any]
) -> None:
    """Adds the parameters that a module holds before its forward pass."""
    for key, found in _tensors(record.get("parameters")):
        name = f"{module}.{key}"
        _add(rows, entry, found, told | {"site": "parameter", "name": name, "slot": "in0"})


def _add_flow(
    rows: RecordRows, entry: CallEntry, record: dict[str, Any], told: dict[str, Any], writes: object = None
) -> None:
    """Adds inputs, then outputs; the backward pass has no arguments by name."""
    for key, slot in (("input_args", "in"), ("input_kwargs", "in_"), ("input", "in"), ("output", "out")):
        for place, found in _tensors(record.get(key)):
            if not writes or slot == "out":
                _add(rows, entry, found, told | {"slot": slot + place})


def _tensors(value: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tensors in nested lists and mappings, each with its place: "0", "0.1", "mask"."""
    if isinstance(value, dict) and "shape" in value and "dtype" in value:
        yield "0", value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        if isinstance(one, dict) and "shape" in one and "dtype" in one:
            yield str(key), one
        elif isinstance(one, dict | list) and depth < MOST_DEPTH:
            yield from ((f"{key}.{place}", found) for place, found in _tensors(one, depth + 1))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _add(rows: RecordRows, entry: CallEntry, tensor: dict[str, Any], told: dict[str, Any]) -> None:
    """Adds a tensor with its statistics."""
    shape = sizes_of(tensor.get("shape"))
    count = count_of(shape)
    low, high, mean, norm = (real(tensor.get(key)) for key in ("Min", "Max", "Mean", "Norm"))
    rows.add(
        entry.line, **told, dtype=short_dtype(tensor.get("dtype")), shape=shape, numel=count, md5=_mark(tensor),
        **statistics(low, high, mean, norm, count),
    )  # fmt: skip


def _mark(tensor: dict[str, Any]) -> str | None:
    """The tool's hash with its kind before it: "crc32:0a1b2c3d". Its key is "md5" for both kinds."""
    for key in ("md5", "xor"):
        text = tensor.get(key)
        if isinstance(text, str) and key == "xor" and 0 < len(text) <= 64:
            return f"xor:{text}"
        if isinstance(text, str) and _HASH.fullmatch(text):
            return f"{'crc32' if len(text) == 8 else 'md5'}:{text.lower()}"
    return None
