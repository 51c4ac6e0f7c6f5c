"""Decoder of a range of a log, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankscope.features.logs.read import bounded_rows, coll_lines, comm_lives
from rankscope.features.logs.read.bounded_rows import CommTails, move_phantoms, rehomed
from rankscope.features.logs.read.bulk_lines import (
    CHANNEL_STARTS,
    TUNING_SIGN,
    InfoLine,
    LineFronts,
    MessageShapes,
    OperationReader,
    UnheardLines,
)
from rankscope.features.logs.read.c10d.known_errors import WordScreen
from rankscope.features.logs.read.c10d.tracebacks import FAR_LINES, NEAR_LINES, STEP_WORDS
from rankscope.features.logs.read.coll_lines import HEAD_BYTES, BlockLines, OperationRows, coll_rows
from rankscope.features.logs.read.comm_lives import CommTable, ProcessTable, WarningReader
from rankscope.features.logs.read.folded_lines import WrappedMessages, is_cut_off, left_out_lines, unfold_lines
from rankscope.features.logs.read.log_record import Event, Record, record_event, shown_text
from rankscope.features.logs.read.model import MOST_SETTINGS, LogContent, LogSetting
from rankscope.features.logs.read.packed_words import Mask, NcclHead, Places, nccl_head
from rankscope.features.logs.read.ras_output import SIGNS as RAS_SIGNS
from rankscope.features.logs.read.ras_output import InspectorReader, RasReader
from rankscope.features.logs.read.record_reader import NO_BREAK, RecordSplitter
from rankscope.features.series.read.training_lines import TrainingLines
from rankscope.parsers.line_blocks import LINE_BYTES, PAD_BYTES
from rankscope.parsers.line_prefixes import WORDS
from rankscope.parsers.matrices import Codes, Numbers

if TYPE_CHECKING:
    from rankscope.features.logs.read.c10d.recogniser import Recogniser

BATCH_RECORDS = 4096
"""Records that go to the recogniser at a time."""
SILENT_LINES = 64
"""Lines without an event after which the recogniser is asked whether a report is still open."""
_STEP_WORDS = tuple(word.encode() for word in STEP_WORDS)
FOLD_ROWS = 200_000
"""Operations after which all but the tails are dropped."""


class LogDecoder:
    """Takes the blocks of one range of a log in order."""

    def __init__(self, ranged: bool = False) -> None:
        self.content = LogContent(ranged=ranged)
        self._tails = CommTails()
        self.counts: Counter[str] = Counter()
        self.processes, self.comms, self.rows = ProcessTable(), CommTable(), OperationRows()
        self.warnings, self.ras, self.inspector = WarningReader(), RasReader(), InspectorReader()
        self._splitter = RecordSplitter()
        self._recognition = EventRecognition()
        self._wrapped = WrappedMessages(self._recognition.literals)
        self._waiting: list[Record] = []
        self._events = bounded_rows.bounded_events(bounded_rows.MOST_EVENTS // 2 if ranged else 0)
        self._settings: set[tuple[int, str, str]] = set()
        self._fronts = LineFronts(self._splitter, self.processes)
        self._operations = OperationReader(self.processes, self.comms, self.rows, self._fronts, self.counts)
        self._shapes = MessageShapes(self._recognition.literals)
        self._unheard = UnheardLines(self._shapes, self._fronts, self.processes, self.counts)
        self._line, self._block = 1, 0
        self._unended: tuple[str, int, int] | None = None
        """The last line, its place and number, if it lacks its end."""
        self._cuts: frozenset[int] = frozenset()
        """Lines of the block whose rest may be missing."""
        self._transports = 0
        """The number of transports that were taken."""
        self._plain = PlainLines(self._recognition.literals)
        self._training = TrainingLines()
        self._alert, self._stepping, self._silent, self._most_silent = False, False, 0, SILENT_LINES
        """Whether a report may be open that any line can belong to, whether steps are searched, the number of lines
        without an event since then, and after how many the recogniser is asked."""

    def block(self, padded: bytearray, size: int, offset: int) -> None:
        """Takes a text of lines with the padding of `packed_words`. Only the last text of a log may lack its line
        end."""
        self._block = offset
        whole = padded.rfind(b"\n", PAD_BYTES - 1, PAD_BYTES + size) + 1 - PAD_BYTES
        lines = BlockLines(padded, whole)
        folds = unfold_lines(lines, self._recognition.literals)
        if folds is not None:
            lines = BlockLines(padded, whole)
        rows = coll_rows(lines) if padded.find(b"opCount", PAD_BYTES, PAD_BYTES + whole) >= 0 else None
        starts, ends = lines.bounds()
        slow = np.ones(len(starts), np.bool_)
        self._cuts = frozenset() if folds is None else folds.cut
        if folds is not None:
            slow[folds.gone] = False
        taken, known = self._operations.usable_rows(rows, offset) if rows is not None else (slow[:0], [])
        if rows is not None:
            slow[rows.line[taken]] = False
        said = self._unheard.many(lines, slow, (offset, self._line))
        self._take_transports(padded, whole, offset)
        with memoryview(padded) as view:
            which = np.flatnonzero(slow)
            bounds = zip(starts[which].tolist(), ends[which].tolist(), strict=True)
            self._lines(which.tolist(), [bytes(view[PAD_BYTES + a : PAD_BYTES + b]) for a, b in bounds], starts)
            rest = bytes(view[PAD_BYTES + whole : PAD_BYTES + size])
        self._unheard.keep(said)
        if rows is not None:
            self._operations.many(rows, taken, known, (offset, self._line))
        self._unended = None
        if rest:
            last = pl.Series([rest.decode("utf-8", "replace")])
            self._training.add(last, np.array([self._line + len(starts)]), np.array([offset + whole]))
            self._unended = rest.decode("utf-8", "replace"), offset + whole, self._line + len(starts)
            self.line(rest, offset + whole, self._line + len(starts), whole=False)
        if not self.content.ranged and self.rows.count >= FOLD_ROWS:
            self._tails.add(*self._taken(), list(self._operations.ops))
        self._line += len(starts)
        self.counts["lines"] += len(starts) + bool(rest)

    def _lines(self, which: list[int], texts: list[bytes], starts: Places) -> None:
        """Takes lines of a block that are read one by one."""
        read: set[int] = set()
        places = np.asarray(which, np.int64)
        words = pl.Series([text.decode("utf-8", "replace") for text in texts], dtype=pl.String)
        if words.str.contains(NO_BREAK.decode(), literal=True).any():
            words = words.str.replace_all(NO_BREAK.decode(), " ", literal=True)
        self._training.add(words, self._line + places, self._block + starts[places].astype(np.int64))
        for k in left_out_lines(words):
            record = Record(self._block + int(starts[which[k]]), self._line + which[k], shown_text(words[k]), torn=True)
            self._events.add([record_event("text-cut", record)])
        plain, telling = self._plain.many(texts, words)
        others = np.flatnonzero(~plain).tolist()
        at, k = 0, -1
        while (k := k + 1) < len(texts):
            if not (self._alert or self._stepping or self.ras.active):
                # lines without an event matter only to what is open
                while at < len(others) and others[at] < k:
                    at += 1
                following = others[at] if at < len(others) else len(texts)
                self.counts["records"] += following - k
                k = following
                if k == len(texts):
                    break
            i, text = which[k], texts[k]
            if telling[k]:
                for above in lines_above(texts, k, read):
                    self.counts["records"] -= 1
                    self.line(texts[above], self._block + int(starts[which[above]]), self._line + which[above])
                self._alert, self._silent, self._most_silent = True, 0, SILENT_LINES
            elif plain[k] and not self._matters(text):
                self.counts["records"] += 1
                continue
            read.add(k)
            self.line(text, self._block + int(starts[i]), self._line + i, i not in self._cuts)

    def _matters(self, text: bytes) -> bool:
        """Whether a line without an event may belong to an open report, or tell a step."""
        if not self._alert and not self._stepping and not self.ras.active:
            return False
        self._silent += 1
        if self._silent >= self._most_silent:
            self._flush()
            # asking costs as much as reading thousands of lines
            self._most_silent = min(4 * self._most_silent, BATCH_RECORDS)
            self._alert, self._stepping = self._recognition.has_open, self._recognition.wants_steps
            self._silent = 0
        return self._alert or self.ras.active or (self._stepping and any(word in text for word in _STEP_WORDS))

    def line(self, text: bytes, offset: int, number: int, whole: bool = True) -> None:
        """Takes one line, the slow way."""
        if whole and self._known_front(text, offset, number):
            return
        glued = False
        for record in self._splitter.records(text, offset, number, whole):
            self.counts["records"] += 1
            self.counts["torn"] += record.torn
            found = nccl_head(record.text) if "NCCL" in record.text or " WARN " in record.text else None
            if found is not None:
                self._nccl(found, record, glued)
            elif not (self._headless(record) or self.inspector.feed(record) or self.ras.feed(record)):
                self._pass_on(record)
            glued = True

    def result(self) -> LogContent:
        """The content of the whole range."""
        self._waiting += self._wrapped.finish()
        self._flush()
        self._events.add(self._recognition.finish())
        if self._unended is not None and is_cut_off(self._unended[0]):
            text, offset, number = self._unended
            self._events.add([record_event("text-cut", Record(offset, number, shown_text(text), torn=True))])
        content = self.content
        content.problem = self._recognition.problem
        content.events = self._events.result()
        content.processes, content.comms, content.warnings = (
            self.processes.result(),
            self.comms.rows,
            self.warnings.result(),
        )
        content.ras, content.inspected = self.ras.result(), self.inspector.result()
        content.ops = list(self._operations.ops)
        # transports are taken before the lines of their block
        content.settings.sort(key=lambda setting: (setting.offset, setting.process, setting.name))
        content.training = self._training.result()
        content.counts = {**self.counts, "events": self._events.seen}
        for rows in (self._events, self.warnings):
            content.counts.update(rows.left_out())
        if self.comms.lost:
            content.counts[bounded_rows.left_out("communicator")] = self.comms.lost
        if content.ranged:
            content.numbers, content.codes = self._taken()
        else:
            self._tails.add(*self._taken(), content.ops)
            content.comms, content.numbers, content.codes = self._tails.result(content.comms)
            move_phantoms(content)
        return content

    def _taken(self) -> tuple[Numbers, Codes]:
        return rehomed(self.processes.result(), self.comms.rows, *self.rows.drain())

    # The slow way.

    def _known_front(self, text: bytes, offset: int, number: int) -> bool:
        """Takes a line of NCCL with a known head, without splitting it; False if it may hold more than one record."""
        at = text.find(b" NCCL INFO ")
        if not 0 < at < HEAD_BYTES:
            return False
        message = text[at + 11 :].rstrip(b"\r\n")
        kind = self._shapes.kind(message)
        self._new_transports(offset, number)
        front = self._fronts.of(text[: at + 1], offset)
        if front is None:
            return False
        if not kind:
            record = self._fronts.record(front, text[: at + 1], message, (offset, number))
            if record is not None:
                self.counts["records"] += 1
                self._nccl(front.head._replace(message=record.text[len(front.record.text) + 1 :]), record, False)
            return record is not None
        self._unheard.one(kind, front.process, text[: at + 1], InfoLine(text, offset, number))
        return True

    def _loud(self, process: int, record: Record) -> None:
        """Before a failed call: keeps the thread's last quiet line, which may be its text."""
        for text, offset, number in self._unheard.drain(process):
            for said in self._splitter.records(text, offset, number):
                found = nccl_head(said.text)
                if found is not None and said.offset < record.offset:
                    self.warnings.note_text(process, found, said)

    def _headless(self, record: Record) -> bool:
        """Takes the end of a line without its head, and the version, which never has one."""
        version = comm_lives.version_pair(record.text)
        if version is not None:
            self._setting(-1, version, record)
            return True
        operation = coll_lines.coll_operation(record.text, True) if "opCount" in record.text else None
        owner = self.comms.owner(operation.pointer) if operation else None
        if operation is not None and owner is not None:
            self.counts["headless"] += 1
            self._operations.one(owner, operation, record._replace(torn=True))
        return operation is not None

    def _nccl(self, found: NcclHead, record: Record, glued: bool) -> None:
        self.counts[found.level] += 1
        process = self.processes.of(found.host, found.pid, record, glued)
        if process is None:
            self.counts[bounded_rows.left_out("process")] += 1
            return
        self.processes.count(process, 1, record.offset if record.torn else None)
        if found.level in ("WARN", "ERROR"):
            self.warnings.warn(process, found, record)
            self._pass_on(record)
        elif not self._message(process, found, record):
            self.warnings.note_text(process, found, record)
            self.counts["other"] += 1
            self._pass_on(record)

    def _message(self, process: int, found: NcclHead, record: Record) -> bool:
        """Takes the message of a record; False if its form is unknown."""
        message = found.message
        if found.level == "CALL":
            operation = coll_lines.call_operation(message)
            if operation is not None:
                self._operations.one(process, operation, record, True)
            return True
        ignored = "channels" if message.startswith(CHANNEL_STARTS) else "tuning" if TUNING_SIGN in message else ""
        if ignored:
            self.counts[ignored] += 1
            self._shapes.kind(message.encode())
            self._new_transports(record.offset, record.line)
            return True
        return (
            ("opCount" in message and self._coll(process, message, record, found.device))
            or ("- " in message and self._life(process, message, record))
            or (" -> " in message and self._trail(process, found, record))
            or (not record.torn and self._takes_setting(process, message, record))
        )

    def _trail(self, process: int, found: NcclHead, record: Record) -> bool:
        self._loud(process, record)
        return self.warnings.trail(process, found, record)

    def _coll(self, process: int, message: str, record: Record, device: int | None) -> bool:
        operation = coll_lines.coll_operation(message, record.torn)
        if operation is not None:
            self.processes.issued(process, device)
            self._operations.one(process, operation, record)
            return True
        return coll_lines.COLL_BEGINNING.match(message) is not None and self._cut(process, message, record)

    def _life(self, process: int, message: str, record: Record) -> bool:
        life = comm_lives.comm_life(message)
        if life is not None:
            self.comms.life(process, *life, record)
            self.counts["life"] += 1
        return life is not None

    def _takes_setting(self, process: int, message: str, record: Record) -> bool:
        pair = comm_lives.setting_pair(message)
        if pair is not None:
            self._setting(process, pair, record)
        return pair is not None

    def _take_transports(self, padded: bytearray, size: int, offset: int) -> None:
        """Takes transports of channels that no earlier block has, with the first line of each."""
        for transport in [*self._shapes.transports][self._transports :]:
            kind = "/GDRDMA" if transport.endswith("/GDRDMA") else f" via {transport}"
            begin = padded.find(kind.encode(), PAD_BYTES, PAD_BYTES + size)
            at = max(begin, PAD_BYTES)
            line = self._line + padded.count(b"\n", PAD_BYTES, at)
            begin = padded.rfind(b"\n", PAD_BYTES, at) + 1 or PAD_BYTES
            self._setting(-1, ("transport", transport), Record(offset + begin - PAD_BYTES, line, ""))
        self._transports = len(self._shapes.transports)

    def _new_transports(self, offset: int, line: int) -> None:
        """Takes transports that the line at this place is the first to have."""
        for transport in [*self._shapes.transports][self._transports :]:
            self._setting(-1, ("transport", transport), Record(offset, line, ""))
        self._transports = len(self._shapes.transports)

    def _cut(self, process: int, message: str, record: Record) -> bool:
        """Takes a line with only the beginning of an operation: it counts if its communicator is clear."""
        self.counts["cut"] += 1
        self.processes.count(process, 0, record.offset)
        pointer = self.comms.only(process)
        operation = coll_lines.torn_operation(message, pointer) if pointer is not None else None
        if operation is not None:
            self._operations.one(process, operation, record._replace(torn=True))
        return True

    def _setting(self, process: int, pair: tuple[str, str], record: Record) -> None:
        if (process, *pair) not in self._settings and len(self._settings) < MOST_SETTINGS:
            self._settings.add((process, *pair))
            self.content.settings.append(LogSetting(process, *pair, record.offset, record.line))

    def _pass_on(self, record: Record) -> None:
        self._waiting += self._wrapped.feed(record)
        if len(self._waiting) >= BATCH_RECORDS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._events.add(self._recognition.events(waiting))


