"""Tensors in words: their shapes and element types, and how many bytes they hold."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from math import prod

import orjson

from rankscope.text.escaping import plain

LONGEST_JSON = 1_000_000
"""Characters of a list of sizes that is still taken apart."""

_DTYPES = {
    "Float": "f32", "Double": "f64", "Half": "f16", "BFloat16": "bf16", "Long": "i64", "Int": "i32", "Short": "i16",
    "Char": "i8", "Byte": "u8", "Bool": "bool", "UInt16": "u16", "UInt32": "u32", "UInt64": "u64",
    "ComplexFloat": "c64", "ComplexDouble": "c128",
}  # fmt: skip
_WIDTHS = {
    "f64": 8, "i64": 8, "u64": 8, "c64": 8, "f32": 4, "i32": 4, "u32": 4, "c128": 16,
    "f16": 2, "bf16": 2, "i16": 2, "u16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip


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
