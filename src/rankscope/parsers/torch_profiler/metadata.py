"""What a trace says of itself, before its events and behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankscope.parsers.flight_recorder.model import GroupConfig
from rankscope.parsers.flight_recorder.values import integer, rank_list, text

KEYS = ("distributedInfo", "baseTimeNanoseconds", "host_name")
LATEST_NS = 4 * 10**18
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}")
_LONGEST = 4 << 20
"""Bytes looked at on either side of the events."""


class About(NamedTuple):
    """What is known of the process and the job; None or empty where the trace does not say."""

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    host: str = ""
    base_ns: int | None = None
    library_version: str = ""
    groups: list[GroupConfig] = []


def about(before: bytes, after: bytes) -> About:
    """What the bytes around the events say, each key by itself: the rest of them may be no JSON."""
    found: dict[str, Any] = {}
    for part in (before[:_LONGEST], after[-_LONGEST:]):
        said = part.decode("utf-8", "replace")
        for key in KEYS:
            value = _value(said, key)
            if value is not None:
                found[key] = value
    return _about(found)


def _value(said: str, key: str) -> Any:
    match = re.search(rf'"{key}"\s*:\s*', said)
    if match is None:
        return None
    try:
        return json.JSONDecoder(strict=False).raw_decode(said, match.end())[0]
    except (ValueError, RecursionError):
        return None


def _about(found: Mapping[str, Any]) -> About:
    info = found.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    version = text(info.get("nccl_version")) or ""
    rows = info.get("pg_config")
    return About(
        rank=_natural(info.get("rank")),
        world_size=_natural(info.get("world_size")),
        backend=text(info.get("backend")) or "",
        host=text(found.get("host_name")) or "",
        base_ns=_base(found.get("baseTimeNanoseconds")),
        library_version=version if _VERSION.fullmatch(version) else "",
        groups=[_group(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [],
    )


def _base(value: Any) -> int | None:
    number = integer(value)
    return number if number is not None and 0 <= number < LATEST_NS else None


def _natural(value: Any) -> int | None:
    number = integer(value)
    return number if number is not None and 0 <= number < 1 << 18 else None


def _group(row: Mapping[str, Any]) -> GroupConfig:
    name = row.get("pg_name", row.get("uid", ""))
    ranks = row.get("ranks")
    return GroupConfig(text(str(name)) or "", text(row.get("pg_desc")) or "", rank_list(ranks))
