"""One code for each operation of two runs: equal codes mean equal operation, sizes, types, group and peer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, filled_array
from rankscope.analysis.comparison.matched_groups import GroupMatching
from rankscope.analysis.signatures import distinct_calls, element_count, once, wire_name
from rankscope.text.tensors import tensors

Signature = tuple[str, int | None, int | None, str | None, str | None]
_ROLES = 3
"""Roles of a row in a coalesced group."""


class Call(NamedTuple):
    """One operation in comparable form."""

    op: str
    elements: tuple[int | None, int | None]
    """Elements that go in and out."""
    dtypes: tuple[str | None, str | None]
    group: int
    """Number of the matched group."""
    peer: int | None
    shown: str
    """Its words: "all_reduce [64,32] f32"."""


def call_codes(a: pl.DataFrame, b: pl.DataFrame, groups: GroupMatching) -> tuple[Ints, Ints]:
    """The code of each row of two tables of operations."""
    numbers: dict[Signature, int] = {}
    coded = [_signature_numbers(rows, numbers) for rows in (a, b)]
    tops = [int(rows["peer"].max() or 0) for rows in (a, b) if rows.height]  # type: ignore[arg-type]
    peers = max(tops, default=0) + 3
    out = []
    for rows, own, of in zip((a, b), coded, (groups.of_a, groups.of_b), strict=True):
        group = filled_array(rows["group"].cast(pl.Int64), -1)
        code = own * (groups.size + 1)
        code += np.where(group < 0, groups.size, of[group]) if len(of) else groups.size
        code = code * peers + filled_array(rows["peer"].cast(pl.Int64), -2) + 2
        out.append(code * _ROLES + rows["coalesced"].to_physical().cast(pl.Int64).fill_null(0).to_numpy())
    return out[0], out[1]


def _signature_numbers(rows: pl.DataFrame, numbers: dict[Signature, int]) -> Ints:
    """The number of each row's signature; new ones are added to `numbers`."""
    distinct, place = distinct_calls(rows)
    own = [numbers.setdefault(_signature(*row), len(numbers)) for row in distinct.cast(pl.String).iter_rows()]
    found: Ints = np.array(own, np.int64)[place.to_numpy()] if own else np.zeros(0, np.int64)
    return found


def _signature(
    op: str | None, in_sizes: str | None, out_sizes: str | None, in_dtypes: str | None, out_dtypes: str | None
) -> Signature:
    name = wire_name(op or "")
    if name.endswith("barrier"):
        return name, None, None, None, None
    return name, element_count(in_sizes), element_count(out_sizes), _type(in_dtypes), _type(out_dtypes)


def _type(dtypes: str | None) -> str | None:
    return None if dtypes in (None, "", "[]", "null") else once(dtypes or "")


def call_of(row: dict[str, object], numbers: Ints) -> Call:
    """The comparable form of one row of operations."""
    texts = [None if row[name] is None else str(row[name]) for name in CALL_COLUMNS]
    op, in_elements, out_elements, in_type, out_type = _signature(*texts)
    group, peer = row["group"], row["peer"]
    words = tensors(texts[1], texts[3]) or tensors(texts[2], texts[4])
    return Call(
        op, (in_elements, out_elements), (in_type, out_type), int(numbers[group]) if isinstance(group, int) else -1,
        peer if isinstance(peer, int) else None, f"{texts[0]} {words}".strip(),
    )  # fmt: skip


CALL_COLUMNS = ("op", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes")
"""Columns from which a signature is made."""
