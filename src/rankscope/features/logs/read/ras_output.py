"""Output of NCCL's RAS: the text of `ncclras`, its JSON (2.28.7 on), and the events of its monitor (2.29 on).

Its outliers are the smaller group, not the late one; and it reports OK while a collective hangs in the network.

`coll_sn` counts the operations of its kind in the communicator, also those without a dump: those under 8 KiB.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from rankscope.features.logs.read.log_record import Record
from rankscope.features.logs.read.model import InspectorRow, RasComm
from rankscope.parsers.line_prefixes import Stamp, read_stamp
from rankscope.parsers.safe_values import safe_integer, safe_text

MOST_ROWS = 100_000
DATE_LINES, DATE_LENGTH = 12, 40
"""Most lines from a printed date to the answer that it belongs to, and characters of such a line."""
_TABLE = re.compile(
    r"\s*(?P<group>\d{1,9})(?P<numbers>(?:\s+\d{1,9}(?:-\d{1,9})?){5})\s+(?P<status>[A-Z]{3,}\S*)\s+(?P<errors>[A-Z]{2,}\S*)\s*$"
)
_COMM = re.compile(r"\s*(?P<comm>#\d{1,9}-\d{1,9} \([0-9a-f]{1,32}\))\s+(?P<status>[A-Z][A-Z_]{1,30})")
_KIND = re.compile(r"\s*Communicator ranks have different (\w{1,40}) operation counts")
_GROUP = re.compile(r"\s*(\d{1,9}) ranks? ha(?:ve|s) launched up to operation (\d{1,18})")
_RANK = re.compile(
    r"\s*Rank (?P<rank>\d{1,9})(?: has launched up to operation (?P<count>\d{1,18}))? -- GPU (?P<gpu>\d{1,4})\S* "
    r"managed by process (?P<pid>\d{1,10}) on node (?P<host>\S{1,255})"
)
_TOTALS = re.compile(r"\(total\)\s.*\(total\)\s*$")
_NUMBERS = re.compile(r"(?:\s*\d{1,9}){2,}\s*$")
_MISSING_RANKS = re.compile(r"\s*The missing ranks?: (?P<ranks>\d{1,9}(?:[ ,]+\d{1,9}){0,10000})\s*$")
"""A list of missing ranks; NCCL 2.24 and 2.25 print only numbers."""
_DEAD_PROCESSES = re.compile(r"\s*(?P<count>\d{1,9}) job process(?:es)? (?:is|are) considered dead\b")
_PROCESS = re.compile(r"\s*Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,255}) managing GPUs? (?P<gpu>\d{1,4})")
_PEER = re.compile(rf"\s*(?:\[[^\]]{{10,40}}\] )?(?P<event>PEER_[A-Z]{{2,20}}): {_PROCESS.pattern}")
"""An event of the monitor about a peer."""
_LACKING_RANKS = re.compile(r"\s*Missing communicator data from \d{1,9} ranks?\s*$")
_MISSING_STATE = re.compile(r"\b(DEAD|TIMEOUT|NOCOMM|INCOMPLETE|UNRESPONSIVE)\b")
_BEGINS = ("Job summary", "Communicators...", "RAS Monitor Mode")
SIGNS = ("Job summary", "Communicators...", "PEER_", " operation counts", " managed by process ", " MISMATCH")
"""Words of which a line has one that may begin an answer, also one whose head was not copied along."""
_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{(?s:.{0,4096})"(?:communicators_count|communicators|nccl_version)"\s*:')


def looks_like_document(head: bytes) -> bool:
    """Whether a file begins like the JSON of RAS."""
    return _DOCUMENT.match(head) is not None


class RasReader:
    """Collector of rows from lines of RAS output."""

    def __init__(self) -> None:
        self._rows: list[RasComm] = []
        self.active = False
        """Whether a text of RAS has begun."""
        self._comm, self._kind, self._state = "", "", ""
        self._count: int | None = None
        self._totals = False
        """Whether the next line of numbers ends with the number of GPUs of the job."""
        self._sizes: dict[str, int] = {}
        """The number of ranks of a communicator, by the number of its group."""
        self._answer = self._documents = 0
        self._date: tuple[Stamp, int] | None = None
        self._time_ns: int | None = None

    def result(self) -> list[RasComm]:
        """All rows."""
        return self._rows

    def feed(self, record: Record) -> bool:
        """Takes a line; False for a line that is not RAS's."""
        line = record.text
        self._note_date(record)
        if line.lstrip().startswith(_BEGINS):
            self.active = True
            if "Job summary" in line:
                # begins another answer
                dated, at = self._date if self._date is not None else (None, 0)
                stamp = dated if dated is not None and record.line - at <= DATE_LINES else record.stamp
                self._answer, self._time_ns = record.offset, stamp.ns if stamp is not None else None
                self._comm, self._kind, self._state, self._count = "", "", "", None
            return True
        if line.startswith("{") and '"event"' in line and '"peer"' in line:
            try:
                row = orjson.loads(record.text)
            except orjson.JSONDecodeError:
                return False
            peer = _object(row.get("peer"))
            devices = peer.get("cuda_devs")
            return self._add(
                record,
                comm=safe_text(row.get("group")) or "",
                status=safe_text(row.get("event")) or "",
                host=safe_text(peer.get("host")) or "",
                pid=safe_integer(peer.get("pid")),
                device=safe_integer(devices[0]) if isinstance(devices, list) and devices else None,
            )
        if "PEER_" in line and (found := _PEER.match(line)):
            return self._process(found, found["event"], record)
        if not line.strip() or not (self.active or self._headless(line)):
            return False
        return self._text(record)

    def _note_date(self, record: Record) -> None:
        """Remembers a time before an answer: that of a collector, or what `date` printed."""
        stamp = record.stamp
        if stamp is None and record.text[:2].isdigit() and len(record.text) <= DATE_LENGTH:
            stamp = read_stamp(record.text.strip())
        if stamp is not None and stamp.has_date:
            self._date = stamp, record.line

    def _headless(self, line: str) -> bool:
        """Whether a line begins an answer without its head, as copied from a screen."""
        signed = any(sign in line for sign in SIGNS[3:])
        self.active = signed and any(form.match(line) for form in (_COMM, _KIND, _RANK))
        return self.active

    def _text(self, record: Record) -> bool:
        line = record.text
        if self._totals and _NUMBERS.match(line):
            self._totals = False
            return self._add(record, comm="job", size=int(line.split()[-1]))
        self._totals = _TOTALS.search(line) is not None
        if self._totals:
            return True
        if found := _TABLE.match(line):
            numbers = found["numbers"].split()
            size = int(numbers[3]) if numbers[3].isdecimal() else None
            if size is not None and len(self._sizes) < MOST_ROWS:
                self._sizes[found["group"]] = size
            status = f"{found['status']} {found['errors']}"
            return self._add(record, comm=f"group {found['group']}", size=size, status=status)
        if found := _COMM.match(line):
            self._comm, self._kind, self._count, self._state = found["comm"], "", None, ""
            return self._add(record, comm=self._comm, status=found["status"], size=self._size())
        found = _RANK.match(line)
        return self._of_ranks(record) or (found is not None and self._rank(found, record)) or self._of_processes(record)

    def _of_ranks(self, record: Record) -> bool:
        """Takes a line whose statement applies to the ranks below it."""
        line = record.text
        if found := _KIND.match(line):
            self._kind, self._count, self._state = found[1], None, ""
            return True
        if _LACKING_RANKS.match(line):
            self._kind, self._count, self._state = "", None, "MISSING"
            return True
        if found := _GROUP.match(line):
            self._count = int(found[2])
            counts = {self._kind: self._count} if self._kind else {}
            return self._add(record, comm=self._comm, size=self._size(), present=int(found[1]), counts=counts)
        return False

    def _of_processes(self, record: Record) -> bool:
        """Takes lines of processes without ranks, and of ranks without processes."""
        line = record.text
        if _DEAD_PROCESSES.match(line):
            self._comm, self._kind, self._count, self._state = "", "", None, "DEAD"
            return True
        if self._state == "DEAD" and not self._comm and (found := _PROCESS.match(line)):
            return self._process(found, self._state, record)
        if self._comm and (found := _MISSING_RANKS.match(line)):
            return all(
                self._add(record, comm=self._comm, rank=int(rank), status="MISSING", size=self._size())
                for rank in re.findall(r"\d+", found["ranks"])
            )
        return False

    def _size(self) -> int | None:
        return self._sizes.get(self._comm[1:].partition("-")[0])

    def _rank(self, found: re.Match[str], record: Record) -> bool:
        size = self._size()
        if size is not None and int(found["rank"]) >= size:
            # NCCL 2.27 printed uninitialised memory here
            return True
        count = int(found["count"]) if found["count"] else self._count
        state = _MISSING_STATE.search(record.text, found.end())
        return self._add(
            record,
            comm=self._comm,
            rank=int(found["rank"]),
            host=found["host"].rstrip(",;"),
            pid=int(found["pid"]),
            device=int(found["gpu"]),
            counts={self._kind: count} if self._kind and count is not None else {},
            status=state[1] if state else self._state,
            size=size,
        )

    def _process(self, found: re.Match[str], status: str, record: Record) -> bool:
        """Takes a process without a rank."""
        host, pid, device = found["host"].rstrip(",;"), int(found["pid"]), int(found["gpu"])
        return self._add(record, comm="job", host=host, pid=pid, device=device, status=status)

    def document(self, document: Any) -> bool:
        """Takes the JSON of one query; False if it has no communicators."""
        found = document.get("communicators") if isinstance(document, dict) else None
        if not isinstance(found, list):
            return False
        stamp = read_stamp(safe_text(document.get("timestamp")) or "")
        self._answer, self._time_ns = self._documents, stamp.ns if stamp is not None else None
        self._documents += 1
        place = Record(0, 1, "")
        for comm in found:
            if isinstance(comm, dict):
                self._document_comm(comm, place)
        return True

    def _document_comm(self, comm: dict[str, Any], place: Record) -> None:
        name = safe_text(comm.get("hash")) or str(comm.get("hash", ""))[:64]
        missing = safe_integer(comm.get("missing_ranks_count"))
        self._add(
            place,
            comm=name,
            size=safe_integer(comm.get("size")),
            present=safe_integer(comm.get("ranks_count")),
            missing=missing,
            status="INCOMPLETE" if missing else "",
        )
        for kind in ("ranks", "missing_ranks"):
            value = comm.get(kind)
            for rank in value if isinstance(value, list) else []:
                if isinstance(rank, dict):
                    self._document_rank(name, rank, kind == "missing_ranks", place)

    def _document_rank(self, name: str, rank: dict[str, Any], missing: bool, place: Record) -> None:
        counts = rank.get("collective_counts")
        numbers = {str(k)[:64]: safe_integer(v) for k, v in counts.items()} if isinstance(counts, dict) else {}
        self._add(
            place,
            comm=name,
            rank=safe_integer(rank.get("rank")),
            host=safe_text(rank.get("host")) or "",
            pid=safe_integer(rank.get("pid")),
            device=safe_integer(rank.get("cuda_dev")),
            status=_status(rank, missing),
            counts={k: v for k, v in numbers.items() if v is not None},
        )

    def _add(self, record: Record, **told: Any) -> bool:
        empty: dict[str, Any] = {
            "comm": "",
            "size": None,
            "present": None,
            "missing": None,
            "status": "",
            "rank": None,
            "host": "",
        }
        rest: dict[str, Any] = {"pid": None, "device": None, "counts": {}, "offset": record.offset, "line": record.line}
        if len(self._rows) < MOST_ROWS:
            told |= {"answer": self._answer, "time_ns": self._time_ns}
            self._rows.append(RasComm(**{**empty, **rest, "text": record.text[:1000], **told}))
        return True


