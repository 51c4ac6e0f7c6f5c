"""Limits of differences from a reference, and where two runs begin to differ: the first tensor of each rank.

An operation makes a difference if its inputs are equal in both runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.model import Floats, format_of
from rankscope.features.numbers.rules.tensor_matching import KEY, ComparedTensors
from rankscope.schema import MOST_SAMPLES

RESPONSES = 2.0
"""Limit of a difference, as a multiple of the response of the reference to a perturbation of half an epsilon."""
LEAST_ROUNDOFFS = 4.0
"""The limit is never below this multiple of the unit roundoff."""
LADDER_K, LADDER_C, LADDER_LAYERS = 4.0, 1.03, 32
"""The bound k * C**(L + 1 - l) * epsilon of Megatron-LM's test of gradients, of layer l from 0 on. It is shown and does
not judge; without numbers of layers L is 32 and l is 0."""
_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,4})(?:\.|$)")


def least_limit(dtypes: pl.Series) -> Floats:
    """The lowest limit of each element type, as a share of the norm."""
    return _roundoffs(dtypes) * LEAST_ROUNDOFFS


def _roundoffs(dtypes: pl.Series) -> Floats:
    known = {name: form.roundoff if (form := format_of(name)) else 0.0 for name in dtypes.unique()}
    return np.array([known[name] for name in dtypes], np.float64)


def coarseness(dtypes: pl.Series, others: pl.Series) -> float:
    """Factor by which responses of a run are larger than those of another, by the types of the same tensors in both.

    Responses to a change of half an epsilon grow with the epsilon; the coarsest tensor of a run drives the others.
    It is at least 1.
    """
    own, other = _roundoffs(dtypes), _roundoffs(others)
    known = (own > 0) & (other > 0)
    return max(1.0, float((own[known] / other[known]).max(initial=1.0)))


def sampling_slack(held: Floats) -> Floats:
    """Factor of the limit of a norm that is estimated from so many samples instead of all; 1 for all of them.

    The estimate of a root mean square from h independent samples has a relative deviation of 1 / sqrt(2h); three of
    them are allowed for.
    """
    slack: Floats = (1 + 3 / np.sqrt(2 * np.maximum(held, 1))) / (1 + 3 / np.sqrt(2 * MOST_SAMPLES))
    return slack


def ladder(names: pl.Series, dtypes: pl.Series) -> Floats:
    """Megatron-LM's bound for each tensor, by the number of the layer in its name."""
    found = [_LAYER.search(name or "") for name in names]
    layers = np.array([int(match[1]) if match else 0 for match in found], np.float64)
    count = layers.max(initial=0.0) + 1 if any(found) else float(LADDER_LAYERS)
    return LADDER_K * LADDER_C ** (count + 1 - layers) * 2 * _roundoffs(dtypes)


SINGLE_ROOTS = 8
"""Most first differences that are told."""


def differing(table: pl.DataFrame, judged: bool) -> pl.DataFrame:
    """The tensors that differ; if `judged`, beyond their limits."""
    return table.filter(pl.col("off") > pl.col("limit")) if judged else table.filter(~pl.col("equal"))


def difference_origins(found: ComparedTensors, *, judged: bool = False) -> list[list[DifferenceOrigin]]:
    """The first differing tensor of each rank that nobody else brought in, those at the same place together; in
    program order. If `judged`, those beyond their limits, else all that are not equal."""
    table = found.table.with_columns(is_in=pl.col("slot").str.starts_with("in"), is_source=_is_source())
    bad = differing(table, judged)
    if bad.is_empty():
        return []
    first = bad.sort("step", "order").unique("rank", keep="first", maintain_order=True).sort("rank", nulls_last=False)
    # of a million rows, those around the first differences
    begun = first.select("rank", begun="order")
    equal = table.filter(pl.col("equal") & ~pl.col("is_source")).join(begun, on="rank", nulls_equal=True)
    before = equal.filter(pl.col("order") < pl.col("begun")).sort("order").unique("rank", keep="last")
    right = {row["rank"]: row for row in before.iter_rows(named=True)}
    same = table.join(first, on=_OPERATION, how="semi", nulls_equal=True, maintain_order="left")
    same = pl.concat([same, _updated(table, first).select(same.columns)])
    sent = table.filter(pl.col("op") == "send")
    wrong = set(bad["row"].to_list())
    firsts = [
        DifferenceOrigin.of(one, right.get(one["rank"]), same, sent, wrong) for one in first.iter_rows(named=True)
    ]
    own = [one for one in firsts if not one.is_brought]
    places: dict[tuple[object, ...], list[DifferenceOrigin]] = {}
    for one in sorted(own or firsts, key=lambda one: (one.first["step"] or 0, one.first["order"] or 0)):
        places.setdefault(tuple(one.first[name] for name in _PLACE), []).append(one)
    return list(places.values())[:SINGLE_ROOTS]


