"""Logs whose long lines were broken at a fixed width: by a terminal, by `fold`, or by a copy from a screen.

The pieces of a line are joined in the block of the log: its bytes keep their places, and the joined lines become empty
ones. Programs that wrap at words (mail, chat, rich) leave lines of unlike widths: their messages are joined record by
record. A line continues in the next if no line is wider and the next one cannot begin a record. Where many lines show
the width, that is enough; else the joined text must be one message by the grammar, and no number may be cut.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.features.logs.read import coll_lines, comm_lives
from rankscope.features.logs.read.coll_lines import BlockLines
from rankscope.features.logs.read.log_record import Record
from rankscope.features.logs.read.packed_words import Places
from rankscope.features.logs.read.record_reader import HEAD
from rankscope.parsers.line_blocks import PAD_BYTES
from rankscope.parsers.line_prefixes import strip_prefixes

NARROWEST, WIDEST = 60, 400
"""Columns of a terminal."""
SAMPLE_LINES = 64
"""Lines of the greatest width in the sample that decides whether all are examined."""
PROOF_KINDS = 3
"""Kinds of lines of one width that prove a break at this width."""
SHAPE_LENGTH = 40
"""Characters, without digits, that form the kind of a line."""
WORD_LENGTH = 8
"""Shortest word across a cut that proves a break."""
WORK_WORD = "operation timeout: WorkNCCL(SeqNum="
"""Words of the watchdog beside those of events."""
_LINE_START = re.compile(
    r"\s{2}|\t|[|+{}]|Traceback \(|frame #|Exception raised from |Last error:|(?:srun|slurmstepd|torchrun): |-{8}|={8}"
    r"|(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception|Warning|Interrupt)(?:: |$)"
    r"|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\[?\d{1,4}[-/:]\d\d[-/:]\d\d"
    r"|During handling of |The above exception |(?:NC|RC)CL version"
)
"""Beginnings of lines without a head; lines of tables and tracebacks begin with blanks."""
_TABLE_START = re.compile(r'[|+\-=#]|\s++(?!File "|what\(\): )')
"""Beginnings of lines that never continue in others: tables and code."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_PAIRS = (("(", ")"), ("[", "]"))
_STEP_PART = re.compile(r"(?: {2,})?[\d.][^|]{0,60}\|")
"""The rest of a line of Megatron, whose columns begin with blanks."""
_STEP_ENDS = (
    (re.compile(r"^(?:[^{]{0,200}\s)?\{['\"]\w{1,40}['\"]: ?['\"]?[\d.\-n]"), re.compile(r"['\"\d.\}naif]\}")),
    (re.compile(r"^(?:\[.{1,60}\] ?)?\s{0,8}iteration +\d+/ *\d+ \|"), re.compile(r"\| ?$")),
)
"""Beginnings of the lines that trainers print for a step, and what the rest of each must hold: a dictionary of
Transformers, and the columns of Megatron."""
_NUMBER_END, _NUMBER_START = re.compile(r"[0-9a-fA-Fx.]+$"), re.compile(r"[0-9a-fA-Fx.]+")


_WHOLE_WORD = re.compile(
    r"[\s\[(](?:[Rr]ank|PG|ID|GUID|id:|work:|by|at|in|of|ran|for|from)$|[\s\[(]ID \d{1,9}$|[A-Za-z]=\w{1,40},$"
)
"""Words that end at a blank: a line that ends with one was wrapped at it, not broken at a column."""
_WORD = re.compile(r"\w+")


class LineFolds(NamedTuple):
    """The joined lines of a block."""

    gone: Places
    """Lines that are now parts of others."""
    cut: frozenset[int]
    """Lines whose rest may be missing."""


class _FoldedLine(NamedTuple):
    """A line and those in which it continues."""

    first: int
    texts: list[str]
    is_cut: bool = False

    @property
    def cuts(self) -> int:
        return len(self.texts) - 1