def _status(rank: dict[str, Any], missing: bool) -> str:
    """One word for the state of a rank: an error has priority."""
    status = _object(rank.get("status"))
    if status.get("considered_dead"):
        return "DEAD"
    if status.get("unresponsive"):
        return "UNRESPONSIVE"
    if missing:
        return "MISSING"
    error = safe_text(status.get("async_error")) or safe_integer(status.get("async_error"))
    if error not in (None, 0, "", "0", "ncclSuccess"):
        return f"ERROR {error}"
    return next((word for flag, word in _FLAGS if status.get(flag)), "RUNNING")


_FLAGS = (("abort_flag", "ABORT"), ("destroy_flag", "DESTROY"), ("finalize_called", "FINALIZE"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
            comm,
            safe_text(header.get("comm_name")) or "",
            key[1],
            safe_integer(header.get("n_ranks")),
            host,
            pid,
            op,
            0,
            seq,
            seq,
            0.0,
            0.0,
            0,
        )
        self._rows[key] = before._replace(
            rows=before.rows + 1,
            first_seq=min(before.first_seq, seq),
            last_seq=max(before.last_seq, seq),
            total_us=before.total_us + microseconds,
            slowest_us=max(before.slowest_us, microseconds),
            dumped_us=max(before.dumped_us, safe_integer(metadata.get("dump_timestamp_us")) or 0),
        )


def _number(value: Any) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if fine else 0.0


def _word(value: Any) -> str:
    return value[:64] if isinstance(value, str) else str(value)[:64]
