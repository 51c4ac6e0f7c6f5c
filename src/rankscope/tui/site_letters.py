"""Call sites of operations: which operation, issued from where; their letters, the most frequent first, and their
colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.tui.detail.stack_tree import label, place, user_frames
from rankscope.tui.letters import BUSY, COPY, FAINT, HOST, LETTERS, PENDING, SHIFT, Codes, Mark, code, letter_number
from rankscope.tui.model import Items

Ints = NDArray[np.int64]
LETTERED = 26
"""Call sites with a letter of their own; rarer ones share a sign."""
RARE = "+"
"""The sign of the other call sites."""
_FIRST = code(Mark.SCHEDULED)
"""The code of the most frequent call site that is done; one more where it is pending, two more for the next site."""
_MISSING, _ABSENT, _GONE = code(Mark.MISMATCH_PENDING), code(Mark.ABSENT), code(Mark.GONE)
"""Codes of absent operations. In a cell with several the highest code counts: what is absent, then the rarest site."""
_HUES = (int(Mark.DONE), int(Mark.SCHEDULED), BUSY, int(Mark.STARTED), COPY, HOST)
"""Styles of call sites in turn; letters tell apart those with one style."""


@dataclass(frozen=True)
class LetteredSite:
    """An operation and the stack that issued it."""

    op: str
    stack: tuple[Frame, ...]
    """Frames of the job's own code, innermost first; empty where no stack was recorded."""
    count: int
    """Operations of all ranks."""


@dataclass(frozen=True)
class LetteredSites:
    """The call sites of a dataset, the most frequent first."""

    sites: tuple[LetteredSite, ...]
    of_row: NDArray[np.int32]
    """The place in `sites` of each row of ops."""

    @property
    def has_stacks(self) -> bool:
        """Whether any operation has a stack."""
        return any(site.stack for site in self.sites)

    def letter(self, site: int) -> str:
        """The letter of a call site."""
        return chr(ord("A") + site) if site < LETTERED else RARE

    def codes(self, items: Items) -> Codes:
        """The code of each item of lanes."""
        marks = items.code >> SHIFT
        absent = np.select([marks == Mark.ABSENT, marks == Mark.MISSING], [_ABSENT, _MISSING], _GONE)
        if not len(self.of_row):
            return absent.astype(np.uint8)
        sites = np.minimum(self.of_row[np.maximum(items.row, 0)], LETTERED)
        issued = _FIRST + 2 * sites + np.isin(marks, (*PENDING, Mark.MISMATCH_PENDING))
        codes: Codes = np.where(items.row >= 0, issued, absent).astype(np.uint8)
        return codes

    def words(self, site: int, width: int) -> str:
        """A call site: its operation, place and function, and the callers that fit into `width` characters.

        Where other sites have this operation, place and function, the caller that tells it from them stands there, too.
        """
        one = self.sites[site]
        if not one.stack:
            return f"{plain(one.op)}, no stack recorded"
        kept = f"{plain(one.op)}  {place(one.stack[0])}, {plain(one.stack[0].function)}"
        apart = self._apart(site)
        if apart:
            longer, shorter = _callers(kept, one.stack[apart])
            kept = longer if len(longer) <= width else shorter
        for frame in one.stack[apart + 1 :]:
            longer = next((text for text in _callers(kept, frame) if len(text) <= width), "")
            if not longer:
                break
            kept = longer
        return kept

    def short(self, site: int) -> str:
        """A call site in few words: its operation, and the place that tells it from others."""
        one = self.sites[site]
        op = LETTERS[letter_number(one.op)][1] if letter_number(one.op) else plain(one.op)
        return f"{op} {place(one.stack[self._apart(site)])}" if one.stack else op

    def _apart(self, site: int) -> int:
        """The first caller that tells a call site from others with its operation and innermost frame; 0 without any."""
        one = self.sites[site]
        twins = [
            other.stack
            for at, other in enumerate(self.sites)
            if at != site and other.op == one.op and other.stack[:1] == one.stack[:1]
        ]
        depths = (
            next((at for at, frame in enumerate(one.stack) if stack[at : at + 1] != (frame,)), len(one.stack) - 1)
            for stack in twins
        )
        return min(depths, default=0)