_PLACE = ("step", "site", "name", "op", "slot")
_OPERATION = [name for name in KEY if name not in ("slot", "slice", "occurrence")]


def _updated(table: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """Gradients and parameters that went into those new parameters, as their inputs."""
    key, rest = ["rank", "step", "name"], ["site", "micro", "op", "lane", "occurrence"]
    new = first.filter(pl.col("site") == "optimizer").select(*key, *rest).unique(key)
    gradient = (pl.col("site") == "gradient") & ~pl.col("is_in")
    given = table.filter(gradient | (pl.col("site") == "parameter")).drop(rest).with_columns(is_in=pl.lit(value=True))
    return given.join(new, on=key, nulls_equal=True)


def _is_source() -> pl.Expr:
    """Whether a tensor stands beside the flow of activations and gradients, so that its equality tells nothing about
    them: batches, losses, which jobs record late, and weights that are spread. Sharded ones are gathered twice in a
    step."""
    again = pl.struct("hash", "slot", "slice", "numel").is_duplicated().over("rank", "step", "lane", "op")
    gathered = (pl.col("op") == "all_gather") & again.any().over("rank", "lane", "op")
    return (gathered | (pl.col("op") == "broadcast") | pl.col("site").is_in(["batch", "loss"])).fill_null(value=False)


@dataclass(frozen=True)
class DifferenceOrigin:
    """The first differing tensor of a rank."""

    first: dict[str, Any]
    """Its row of `ComparedTensors.table`."""
    is_exact: bool
    """All recorded inputs of the operation are equal: it made the difference."""
    is_brought: bool
    """It came out of an operation into which another member brought a difference."""
    before: dict[str, Any] | None
    """The last equal tensor of the rank before it."""
    inputs: tuple[int, ...] = ()
    """Rows of `tensors` of the run under test with the inputs of the operation, of all members."""

    @classmethod
    def of(
        cls, first: dict[str, Any], before: dict[str, Any] | None, same: pl.DataFrame, sent: pl.DataFrame,
        wrong: set[int],
    ) -> DifferenceOrigin:  # fmt: skip
        """The first one of a rank, or of whole tensors.

        `before` is the last equal tensor before it, `same` has the tensors of its kind of operation in that step,
        `sent` all sends, and `wrong` the rows that differ.
        """
        mine = pl.col("rank").eq_missing(first["rank"])
        # the members of a broadcast have other numbers of inputs: only the number of a call tells it
        call = ("occurrence",) if first["seq"] is None else ("group", "seq")
        here = same.filter(*(pl.col(name).eq_missing(first[name]) for name in (*_OPERATION, *call)))
        inputs = here.filter(pl.col("is_in"))
        others = _others(sent, first) if first["site"] == "p2p" else inputs.filter(~mine)
        brought = not wrong.isdisjoint(others["row"])
        own = not wrong.isdisjoint(inputs.filter(mine)["row"])
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


def _words(row: dict[str, Any]) -> str:
    number = f"#{row['seq']}" if row["seq"] is not None else ""
    return " ".join(str(part) for part in (row["slot"], "of", row["op"] or row["site"], number, row["name"]) if part)


def last_equal(one: DifferenceOrigin) -> str:
    """The last equal tensor before a first difference, in words."""
    if one.before is None:
        return "nothing that was compared before it is equal"
    step = "" if one.before["step"] == one.first["step"] else f" of step {one.before['step']}"
    return f"before it {_words(one.before)}{step} is equal"


def is_small(row: dict[str, Any]) -> bool:
    """Whether a difference is as small as some roundings of its format."""
    form = format_of(row["dtype"])
    return form is not None and float(row["off"]) <= 2 * LEAST_ROUNDOFFS * form.roundoff