class EventRecognition:
    """Lazy recogniser: a log of operations alone never makes one. It holds no reference to its user, so both are
    freed."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """The error in the table of known errors."""
        self._recogniser: Recogniser | None = None

    @property
    def has_open(self) -> bool:
        """Whether a report is open that any line may belong to."""
        return self._recogniser is not None and self._recogniser.has_open

    @property
    def wants_steps(self) -> bool:
        """Whether steps after an error are searched."""
        return self._recogniser is not None and self._recogniser.wants_steps

    def literals(self) -> Sequence[str]:
        """Words of events; a line without any holds none."""
        return self._ready().literals

    def events(self, records: Sequence[Record]) -> list[Event]:
        """The events that are complete with these records."""
        return self._ready().feed_all(records)

    def finish(self) -> list[Event]:
        """Events of reports that were open at the end."""
        return [] if self._recogniser is None else self._recogniser.finish()

    def _ready(self) -> Recogniser:
        if self._recogniser is None:
            from rankscope.features.logs.read.c10d.known_errors import current_table
            from rankscope.features.logs.read.c10d.recogniser import Recogniser

            table, self.problem = current_table()
            self._recogniser = Recogniser(table)
        return self._recogniser


_TRACEBACK = b"Traceback (most recent call last):"


def lines_above(texts: Sequence[bytes], at: int, read: Set[int]) -> list[int]:
    """The places of the lines above a traceback that were not read: the nearest, and the nearest with the same prefix.

    They may be plain, and yet tell that a program survives the exception.
    """
    front, head, _ = texts[at].partition(_TRACEBACK)
    if not head:
        return []
    same = next((k for k in range(at - 1, max(-1, at - 1 - FAR_LINES), -1) if texts[k].startswith(front)), at)
    near = range(max(0, at - NEAR_LINES), at)
    last = max((k for k in near if k in read), default=-1)
    return sorted({*(k for k in near if k > last), same} - {at} - read)


FEWEST_LINES = 64
"""Fewest lines for this test; with fewer, its setup takes longer."""
_SIGNS = ("NCCL", "RCCL", "opCount", " WARN", "_perf", '"peer"', *RAS_SIGNS)
"""Words that the readers of operations, heads, JSON and RAS search for."""
_EVENT_SIGNS = ("\x1b", "Rank ", *WORDS)
"""Further words: some hide words or split them, and "Rank " ends a line that holds the rank of the next one."""


class PlainLines:
    """Test for lines without any event. `literals` gives the words of the recogniser, when they are needed."""

    def __init__(self, literals: Callable[[], Sequence[str]]) -> None:
        self._literals = literals
        self._screens: tuple[WordScreen, WordScreen] | None = None

    def many(self, lines: Sequence[bytes], texts: pl.Series) -> tuple[Mask, Mask]:
        """For each line, given with its text, whether it holds no event, and whether a word of the recogniser."""
        if len(lines) < FEWEST_LINES:
            return np.zeros(len(lines), np.bool_), np.ones(len(lines), np.bool_)
        if self._screens is None:
            words = *_EVENT_SIGNS, *self._literals()
            self._screens = WordScreen((*_SIGNS, *words)), WordScreen(words)
        any_word, of_events = self._screens
        # one pass over all lines: few hold any of the words
        some = np.flatnonzero(np.asarray(any_word.many(texts), np.bool_))
        telling = np.zeros(len(lines), np.bool_)
        telling[some] = of_events.many(texts.gather(some))
        plain = (texts.str.len_bytes() <= LINE_BYTES).to_numpy(writable=True)
        plain[some] = False
        return plain, telling
