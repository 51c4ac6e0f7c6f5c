"""Lines that a collector keeps as JSON: Docker, fluentd and its kin, cloud logging."""

from __future__ import annotations

import re

import orjson

from rankscope.parsers.logs import stamps
from rankscope.parsers.logs.record import Stamp

WORDS = ('"log":', '"message":', '"msg":', '"textPayload":', '"MESSAGE":')
"""How the text of a line is called in them."""
_TEXTS = tuple(word.strip('":') for word in WORDS)
_TIMES = ("time", "timestamp", "@timestamp")
_SIGN = re.compile("|".join(word.replace(":", r"\s*:") for word in WORDS).encode())


def unwrapped(line: bytes) -> tuple[bytes, Stamp | None] | None:
    """Text and time of such a line, {"log": "...", "stream": "stdout", "time": "..."}; None for any other."""
    if not line.startswith(b"{") or not _SIGN.search(line):
        return None
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    time = next((row[name] for name in _TIMES if isinstance(row.get(name), str)), None)
    if text is None:
        return None
    stamp = stamps.stamp(time) if time is not None else None
    return text.rstrip("\r\n").encode("utf-8", "replace"), stamp
