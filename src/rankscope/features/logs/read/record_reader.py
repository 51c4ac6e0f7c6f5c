"""Records of one line of a file: without prefixes and colours, and cut where another record begins in the line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from rankscope.features.logs.read.log_record import REPEAT_MARK, Record
from rankscope.features.logs.read.packed_words import LEVELS
from rankscope.parsers.line_blocks import LINE_BYTES
from rankscope.parsers.line_prefixes import COLOUR, GLOG, LinePrefix, Stamp, read_stamp, strip_prefixes, unwrapped

NCCL_HEAD = (
    r"(?:\[\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:\.\d{1,9})?\] ?)?"
    r"(?<![\w.\-<>])[\w.<>\-]{1,255}:\d{1,10}(?::\d{1,10})? (?:\[\d{1,4}\] )?"
    r"(?:[\w./:()\-]{1,200} ){0,3}?"
    rf"(?:NCCL (?:{'|'.join(LEVELS)})|(?<=\d )WARN)(?= |$)"
)
"""`host:pid:tid [device] place NCCL LEVEL`, as src/debug.cc of NCCL writes it."""
_TORCH_HEAD = (
    rf"\[(?:{GLOG} |[IWEF] )(?:\d{{1,10}} )?[\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|cc|py):\d{{1,6}}\]"
    rf"|(?<![\w.]){GLOG} \d{{1,10}} [\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|cc|py):\d{{1,6}}\]"
)
"""`[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616]` and its older and glog's forms."""
HEAD = re.compile(rf"(?P<nccl>{NCCL_HEAD})|(?P<rank>\[rank\d{{1,7}}\]: ?(?:{_TORCH_HEAD})?)|(?P<torch>{_TORCH_HEAD})")
"""The head of a record."""
_SIGNS = re.compile(r"NCCL|\[rank\d|\.(?:cpp|hpp|h|cu|cc|py):\d|\d WARN")
_PROCESS = re.compile(r"(?:\[[^\]]*\] ?)?([\w.<>\-]{1,255}):(\d{1,10})[: ]")
_TORCH_STAMP = re.compile(rf"\[?(?={GLOG} )")
_HOST = re.compile(
    r"(?!\w*(?:Error|Exception|Warning):)"
    r"([A-Za-z][\w.\-]{0,254}(?::\d{1,6})?): (?=Traceback \(most recent call last\):| {2}File \"|\[rank\d"
    r"|\[[IWEF]\d{3,4} |(?:Current thread|Thread) 0x|Stack \(most recent|Traceback for thread \d"
    r"|Timeout \(\d{1,5}:\d\d:|Fatal Python error: |E[A-Z]\d{4}: )"
)
"""A host name before a line: pdsh puts it before every line, and torchrun on demand, with a rank behind it. Only some
lines prove that it is a host."""
_SOURCE = re.compile(r"\.(?:py|cc?|cpp|cxx|cuh?|h|hpp|go|rs|js|ts|sh):\d+$")
"""A place in a program, which looks like a host with a rank."""
_MOST_HOSTS = 1 << 12
_BLANK = " \t\0"
NO_BREAK = "\N{NO-BREAK SPACE}".encode()


class RecordSplitter:
    """Cuts lines into records. It learns the host of each pid, to find where a glued head begins."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self.names: set[str] = set()
        self._labels: set[str] = set()
        """Host names that were seen before a line."""

    def records(self, line: bytes, offset: int, number: int, whole: bool = True) -> Iterator[Record]:
        """The records of one line, without progress bars. `whole`: the line has its line end."""
        if not offset:
            line = line.removeprefix(codecs.BOM_UTF8)
        if b"\x1b" in line:
            line = COLOUR.sub(b"", line)
        # as web pages and chat copy blanks
        line = line.replace(NO_BREAK, b" ").rstrip(b"\r\n")
        collected = None
        if line.startswith(b"{") and (inner := unwrapped(line)) is not None:
            line, collected = inner
            line = COLOUR.sub(b"", line) if b"\x1b" in line else line
        parts = line.split(b"\r") if b"\r" in line else [line]
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            if last or _SIGNS.search(part.decode("utf-8", "replace")):
                for at in range(0, max(1, len(part)), LINE_BYTES):
                    piece = part[at : at + LINE_BYTES]
                    torn = (not whole and last) or len(part) > LINE_BYTES
                    yield from self._piece(piece, offset + at, number, torn, collected)
            offset += len(part) + 1

    def _piece(self, piece: bytes, offset: int, number: int, torn: bool, collected: Stamp | None) -> Iterator[Record]:
        text = piece.decode("utf-8", "replace")
        exact = len(text) == len(piece)
        front = self._named(text, strip_prefixes(text))
        cuts = self._cuts(text, front.end)
        pieces = list(zip(cuts, [*cuts[1:], len(text)], strict=True))
        for i, (start, end) in enumerate(pieces):
            if i and not text[start:end].strip(_BLANK):
                continue
            prefix = front if i == 0 else strip_prefixes(text[start:end])
            body = text[front.end if i == 0 else start + prefix.end : end]
            if i == 0 and len(pieces) > 1 and not body.strip(_BLANK):
                continue
            body, cut = REPEAT_MARK.sub("", body), torn or i < len(pieces) - 1
            at = start if exact else len(text[:start].encode("utf-8", "surrogatepass"))
            head = _TORCH_STAMP.match(body)
            head_stamp = read_stamp(body[head.end() : head.end() + 40]) if head else None
            stamp = head_stamp or prefix.stamp or collected
            yield Record(
                offset + min(at, len(piece)), number, body, prefix.rank, prefix.label, stamp, cut, prefix.level
            )

    def _named(self, text: str, front: LinePrefix) -> LinePrefix:
        """The prefixes of a line with a host name, once a line has proved it to be one."""
        found = _HOST.match(text, 0)
        if found is not None and len(self._labels) < _MOST_HOSTS and not _SOURCE.search(found[1]):
            self._labels.add(found[1])
        if front.end or not self._labels:
            return front
        name, colon, _ = text.partition(": ")
        if not colon or name not in self._labels:
            return front
        start = len(name) + 2
        more = strip_prefixes(text[start:])
        return more._replace(end=start + more.end, label=text[:start] + more.label)

    def _cuts(self, text: str, start: int) -> list[int]:
        """The places where records begin: 0, and every further head. The prefixes of the first end at `start`."""
        first = HEAD.match(text, start)
        if not _SIGNS.search(text, first.end() if first else start):
            if first is not None and first.lastgroup == "nccl":
                self._learn(first[0])
            return [0]
        cuts = [0]
        for found in HEAD.finditer(text, start):
            if found.start() == start:
                if found.lastgroup == "nccl":
                    self._learn(found[0])
                continue
            cuts.append(self._begin(found) if found.lastgroup == "nccl" else found.start())
        return cuts

    def _learn(self, head: str) -> None:
        process = _PROCESS.match(head)
        if process is not None and len(self.hosts) < 1 << 16:
            self.hosts.setdefault(process[2], process[1])
            self.names.add(process[1])

    def _begin(self, found: re.Match[str]) -> int:
        """The beginning of a head in the middle of a line: text glued to its host belongs to the record before."""
        process = _PROCESS.match(found[0])
        if process is None:
            return found.start()
        host = process[1]
        known = self.hosts.get(process[2], "")
        if not host.endswith(known) or not known:
            known = next((host[i:] for i in range(len(host)) if host[i:] in self.names), host)
        return found.start() + (process.end(1) - len(known) if known != host else 0)