class _BlockTexts:
    """The lines of a block."""

    def __init__(self, lines: BlockLines) -> None:
        self._text = lines.padded
        starts, ends = lines.bounds()
        self.starts, self.ends = starts + PAD_BYTES, ends + PAD_BYTES
        if lines.has_returns:
            self.ends = self.ends - (lines.bytes.take(self.ends - 1) == ord("\r"))
        self.count = len(starts)
        self.columns = self.ends - self.starts
        if not lines.padded.isascii():
            follow = np.cumsum((lines.bytes & 0xC0) == 0x80)
            self.columns = self.columns - (follow.take(self.ends - 1) - follow.take(self.starts - 1))

    def of(self, at: int) -> str:
        return self._text[int(self.starts[at]) : int(self.ends[at])].decode("utf-8", "replace")

    def continues(self, at: int) -> bool:
        """Whether a line can be the rest of the line above."""
        text = self.of(at) if at < self.count else ""
        if not text.strip() or any(begins.search(text) for begins, _ in _STEP_ENDS):
            return False
        return not _begins(text) or (_STEP_PART.match(text) is not None and "|" in self.of(at - 1))


def unfold_lines(lines: BlockLines, literals: Callable[[], Sequence[str]]) -> LineFolds | None:
    """Joins broken lines in their block, which then must be read again; None if no line is broken.

    `literals` gives the words of events, when they are needed.
    """
    texts = _BlockTexts(lines)
    width = int(texts.columns.max(initial=0))
    if not NARROWEST <= width <= WIDEST:
        return None
    full = np.flatnonzero(texts.columns == width)
    some = full[:: max(1, full.size // SAMPLE_LINES)].tolist()
    went_on = sum(texts.continues(at + 1) for at in some)
    if went_on * (2 if full.size > SAMPLE_LINES else len(some)) < len(some):
        return None
    words = literals()
    runs = list(_folded_lines(full.tolist(), texts))
    found = [run for run in runs if run.cuts and (_begins_step(run) or not _TABLE_START.match(run.texts[0]))]
    begun = [
        run
        for run in found
        if _begins(run.texts[0]) or any(word in run.texts[0] for word in words) or _begins_step(run)
    ]
    is_proven = _is_proven(begun, sum(not run.cuts for run in runs))
    joined = found if is_proven else [_proven_part(run, words) for run in begun]
    for run in joined:
        _join(lines.padded, texts, run)
    gone = [at for run in joined for at in range(run.first + 1, run.first + len(run.texts))]
    cut = {run.first for run in (runs if is_proven else joined) if run.is_cut}
    return LineFolds(np.array(gone, np.int64), frozenset(cut)) if gone or cut else None


def _folded_lines(full: list[int], texts: _BlockTexts) -> Iterator[_FoldedLine]:
    """Each line of the greatest width that begins a message, with its continuations."""
    wide, taken = set(full), -1
    for at in full:
        if at <= taken:
            continue
        taken = at
        while taken in wide and texts.continues(taken + 1):
            taken += 1
        yield _FoldedLine(at, [texts.of(i) for i in range(at, taken + 1)], taken in wide)


def _begins(text: str) -> bool:
    return bool(_LINE_START.match(text) or HEAD.match(text) or strip_prefixes(text).end)


def _is_proven(runs: list[_FoldedLine], alone: int) -> bool:
    """Whether unlike lines end at the same column and continue in the next line."""
    kinds = {_NUMBER.sub("", text)[:SHAPE_LENGTH] for run in runs for text in run.texts[:-1]}
    return len(kinds) >= PROOF_KINDS and alone * 3 <= sum(run.cuts for run in runs)


def _proven_part(run: _FoldedLine, words: Sequence[str]) -> _FoldedLine:
    """The part of a run that certainly belongs together, with its first line."""
    for i in range(run.cuts):
        if _is_step(run, i):
            return run
        number = _cuts_number(run.texts[i], run.texts[i + 1])
        # two lines of one width that begin like no others
        one = i + 1 < run.cuts or _is_one_message(run, i, words)
        if number or not one:
            is_cut = number and (one or (run.texts[i][-1:].isdigit() and run.texts[i + 1][:1].isdigit()))
            return _FoldedLine(run.first, run.texts[: i + 1], is_cut)
    return run


def _begins_step(run: _FoldedLine) -> bool:
    return any(begins.search(run.texts[0]) for begins, _ in _STEP_ENDS)


def _is_step(run: _FoldedLine, cut: int) -> bool:
    """Whether the whole run is what a trainer prints for one step: a column that cuts a number then takes no blank."""
    front, behind = "".join(run.texts[: cut + 1]), "".join(run.texts[cut + 1 :])
    return any(begins.search(front) and not ends.search(front) and ends.search(behind) for begins, ends in _STEP_ENDS)


def _is_one_message(run: _FoldedLine, cut: int, words: Sequence[str]) -> bool:
    """Whether the text around a cut is one message by the grammar."""
    front, behind = "".join(run.texts[: cut + 1]), "".join(run.texts[cut + 1 :])
    whole, at = front + behind, len(front)
    if _WHOLE_WORD.search(front) and _WORD.match(behind):
        return False
    for opens, closes in _PAIRS:
        if front.count(opens) > front.count(closes) and _closes(behind, opens, closes):
            return True
    if front.count('"') % 2 and '"' in behind:
        return True
    if any(
        pattern.search(whole) and not pattern.search(front) for pattern in (coll_lines.COLL_LINE, comm_lives.LIFE_LINE)
    ):
        return True
    around = whole[max(0, at - 100) : at + 100]
    middle = min(at, 100)
    return any(
        len(word) >= WORD_LENGTH and 0 <= (found := around.find(word)) < middle < found + len(word)
        for word in (*words, WORK_WORD)
    )


def _closes(text: str, opens: str, closes: str) -> bool:
    """Whether a text closes a bracket that was opened before it."""
    depth = 0
    for sign in text:
        depth += (sign == opens) - (sign == closes)
        if depth < 0:
            return True
    return False


def _cuts_number(front: str, behind: str) -> bool:
    """Whether a cut may split a number, decimal or hexadecimal."""
    end, start = _NUMBER_END.search(front), _NUMBER_START.match(behind)
    return end is not None and start is not None and any(sign.isdigit() for sign in end[0] + start[0])


def _join(padded: bytearray, texts: _BlockTexts, run: _FoldedLine) -> None:
    """Joins the pieces of a run, and puts their line ends behind them."""
    last = run.first + run.cuts
    start, end = int(texts.starts[run.first]), int(texts.ends[last])
    pieces, between = [], []
    for at in range(run.first, last + 1):
        pieces.append(padded[int(texts.starts[at]) : int(texts.ends[at])])
        if at < last:
            between.append(padded[int(texts.ends[at]) : int(texts.starts[at + 1])])
    # the line end behind the last piece closes the last empty line
    padded[start:end] = b"".join([*pieces, *between])


MOST_PIECES = 12
"""Most lines of one message."""
MOST_APART = 4
"""Most lines from one piece to the next: lines of other writers may stand between them, and empty ones."""
_GRAMMAR_SIGNS = ("net_ib.cc:", "NET/IB : Got", "A worker died or", "(raylet", "Detected mismatch between")
"""Signs of messages whose grammar tells each blank, so that even a number that a column cut is joined rightly."""
_WRAPPED_SIGNS = ("atchdog", "ProcessGroup", "WorkNCCL(", "Error: ", "what(): ", *_GRAMMAR_SIGNS)
_CUT_HEAD = re.compile(r"\[[IWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}(?: {2}| *$)")
_OPEN_MESSAGES = tuple(
    (re.compile(begins), re.compile(ends))
    for begins, ends in (
        (r"Watchdog caught collective operation timeout", r"before timing out"),
        (r"\] +(?:f[a-z]{0,6}|W[a-z]{0,7})(?: [a-z ]{0,40})?$", r"$^"),
        (r"failure detected by watchdog|Timeout at NCCL work", r"last completed (?:NCCL )?work: -?\d+"),
        (r"net_ib\.cc:\d+ (?:\(\w+\) )?(?:NCCL(?: WARN(?: NET/IB(?: :)?)?)?)?$", r"$^"),
        (r"NET/IB : Got(?: completion|$)", r"vendor err \d+\b"),
        (r"\(raylet(?:, ip=\S+)?\) A(?: worker(?: died(?: or was killed)?)?)?$", r"$^"),
        (r"A worker died or was killed while", r"Worker exit type: \w+ Worker exit detail: .*\.$"),
        (
            r"Detected mismatch between(?: collectives|$)",
            r"but Rank \d+ is running collective: CollectiveFingerPrint\(.+\)\.? ?(?:Coll|$)",
        ),
        (r"WorkNCCL\(", r"WorkNCCL\((?:[^()]|\(ms\))*\)"),
        (r"\[[^\[\]]{1,200}$", r"$^"),
        (r"^\[[IWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}$", r"$^"),
        (r"\.(?:cpp|hpp):\d{1,6}\] *(?:\[[^\[\]]{1,200}\] *)*$", r"$^"),
    )
)
"""Beginnings of messages, and what the rest of each must hold."""
_WHOLE_MESSAGES = re.compile(
    r"Watchdog caught collective operation timeout: |WorkNCCL\(SeqNum=\d+, OpType=\w+, NumelIn=\d+, NumelOut=\d+, "
    r"|NumelOut=\d+, Timeout\(ms\)=\d+\)|\) ran for \d+ milliseconds before timing out"
    r"|failure detected by watchdog at work sequence id: \d+ PG status: |last enqueued work: -?\d+, "
    r"|Got completion from peer \S+(?= with )|with (?:error \d+|status=\d+),? opcode[ =]\d+,? len"
    r"|troubleshoot the problem, check the logs|RayTask ID: \w+(?= Worker ID: )|Worker ID: \w+(?= Node ID: )"
    r"|Node ID: \w+(?= Worker IP address: )|Worker IP address: [\w.:]+(?= Worker port: )"
    r"|Worker port: \d+(?= Worker PID: )"
    r"|Worker PID: \d+(?= Worker exit type: )|Worker exit type: \w+(?= Worker exit detail: )"
    r"|Rank \d+ is running collective: CollectiveFingerPrint\(|SequenceNumber=\d+, OpType=\w+, TensorShape="
    r"|OpType=\w+(?:, TensorShape=\[[\d, ]*\]|\))"
    r"|last completed work: -?\d+|\[PG (?:ID \d+ )?PG GUID \S+\(\w+\) Rank \d+\]|\] \[Rank \d+\] "
)
"""Parts of such messages, which tell whether a blank was at a cut."""
_NEXT_RECORD = re.compile(
    r"[|+{}#]|Traceback \(|frame #|Exception raised from |Last error:|what\(\): |terminate called|-{3}|={3}|File \""
    r"|(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception|Warning|Interrupt)(?:: |$)"
    r"|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\[?\d{1,4}[-/]\d\d[-/]\d\d|During handling of |The above exception "
)
_SOURCE_COLUMN = re.compile(r" {2,}[\w.\-]{1,60}\.py:\d{1,6} *$")
"""The column in which rich names the source of a line."""
_RANK_PREFIX = re.compile(r"\[rank\d{1,7}\]: ?")


class WrappedMessages:
    """Joins the records of a message that was wrapped at words. `literals` gives the words of events."""

    def __init__(self, literals: Callable[[], Sequence[str]]) -> None:
        self._literals = literals
        self._held: Record | None = None
        self._last = self._pieces = 0

    def feed(self, record: Record) -> list[Record]:
        """The records that are complete with this one."""
        held = self._held
        if held is None:
            return self._take(record)
        joined = self._joined(held, record)
        if joined is None:
            self._held = None
            return [held, *self._take(record)]
        self._held, self._last, self._pieces = joined, record.line, self._pieces + 1
        return self.finish() if self._pieces >= MOST_PIECES else []

    def finish(self) -> list[Record]:
        """The record that waits for its rest."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _take(self, record: Record) -> list[Record]:
        text = record.text
        # else no number is read across a cut that a column made
        short = len(text) <= WIDEST and (not record.torn or any(sign in text for sign in _GRAMMAR_SIGNS))
        if not short or not (any(sign in text for sign in _WRAPPED_SIGNS) or _CUT_HEAD.match(text)):
            return [record]
        self._held, self._last, self._pieces = record, record.line, 1
        return []

    def _joined(self, held: Record, record: Record) -> Record | None:
        """Both as one record; None if they are two messages."""
        if record.rank is not None or record.stamp is not None:
            return None
        rest = record.text.strip()
        label = _RANK_PREFIX.sub("", held.label)
        apart = record.label.strip() != label.strip()
        if apart or not rest or record.line - self._last > MOST_APART or _NEXT_RECORD.match(rest) or HEAD.match(rest):
            return None
        front = _SOURCE_COLUMN.sub("", held.text).rstrip()
        if not self._spans(front, rest) and not _is_open(front):
            return None
        with_blank, without = f"{front} {rest}", f"{front}{rest}"
        more = len(_WHOLE_MESSAGES.findall(without)) - len(_WHOLE_MESSAGES.findall(with_blank))
        return held._replace(text=without if more > 0 else with_blank, torn=record.torn)

    def _spans(self, front: str, rest: str) -> bool:
        """Whether the words of an event lie on both sides of a cut."""
        first = _WORD.search(rest)
        cuts = self._cuts.get(first[0], ()) if first is not None else ()
        return any(front.endswith(before) and rest.startswith(after) for before, after in cuts)

    @cached_property
    def _cuts(self) -> dict[str, list[tuple[str, str]]]:
        """Both parts of the words of each event, cut at each blank, by the first word of the second part."""
        found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for literal in self._literals():
            for blank in re.finditer(r"(?<=\S) (?=\S)", literal):
                before, after = literal[: blank.start()], literal[blank.end() :]
                if (word := _WORD.search(after)) is not None and len(literal) >= WORD_LENGTH:
                    found[word[0]].append((before, after.rstrip()))
        return dict(found)


_DOTS, _OMITTED = r"(?:\.{3,}|…|\[…\]|\[\.{3,}\])", r"(?:omitted|truncated|skipped|removed|cut|snipped|left out)"
LEFT_OUT = (
    r"(?i)^[ \t]*(?:"
    rf"[<\[({{#*/~=.…\- \t]*(?:snip|{_OMITTED}|(?:the )?(?:\d[\d,]{{0,12}} )?(?:more |other |similar )?"
    rf"(?:lines?|logs?|log lines|output|rows?|messages?|content)(?: (?:are|is|was|were|here))? {_OMITTED}[^.:]{{0,40}}"
    rf"|{_OMITTED} \d[\d,]{{0,12}} (?:lines?|characters|chars|bytes|[km]i?b)[^.:]{{0,40}})[>\])}}#*/~=.…\- \t]*"
    rf"|[<\[(]?[ ]?{_DOTS}[ ]?[>\])]?"
    r")[ \t]*\r?$"
)
"""A line that stands for others: `<snip>`, `[truncated]`, `...`, `(... 2,311 lines omitted ...)`."""
_SHORTENED = rf"(?i)(?:{_DOTS}|<snip>|[\[<(]{_OMITTED}[\])>])[ \t]*\r?$"
"""The end of a message whose rest is left out."""


def left_out_lines(texts: pl.Series) -> list[int]:
    """The places of lines that say that others, or the rest of a watchdog's message, are left out."""
    watchdogs = texts.str.contains("Watchdog caught", literal=True)
    places = texts.str.contains(LEFT_OUT)
    if watchdogs.any():
        places |= watchdogs & texts.str.contains(_SHORTENED)
    return places.arg_true().to_list()


_CUT_OFF = re.compile(
    r"\[(?:r(?:a(?:n(?:k(?:\d{0,7}(?:\](?::(?: ?\[(?:[IWEF][\d :.]{0,30}"
    r"(?:[\w./]{0,60}(?:\.cpp(?::\d{0,6})?)?)?)?)?)?)?)?)?)?)?)?$"
)
"""A beginning of the head that torch puts before a message."""


def is_cut_off(text: str) -> bool:
    """Whether a text without a line end is the beginning of a message that was cut."""
    text = text.strip()
    return bool(text) and (_CUT_OFF.match(text) is not None or _is_open(text))


def _is_open(text: str) -> bool:
    """Whether a message of a watchdog lacks its end."""
    return any(begins.search(text) and not ends.search(text) for begins, ends in _OPEN_MESSAGES)
