"""Where two runs begin to differ: the first differing tensor of each rank, and whether its operation made the
difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.analysis.numbers.model import format_of
from rankscope.analysis.numbers.response_limits import LEAST_ROUNDOFFS
from rankscope.analysis.numbers.tensor_matching import KEY, ComparedTensors

SINGLE_ROOTS = 8
"""Most first differences that are told."""


def differing(table: pl.DataFrame, judged: bool) -> pl.DataFrame:
    """The tensors that differ; if `judged`, beyond their limits."""
    return table.filter(pl.col("off") > pl.col("limit")) if judged else table.filter(~pl.col("equal"))


def difference_origins(found: ComparedTensors, *, judged: bool = False) -> list[list[DifferenceOrigin]]:
    """The first differing tensor of each rank that nobody else brought in, those at the same place together; in
    program order. If `judged`, those beyond their limits, else all that are not equal."""
    table = found.table.with_columns(is_in=pl.col("slot").str.starts_with("in"))
    bad = differing(table, judged)
    if bad.is_empty():
        return []
    first = bad.sort("step", "order").unique("rank", keep="first", maintain_order=True).sort("rank", nulls_last=False)
    # of a million rows, those around the first differences
    near = table.join(first, on=["rank", "step"], how="semi", nulls_equal=True, maintain_order="left")
    same = table.join(first, on=_OPERATION, how="semi", nulls_equal=True, maintain_order="left")
    sent = table.filter(pl.col("op") == "send")
    wrong = set(bad["row"].to_list())
    firsts = [DifferenceOrigin.of(one, near, same, sent, wrong) for one in first.iter_rows(named=True)]
    own = [one for one in firsts if not one.is_brought]
    places: dict[tuple[object, ...], list[DifferenceOrigin]] = {}
    for one in sorted(own or firsts, key=lambda one: (one.first["step"] or 0, one.first["order"] or 0)):
        places.setdefault(tuple(one.first[name] for name in _PLACE), []).append(one)
    return list(places.values())[:SINGLE_ROOTS]


_PLACE = ("step", "site", "name", "op", "slot")
_OPERATION = [name for name in KEY if name not in ("slot", "slice")]


@dataclass(frozen=True)
class DifferenceOrigin:
    """The first differing tensor of a rank."""

    first: dict[str, Any]
    """Its row of `ComparedTensors.table`."""
    is_exact: bool
    """All recorded inputs of the operation are equal: it made the difference."""
    is_brought: bool
    """It came out of an operation into which another member brought a difference."""
    before: str
    """The last equal tensor before it, in words."""
    inputs: tuple[int, ...] = ()
    """Rows of `tensors` of the run under test with the inputs of the operation, of all members."""

    @classmethod
    def of(
        cls, first: dict[str, Any], near: pl.DataFrame, same: pl.DataFrame, sent: pl.DataFrame, wrong: set[int]
    ) -> DifferenceOrigin:
        """The first one of a rank, or of whole tensors.

        `near` has the tensors of the rank in that step, `same` those of the operation, `sent` all sends, and `wrong`
        the rows that differ.
        """
        mine = pl.col("rank").eq_missing(first["rank"])
        here = same.filter(*(pl.col(name).eq_missing(first[name]) for name in _OPERATION))
        inputs = here.filter(pl.col("is_in"))
        others = _others(sent, first) if first["site"] == "p2p" else inputs.filter(~mine)
        brought = not wrong.isdisjoint(others["row"])
        own = not wrong.isdisjoint(inputs.filter(mine)["row"])
        earlier = near.filter(mine & (pl.col("step") == first["step"]) & (pl.col("order") < first["order"]))
        before = (
            "nothing was compared before it"
            if earlier.is_empty()
            else f"before it {_words(earlier.sort('order').row(-1, named=True))} is equal"
        )
        is_moved = first["site"] in ("collective", "p2p") and not first["is_in"]
        exact = not first["is_in"] and not inputs.is_empty() and not own and not brought
        return cls(first, exact, is_moved and brought and not own, before, tuple(inputs["row"].to_list()))


def _others(table: pl.DataFrame, first: dict[str, object]) -> pl.DataFrame:
    """The send that belongs to a receive."""
    group, _, peer = str(first["lane"]).rpartition(":")
    sent = (pl.col("op") == "send") & (pl.col("lane") == f"{group}:{first['rank']}")
    return table.filter(
        sent & (pl.col("rank").cast(pl.String) == peer) & pl.col("step").eq_missing(first["step"])
        & pl.col("occurrence").eq_missing(first["occurrence"])
    )  # fmt: skip


def _words(row: dict[str, object]) -> str:
    return " ".join(str(part) for part in (row["slot"], "of", row["op"] or row["site"], row["name"]) if part)


def is_small(row: dict[str, Any]) -> bool:
    """Whether a difference is as small as some roundings of its format."""
    form = format_of(row["dtype"])
    return form is not None and float(row["off"]) <= 2 * LEAST_ROUNDOFFS * form.roundoff
