"""The glyphs of the page of numbers: a code for each tensor, the worst last, and the look of each code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.numbers.model import NumberMarks, ReferenceMarks, RowState
from rankscope.tui.styled_text import HEAT, Role, Span

Codes = NDArray[np.uint8]
NOTHING, OPEN, SAME, NEAR, BEHIND, FOLLOWS, SUSPICIOUS, WRONG = 0, 1, 2, 3, 13, 14, 15, 16
"""Codes of the rules: no tensor; no rule has a limit; right; ten tenths of the limit; after a wrong value; off, which a
wrong value explains; a rule that is no proof does not hold; wrong."""
WITHIN, BEYOND, ODD, FIRST = 17, 27, 37, 38
"""Codes beside a reference: ten sizes of a difference within its limit; ten beyond, or without one; not finite; the
first difference. `OPEN` is not compared, and `SAME` equal bit for bit."""
SIZES = 10
"""Tenths of a limit, or decades of a difference from 1e-9 to 1."""


def rule_codes(marks: NumberMarks) -> Codes:
    """The code of each row of `Dataset.tensors` by the rules."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(marks.limit > 0, np.abs(marks.value) / marks.limit, 0.0)
    tenth = NEAR + np.clip(np.nan_to_num(share, posinf=1.0) * SIZES, 0, SIZES - 1).astype(np.uint8)
    codes: Codes = np.where(marks.limit > 0, tenth, SAME).astype(np.uint8)
    codes[marks.state == RowState.NOT_JUDGED] = OPEN
    codes[marks.after & (marks.state <= RowState.RIGHT)] = BEHIND
    for state, code in ((RowState.FOLLOWS, FOLLOWS), (RowState.SUSPICIOUS, SUSPICIOUS), (RowState.WRONG, WRONG)):
        codes[marks.state == state] = code
    return codes


def reference_codes(marks: ReferenceMarks) -> Codes:
    """The code of each row of `Dataset.tensors` by its difference from the reference."""
    with np.errstate(divide="ignore", invalid="ignore"):
        decade = np.floor(np.log10(marks.off))
    size = np.clip(np.nan_to_num(decade, nan=0.0, posinf=0.0, neginf=-9.0) + SIZES - 1, 0, SIZES - 1).astype(np.uint8)
    # a comparison with NaN is false: without a limit nothing is within it
    sized = np.where(marks.off <= marks.limit, WITHIN, BEYOND) + size
    known = np.where(marks.equal, SAME, np.where(np.isinf(marks.off), ODD, sized))
    compared = np.where(np.isnan(marks.off) & ~marks.equal, OPEN, known)
    return np.where(marks.first, FIRST, compared).astype(np.uint8)


_CALM: tuple[Role, ...] = ("good", "text", "bold")
"""The roles of shares of a limit: all of them are right."""


def _looks() -> list[Span]:
    """The glyph and the role of each code."""
    looks = [Span(" "), Span(".", "dim"), Span("=", "good")]
    looks += [Span(str(tenth), _CALM[tenth // 4]) for tenth in range(SIZES)]
    looks += [Span("~", "warn"), Span("x", "bad"), Span("?", HEAT[3]), Span("X", "critical")]
    looks += [Span("-", "good")] * SIZES
    looks += [Span(str(SIZES - 1 - size), HEAT[2 + size // 5]) for size in range(SIZES)]
    return [*looks, Span("N", HEAT[4]), Span("X", "critical")]


LOOKS: tuple[Span, ...] = tuple(_looks())
"""The look of each code."""
OFF: NDArray[np.bool_] = np.isin(np.arange(len(LOOKS)), (SUSPICIOUS, WRONG, FIRST))
"""Codes of cells to look at: those to which keys jump."""


def legend(*, is_reference: bool) -> list[Span | str]:
    """The meaning of the glyphs, the most important first."""
    chosen: tuple[tuple[int, str], ...] = (
        (FIRST, "first"), (BEYOND + 6, "differs by 1e-3"), (WITHIN, "within limit"),
        (SAME, "equal"), (OPEN, "not compared"),
    ) if is_reference else (
        (WRONG, "wrong"), (SUSPICIOUS, "odd"), (FOLLOWS, "follows"), (BEHIND, "after"), (SAME, "right"),
        (NEAR + 3, "tenths of limit"), (OPEN, "no limit"),
    )  # fmt: skip
    parts: list[Span | str] = []
    for code, words in chosen:
        parts += [LOOKS[code], Span(f" {words}  ", "dim")]
    return parts
