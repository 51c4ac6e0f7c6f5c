"""Tables of `torch.cuda.memory_summary()`: what a process holds on a device, and how many requests found no memory.

    |                  PyTorch CUDA memory summary, device ID 2                 |
    |            CUDA OOMs: 1            |        cudaMalloc retries: 6         |
    | Allocated memory      |   1062 MiB |   4877 MiB |  89299 MiB |  88237 MiB |

Source: torch/cuda/memory.py from 1.4 on, and the same of torch_npu; before 1.13 units are KB, MB, GB of 1024.
Columns: current, peak, sum of allocations, sum of frees.
"""

from __future__ import annotations

import re
from typing import Any

from rankscope.features.logs.read.log_record import Event, Record, message_event
from rankscope.text.wording import plural

LITERALS = ("memory summary, device ID",)
_HEAD = re.compile(r"PyTorch (\w{2,8}) memory summary, device ID (\d{1,4})\b")
_COUNTS = re.compile(r"\b\w{2,8} OOMs: (\d{1,9})\b.{0,60}?\b\w{2,12}Malloc\w* retries: (\d{1,9})\b")
_SIZE = r" *(\d{1,15}) ([KMGTP]?i?B) *\|"
_ROW = re.compile(rf"\| (Allocated|Active|\w+ reserved|Non-releasable|Requested) memory *\|{_SIZE}{_SIZE}")
_TABLE = re.compile(r"^[\s>|]*\|[=\-]{3,}|^[\s>]*\|.*\|")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_NAMES = {"Allocated": "allocated", "Active": "active", "Non-releasable": "torn", "Requested": "requested"}
_TOLD = (("allocated", "in tensors"), ("reserved", "reserved"), ("torn", "in pieces that cannot be released"))
MOST_SIZE = 1 << 56


class MemorySummary:
    """An open table."""

    patience = 1
    quotes = True
    named_rank = None

    def __init__(self, record: Record, kind: str, device: int) -> None:
        self._record = record
        self._values: dict[str, Any] = {"device": f"{kind.lower()}:{device}"}
        self._number = device
        self._printed: dict[str, str] = {}

    def consumes(self, record: Record) -> bool:
        """Whether a line is of the table; reads it if so."""
        text = record.text
        if _HEAD.search(text) is not None or not _TABLE.match(text):
            return False
        counts, row = _COUNTS.search(text), _ROW.search(text)
        if counts is not None:
            self._values |= {"ooms": int(counts[1]), "retries": int(counts[2])}
        elif row is not None:
            name = _NAMES.get(row[1], "reserved")
            self._values |= {name: _bytes(row[2], row[3]), f"peak_{name}": _bytes(row[4], row[5])}
            self._printed[name] = f"{int(row[2]):,} {row[3]}"
        return True

    def result(self) -> list[Event]:
        """The event. Values: `device`, `ooms`, `retries`, and bytes `allocated`, `active`, `reserved`, `torn` (that
        lie in pieces and cannot be released) and `requested`, each with its peak (`peak_reserved`); those that it has.
        """
        values = self._values
        if "allocated" not in values and "reserved" not in values and "ooms" not in values:
            return []
        told = [f"{self._printed[name]} {words}" for name, words in _TOLD if name in self._printed]
        told += [f"{plural(values['ooms'], 'request')} failed"] if values.get("ooms") else []
        text = f"memory summary of GPU {self._number}: {', '.join(told)}"
        return [message_event("memory-summary", self._record, text, **values)]


def begins(record: Record) -> MemorySummary | None:
    """A new table, if a line is its title."""
    head = _HEAD.search(record.text)
    return None if head is None else MemorySummary(record, head[1], int(head[2]))


def _bytes(number: str, unit: str) -> int:
    return min(int(number) << _UNITS[unit.rstrip("iB")], MOST_SIZE)
