"""The top level of a dump: recognition, and the differences between versions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rankscope.parsers.flight_recorder.model import Dump, GroupStatus
from rankscope.parsers.members import GroupConfig, Members
from rankscope.parsers.safe_values import rank_list, safe_integer, safe_text

ENTRY_KEYS = frozenset({"profiling_name", "collective_seq_id", "seq_id"})
"""Keys of entries; each version has one of these in every entry."""
LIBRARY_KEYS = ("comm_lib_version", "nccl_version")
BARE_LIST_VERSION = "0"
"""Version of the bare list of entries that torch 2.2 writes."""


def is_dump(document: Any) -> bool:
    """Whether a decoded file is a flight recorder dump."""
    if isinstance(document, list):
        return any(isinstance(e, dict) and ENTRY_KEYS & e.keys() for e in document[:16])
    if not isinstance(document, dict):
        return False
    entries = document.get("entries")
    if isinstance(entries, list) and entries:
        return is_dump(entries)
    return isinstance(document.get("version"), str) and bool({"entries", "pg_config", "pg_status"} & document.keys())


def split_document(document: Any) -> tuple[Dump, list[Any]]:
    """The header of a dump, and its raw entries."""
    if isinstance(document, list):
        return Dump(version=BARE_LIST_VERSION), document
    library = next((safe_text(document[k]) for k in LIBRARY_KEYS if k in document), None)
    dump = Dump(
        version=safe_text(document.get("version")) or "",
        library_version=library,
        config=_config(document.get("pg_config")),
        status=_status(document.get("pg_status")),
        replayed=rank_list(document.get("replayed_ranks")),
    )
    entries = document.get("entries")
    return dump, entries if isinstance(entries, list) else []


def _config(value: Any) -> list[GroupConfig]:
    if not isinstance(value, dict):
        return []
    parse = cache(rank_list)  # one text of a million ranks may stand in every group
    rows = (_group(key, group, parse) for key, group in value.items())
    return [row for row in rows if row is not None]


def _group(key: Any, group: Any, parse: Callable[[Any], Members | None]) -> GroupConfig | None:
    if isinstance(group, dict):
        name, ranks = safe_text(key), group.get("ranks")
        members = parse(ranks) if isinstance(ranks, str) else rank_list(ranks)
        return None if name is None else GroupConfig(name, safe_text(group.get("desc")) or "", members)
    pg_id = safe_integer(key)
    return None if pg_id is None else GroupConfig(str(pg_id), "", rank_list(group), pg_id)


def _status(value: Any) -> list[GroupStatus] | None:
    if not isinstance(value, dict):
        return None
    return [_counters(str(key)[:32], row) for key, row in value.items() if isinstance(row, dict)]


def _counters(pg_id: str, row: dict[str, Any]) -> GroupStatus:
    kinds = ("enqueued", "started", "completed")
    values = [safe_integer(row.get(f"last_{kind}_collective")) for kind in kinds]
    return GroupStatus(pg_id, *(-1 if v is None else v for v in values))