def call_sites(dataset: Dataset) -> LetteredSites:
    """The call sites of all operations. Stacks that differ in frames of libraries alone are one call site."""
    ops = dataset.ops.select(pl.col("op").cast(pl.String).fill_null("?"), "stack_id")
    kinds = ops.group_by("op", "stack_id", maintain_order=True).len("count")
    stacks = {number: user_frames(dataset.stack(number)) for number in kinds["stack_id"].unique().to_list()}
    keys = [(op, stacks[number]) for op, number, _ in kinds.iter_rows()]
    counts: Counter[tuple[str, tuple[Frame, ...]]] = Counter()
    for key, count in zip(keys, kinds["count"].to_list(), strict=True):
        counts[key] += count
    number_of = {key: at for at, (key, _) in enumerate(counts.most_common())}
    numbered = kinds.select("op", "stack_id").with_columns(
        site=pl.Series([number_of[key] for key in keys], dtype=pl.Int32)
    )
    of_row = ops.join(numbered, on=["op", "stack_id"], how="left", nulls_equal=True, maintain_order="left")["site"]
    return LetteredSites(
        tuple(LetteredSite(op, stack, counts[op, stack]) for op, stack in number_of), of_row.to_numpy()
    )


def _callers(text: str, caller: Frame) -> tuple[str, str]:
    """A text with a caller behind it, and shorter without the place of the caller."""
    return f"{text} < {label(caller)}", f"{text} < {plain(caller.function)}"


def site_of(value: int) -> int | None:
    """The place of a call site by the code of a cell, LETTERED for the rare ones; None for other cells."""
    return (value - _FIRST) // 2 if _FIRST <= value < _MISSING else None


def _character(value: int) -> str:
    site = site_of(value)
    if site is not None:
        letter = chr(ord("A") + site) if site < LETTERED else RARE
        return letter.lower() if (value - _FIRST) % 2 else letter
    return {_MISSING: "!", _ABSENT: "!", _GONE: "?"}.get(value, " ")


def _style(value: int) -> int:
    site = site_of(value)
    if site is not None:
        return _HUES[site % len(_HUES)] if site < LETTERED else FAINT
    return {_MISSING: int(Mark.MISSING), _ABSENT: int(Mark.ABSENT), _GONE: int(Mark.UNSURE)}.get(value, 0)


CHARACTERS: Codes = np.frombuffer("".join(map(_character, range(256))).encode("ascii"), np.uint8)
"""The character of each code."""
STYLES: Codes = np.array([_style(value) for value in range(256)], np.uint8)
"""The style of each code."""
_MEANINGS = (((_ABSENT, _MISSING), "! never issued"), ((_GONE,), "? not known"))


def legend(sites: LetteredSites, present: Codes) -> list[str]:
    """The meaning of each of these codes: marks, then call sites by operation and place."""
    values = sorted(map(int, present))
    words = [meaning for of, meaning in _MEANINGS if not set(of).isdisjoint(values)]
    numbers = sorted({site for value in values if (site := site_of(value)) is not None})
    pending = any(site_of(value) is not None and (value - _FIRST) % 2 for value in values)
    words += ["lower case waits"] if pending else []
    words += [f"{sites.letter(at)} {sites.short(at)}" for at in numbers if at < LETTERED]
    return [*words, *([f"{RARE} others"] if LETTERED in numbers else [])]


def most_frequent(sites: Sequence[int], counts: Sequence[int]) -> list[tuple[int, int]]:
    """Call sites with their counts, the most frequent first; of equal ones those with the earlier letter first."""
    return sorted(zip(sites, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
