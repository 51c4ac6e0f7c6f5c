"""How durations, times, sizes, groups and ranks are written on the screen; one place for all of it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, tzinfo
from functools import lru_cache
from itertools import groupby
from math import prod

import orjson

from rankscope.analysis.model import GroupRef
from rankscope.report.escape import plain as escaped
from rankscope.report.words import group_name
from rankscope.schema import Group
from rankscope.tui.lane_folding import rank_label

LONGEST = 2_000
"""Characters kept of one piece of text from a file; a function name of a megabyte is an attack or a mistake."""
LONGEST_JSON = 1_000_000
"""Characters of a list of sizes that is still taken apart."""

_SECOND = 1_000_000_000
_UNITS = ((_SECOND, "s"), (1_000_000, "ms"), (1_000, "us"))
_LONG_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_DTYPES = {
    "Float": "f32", "Double": "f64", "Half": "f16", "BFloat16": "bf16", "Long": "i64", "Int": "i32", "Short": "i16",
    "Char": "i8", "Byte": "u8", "Bool": "bool", "UInt16": "u16", "UInt32": "u32", "UInt64": "u64",
    "ComplexFloat": "c64", "ComplexDouble": "c128",
}  # fmt: skip
_WIDTHS = {
    "f64": 8, "i64": 8, "u64": 8, "c64": 8, "f32": 4, "i32": 4, "u32": 4, "c128": 16,
    "f16": 2, "bf16": 2, "i16": 2, "u16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip


def plain(text: str | None) -> str:
    """Text from a file on one line, its control characters shown as escapes, its length bounded."""
    return escaped(text or "", LONGEST)


def clipped(text: str, width: int) -> str:
    """The text in at most `width` characters, with ".." where something had to go."""
    return text if len(text) <= width else text[: width - 2] + ".."


def duration(ns: int | None) -> str:
    """A time span of `ns` nanoseconds in two digits or two units: "3.2 ms", "10 min 2 s"; "-" if unknown."""
    if ns is None:
        return "-"
    if ns < 0:
        return "-" + duration(-ns)
    seconds = round(ns / _SECOND)
    for size, name, rest_size, rest_name in _LONG_UNITS:
        if seconds >= size:
            rest = seconds % size // rest_size
            return f"{seconds // size} {name}" + (f" {rest} {rest_name}" if rest else "")
    return _short(ns)


def _short(ns: int) -> str:
    for size, name in _UNITS:
        value = ns / size
        # What would be written as 1000 of a unit is 1 of the next.
        if value >= 0.9995:
            return f"{value:.1f} {name}" if value < 9.95 else f"{value:.0f} {name}"
    return f"{ns} ns"


def clock(ns: int | None, zone: tzinfo | None = None) -> str:
    """The time of day of `ns` since the epoch with milliseconds, in `zone` (None: the local one); "-" if unknown."""
    if ns is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(ns // _SECOND, zone)
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"
    return f"{moment:%H:%M:%S}.{ns % _SECOND // 1_000_000:03d}"


def byte_count(count: int | None) -> str:
    """A number of bytes in binary units: "16.0 MiB"; "-" if unknown."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def rank_ranges(ranks: Collection[int], width: int = 28) -> str:
    """Ranks folded to ranges, "0-3,7"; where `width` characters do not hold them the rest is counted: "0-3,+12"."""
    return rank_label(sorted(set(ranks)), width) if ranks else "none"


def rank_phrase(ranks: Collection[int], width: int = 28) -> str:
    """Ranks with the noun: "rank 12", "ranks 0-3,7"."""
    return ("rank " if len(set(ranks)) == 1 else "ranks ") + rank_ranges(ranks, width)


def group_label(group: Group | None) -> str:
    """What a person calls a group: "mesh_tp (group 4)", "group 4"; "no group" without one."""
    if group is None:
        return "no group"
    return plain(group_name(GroupRef(group.name, group.description, group.ranks)))


def group_short(group: Group | None) -> str:
    """The description of a group, or its name where it has none."""
    return "no group" if group is None else plain(group.description or f"group {group.name or '?'}")


def dtype(name: str) -> str:
    """The short name of an element type: "Float" is "f32"; an unknown one is kept."""
    return _DTYPES.get(name, plain(name))


@lru_cache(4096)
def tensors(sizes: str | None, dtypes: str | None, most: int = 2) -> str:
    """The tensors of an operation from the frame's JSON texts: "[64,32] f32", "[8] i64 x12", "[8] f32 +3 more".

    Text that is not the JSON it should be is shown as it is.
    """
    shapes, names = _loads(sizes), _loads(dtypes)
    if shapes is None or names is None:
        return plain(f"{(sizes or '')[:80]} {(dtypes or '')[:80]}".strip())
    texts = [f"{_shape(shape)} {dtype(str(name))}".rstrip() for shape, name in _paired(shapes, names)]
    if not texts:
        return ",".join(dtype(str(name)) for name in names[:most])
    runs = [(text, len(list(run))) for text, run in groupby(texts)]
    shown = [text if times == 1 else f"{text} x{times}" for text, times in runs[:most]]
    left = sum(times for _, times in runs[most:])
    return ", ".join(shown) + (f" +{left} more" if left else "")


@lru_cache(4096)
def payload(sizes: str | None, dtypes: str | None) -> int | None:
    """Bytes of all tensors of an operation; None where a size or an element type is not understood."""
    shapes, names = _loads(sizes), _loads(dtypes)
    if not shapes or not names:
        return None
    total = 0
    for shape, name in _paired(shapes, names):
        width = _width(dtype(str(name)))
        if width is None or not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
            return None
        total += width * prod(shape)
    return total


def _paired(shapes: list[object], names: list[object]) -> list[tuple[object, object]]:
    """Each shape with its element type; a single type holds for all, a missing one is empty."""
    spread = names * len(shapes) if len(names) == 1 else names + [""] * (len(shapes) - len(names))
    return list(zip(shapes, spread, strict=False))


def _width(short: str) -> int | None:
    return 1 if short.startswith("Float8") else _WIDTHS.get(short)


def _shape(shape: object) -> str:
    return "[" + ",".join(plain(str(n)) for n in shape) + "]" if isinstance(shape, list) else plain(str(shape))


def _loads(text: str | None) -> list[object] | None:
    if not text:
        return []
    try:
        value = orjson.loads(text[:LONGEST_JSON])
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, list) else None
