"""What NCCL 2.31 and later find when they check the hardware of a job (NCCL_RUN_DIAGNOSTICS, `ncclras -D`).

    node0:8100 NCCL DIAG [WARN] ECC: uncorrected volatile errors on rank(s) 13 (worst=2) across 16 ranks in comm 0x6f1c

Ranks are those in the communicator. Source: strings of NCCL 2.32.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.endings import ranges_in
from rankscope.parsers.logs.c10d.event_builder import tell
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

LITERALS = ("NCCL DIAG [",)
KIND = "nccl-diagnosis"
_LINE = re.compile(r"NCCL DIAG \[(OK|INFO|WARN|ERROR|FAIL)\] (.{1,1000})")
_RANKS = re.compile(r"rank\(s\) (\d[\d,\- ]{0,2000})")
_ONE = re.compile(r"\b(?:write |read )?rank (\d{1,7}) \((\S{1,255})\): (.{1,200}?)(?: in comm |$)")
_SIZE = re.compile(r"\bacross (\d{1,7}) ranks\b")
_COMM = re.compile(r"\bin comm (0x[0-9a-fA-F]{1,16})\b")
_HOST = re.compile(r"\bon host (\S{1,255}?)(?:[.,;]? |$)")
_DIFFER = re.compile(r"\bmismatch\b|\bdiffers? from\b")
_OFF = re.compile(r"\boff median\b")


def events(record: Record) -> Iterator[Event]:
    """The event of a line that finds something wrong, or tells the size of a communicator.

    Values: `level`; `what`: "fault", "differs" or ""; `ranks`, first and last of ranges; `size` and `comm` of the
    communicator; `node`, the host of a fault. What is not told is None, or [].
    """
    found = _LINE.search(record.text)
    if found is None:
        return
    level, text = found.groups()
    one, size, comm, host = _ONE.search(text), _SIZE.search(text), _COMM.search(text), _HOST.search(text)
    listed = _RANKS.search(text)
    ranks = [[int(one[1])] * 2] if one else ranges_in(listed[1].replace(" ", "")) if listed else []
    differs = _DIFFER.search(text) is not None
    wrong = level not in ("OK", "INFO") or (one is not None and _OFF.search(text) is not None)
    what = "" if not wrong else "differs" if differs else "fault"
    if what or size is not None:
        yield tell(
            KIND, record, text, level=level, what=what, ranks=ranks, size=int(size[1]) if size else None,
            comm=comm[1] if comm else None, node=one[2] if one else host[1] if host else None,
        )  # fmt: skip
