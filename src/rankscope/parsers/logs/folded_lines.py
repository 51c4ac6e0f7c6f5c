"""Logs whose long lines were broken at a fixed width: by a terminal, by `fold`, or by a copy from a screen.

The pieces of a line are joined in the block of the log: its bytes keep their places, and the joined lines become empty
ones. A line continues in the next if no line is wider and the next one cannot begin a record. Where many lines show the
width, that is enough; else the joined text must be one message by the grammar, and no number may be cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rankscope.parsers.logs import prefixes
from rankscope.parsers.logs.nccl import coll_lines, comm_lives
from rankscope.parsers.logs.nccl.coll_blocks import BlockLines
from rankscope.parsers.logs.nccl.packed_words import PAD_BYTES, Places
from rankscope.parsers.logs.record_reader import HEAD

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
_NUMBER_END, _NUMBER_START = re.compile(r"[0-9a-fA-Fx.]+$"), re.compile(r"[0-9a-fA-Fx.]+")


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
        return bool(text.strip()) and not _begins(text)


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
    found = [run for run in runs if run.cuts and not _TABLE_START.match(run.texts[0])]
    begun = [run for run in found if _begins(run.texts[0]) or any(word in run.texts[0] for word in words)]
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
    return bool(_LINE_START.match(text) or HEAD.match(text) or prefixes.strip_prefixes(text).end)


def _is_proven(runs: list[_FoldedLine], alone: int) -> bool:
    """Whether unlike lines end at the same column and continue in the next line."""
    kinds = {_NUMBER.sub("", text)[:SHAPE_LENGTH] for run in runs for text in run.texts[:-1]}
    return len(kinds) >= PROOF_KINDS and alone * 3 <= sum(run.cuts for run in runs)


def _proven_part(run: _FoldedLine, words: Sequence[str]) -> _FoldedLine:
    """The part of a run that certainly belongs together, with its first line."""
    for i in range(run.cuts):
        number = _cuts_number(run.texts[i], run.texts[i + 1])
        # two lines of one width that begin like no others
        one = i + 1 < run.cuts or _is_one(run, i, words)
        if number or not one:
            is_cut = number and (one or (run.texts[i][-1:].isdigit() and run.texts[i + 1][:1].isdigit()))
            return _FoldedLine(run.first, run.texts[: i + 1], is_cut)
    return run


def _is_one(run: _FoldedLine, cut: int, words: Sequence[str]) -> bool:
    """Whether the text around a cut is one message by the grammar."""
    front, behind = "".join(run.texts[: cut + 1]), "".join(run.texts[cut + 1 :])
    whole, at = front + behind, len(front)
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
