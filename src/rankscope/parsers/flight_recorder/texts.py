"""JSON dumps: orjson, and of a torn file the whole entries."""

from __future__ import annotations

from typing import Any

import orjson

ATTEMPTS = 16
"""How many places a torn file is cut at, from its end."""


def parse(data: bytes) -> Any:
    """The object in `data`; bytes that are no UTF-8 are replaced. Raises ValueError for damaged text."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(data.decode("utf-8", "replace"))


def salvage(data: bytes) -> Any:
    """What is whole in a torn dump: its entries and what stands before them; None if nothing is."""
    text = data.decode("utf-8", "replace").encode()
    end = len(text)
    for _ in range(ATTEMPTS):
        end = text.rfind(b"}", 0, end)
        if end < 0:
            return None
        for closing in (b"}", b"]}", b"]", b"}}"):
            try:
                return orjson.loads(text[: end + 1] + closing)
            except orjson.JSONDecodeError:
                continue
    return None
