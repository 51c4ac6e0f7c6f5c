"""Letters of operations, and what a code says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.tui.letters import CHARACTERS, CODES, LETTERS, Mark, code, legend, letter_number, mark_of, name, op_codes
from tests.builders import JobBuilder


@pytest.mark.parametrize(
    ("op", "letter"),
    [
        ("all_reduce", "A"), ("allreduce_coalesced", "A"), ("all_reduce_barrier", "Y"), ("barrier", "Y"),
        ("_all_gather_base", "G"), ("ALLGATHER_coalesced", "G"), ("_reduce_scatter_base", "R"),
        ("REDUCE_SCATTER_coalesced", "R"), ("_reduce_oop", "D"), ("gather", "H"), ("scatter", "C"), ("all_to_all", "T"),
        ("_broadcast_oop", "B"), ("send", "S"), ("recv", "V"), ("coalesced", "K"), ("something_new", "O"), (None, "O"),
    ],
)  # fmt: skip
def test_every_operation_has_its_letter(op: str | None, letter: str) -> None:
    assert LETTERS[letter_number(op)][0] == letter


def test_letters_are_told_apart() -> None:
    letters = [letter for letter, _, _ in LETTERS]
    assert len(set(letters)) == len(letters) <= 32


def test_case_says_whether_it_is_done() -> None:
    job = JobBuilder(1)
    for state in ("completed", "scheduled", "started", "unknown"):
        job.collective("0", state=state)
    codes = op_codes(job.build().ops)
    assert CHARACTERS[codes].tobytes() == b"AaaA"
    assert [mark_of(int(v)) for v in codes] == [Mark.DONE, Mark.SCHEDULED, Mark.STARTED, Mark.UNSURE]


def test_a_missing_name_is_other() -> None:
    ops = JobBuilder(1)
    ops.collective("0")
    table = ops.build().ops.with_columns(op=pl.lit(None, pl.Categorical))
    assert CHARACTERS[op_codes(table)].tobytes() == b"O"


def test_the_worst_mark_is_the_highest_code() -> None:
    marks = [Mark.DONE, Mark.GONE, Mark.MISSING, Mark.SCHEDULED, Mark.STARTED, Mark.MISMATCH, Mark.ABSENT]
    codes = [code(mark, 12) for mark in marks]
    assert codes == sorted(codes)
    assert bytes(CHARACTERS[codes]).decode() == "K?!kk*!"


def test_the_legend_names_what_is_there() -> None:
    codes = np.array([code(Mark.DONE, letter_number("all_reduce")), code(Mark.ABSENT), code(Mark.EMPTY)], np.uint8)
    assert legend(codes) == ["! never issued", "A all_reduce", "blank nothing"]
    assert legend(codes[:1]) == ["A all_reduce"]
    queued = np.array(
        [code(Mark.SCHEDULED, letter_number("send")), code(Mark.STARTED, letter_number("recv"))], np.uint8
    )
    assert legend(queued) == ["lower case waits", "a. only queued", "S send", "V recv"]
    assert "a. only queued" not in legend(queued[1:])
    every = np.arange(CODES, dtype=np.uint8)
    words = (
        "! never issued  * differs  % numbers off  lower case waits  a. only queued  ? not known  grey state unknown"
    )
    words = f"{words}  O other"
    assert "  ".join(word for word in legend(every) if "late" not in word).startswith(words)
    assert name(int(codes[0])) == "ALL_REDUCE"
    assert name(code(Mark.STARTED, letter_number("send"))) == "send"
