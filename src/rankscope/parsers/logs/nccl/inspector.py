"""JSON lines of NCCL's Inspector (2.28 on), summed up for each kind of operation of each rank.

`coll_sn` counts the operations of its kind in the communicator, also those without a dump: those under 8 KiB.
"""

from __future__ import annotations

from typing import Any

import orjson

from rankscope.parsers.logs.log_record import Record
from rankscope.parsers.logs.model import InspectorRow
from rankscope.parsers.safe_values import safe_integer, safe_text

MOST_ROWS = 100_000
_KINDS = (("coll_perf", "coll"), ("p2p_perf", "p2p"))
_Key = tuple[str, int | None, str, int | None, str]


class InspectorReader:
    """Sums over the lines of one log."""

    def __init__(self) -> None:
        self._rows: dict[_Key, InspectorRow] = {}

    def feed(self, record: Record) -> bool:
        """Takes a line; False for a line that is not the Inspector's."""
        line = record.text
        if not line.startswith("{") or "_perf" not in line:
            return False
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            return False
        kind = next(((row[k], name) for k, name in _KINDS if isinstance(row.get(k), dict)), None)
        if kind is None:
            return False
        self._add(_object(row.get("header")), _object(row.get("metadata")), *kind)
        return True

    def result(self) -> list[InspectorRow]:
        """A row for each kind of operation of each rank of each communicator."""
        return list(self._rows.values())

    def _add(self, header: dict[str, Any], metadata: dict[str, Any], perf: dict[str, Any], kind: str) -> None:
        host, pid = safe_text(metadata.get("hostname")) or "", safe_integer(metadata.get("pid"))
        comm, op = _word(header.get("id")), safe_text(perf.get(kind)) or ""
        key: _Key = (comm, safe_integer(header.get("rank")), host, pid, op)
        seq, microseconds = safe_integer(perf.get(f"{kind}_sn")), _number(perf.get(f"{kind}_exec_time_us"))
        if seq is None or (key not in self._rows and len(self._rows) >= MOST_ROWS):
            return
        before = self._rows.get(key) or InspectorRow(
            comm, safe_text(header.get("comm_name")) or "", key[1], safe_integer(header.get("n_ranks")), host, pid,
            op, 0, seq, seq, 0.0, 0.0, 0,
        )  # fmt: skip
        self._rows[key] = before._replace(
            rows=before.rows + 1, first_seq=min(before.first_seq, seq), last_seq=max(before.last_seq, seq),
            total_us=before.total_us + microseconds, slowest_us=max(before.slowest_us, microseconds),
            dumped_us=max(before.dumped_us, safe_integer(metadata.get("dump_timestamp_us")) or 0),
        )  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if fine else 0.0


def _word(value: Any) -> str:
    return value[:64] if isinstance(value, str) else str(value)[:64]
