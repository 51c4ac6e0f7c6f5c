"""Exact rules, by hashes: members end with the same bits, what arrives is what was sent, integers add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rankscope.analysis.numbers.collective_units import EQUAL_OUTPUTS, MOVES, REDUCTIONS, CollectiveUnits
from rankscope.analysis.numbers.model import INTEGER_BITS, BrokenRule
from rankscope.schema import Dataset

MOST_BROKEN = 2_000
"""Most places of one rule that are looked at one by one, the earliest first."""


@dataclass(frozen=True)
class EqualityChecks:
    """Places that break the exact rules, and how often each rule was asked."""

    broken: list[BrokenRule]
    asked: dict[str, int]
    counts: dict[str, int]
    """Places at which each rule does not hold."""
    rows: dict[str, pl.Series] = field(default_factory=dict)
    """Rows of `Dataset.tensors` about which a rule was asked, as far as it tells them."""


def check_equality(dataset: Dataset, units: CollectiveUnits) -> EqualityChecks:
    """The collectives, sends and receives that break a rule about bits."""
    found = EqualityChecks([], {}, {})
    for rule, asked, rows, told, write in (
        ("E1", *_unequal_outputs(units), _differing_members),
        ("E2", *_moved_wrong(units), _wrong_receivers),
        ("E3", *_wrong_integers(units), _wrong_sum),
    ):
        found.asked[rule], found.rows[rule] = asked, told
        times = rows.group_by("unit").agg(pl.col("step", "order").min()).sort("step", "order", "unit")
        found.counts[rule] = times.height
        first = rows.join(times.head(MOST_BROKEN), on="unit", how="semi", maintain_order="left")
        found.broken.extend(write(place) for place in first.partition_by("unit", maintain_order=True))
    received, wrong = _wrong_receives(dataset)
    found.asked["E2"] += len(received)
    found.rows["E2"] = found.rows["E2"].append(received)
    found.counts["E2"] += len(wrong)
    found.broken.extend(wrong[:MOST_BROKEN])
    return found


def _known() -> pl.Expr:
    """Whether a row has a hash that can be compared: a NaN has many forms."""
    return pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0) & (pl.col("numel") > 0)


def _unequal_outputs(units: CollectiveUnits) -> tuple[int, pl.DataFrame, pl.Series]:
    """E1: how many operations have two outputs or more, the outputs of those that differ, and the rows of all."""
    outs = units.rows.filter(pl.col("is_out") & pl.col("op").is_in(EQUAL_OUTPUTS) & _known())
    alike = (pl.col("numel").n_unique() == 1) & (pl.col("dtype").n_unique() == 1)
    facts = outs.group_by("unit").agg(pl.len(), different=pl.col("hash").n_unique() > 1, alike=alike)
    facts = facts.filter((pl.col("len") > 1) & pl.col("alike"))
    asked = outs.join(facts, on="unit", how="inner", maintain_order="left")
    return facts.height, asked.filter("different").drop("len", "different", "alike"), asked["row"]


def _differing_members(outs: pl.DataFrame) -> BrokenRule:
    """The members whose output most others do not have; all are candidates where no output has a majority."""
    hashes, ranks, rows = (outs[name].to_list() for name in ("hash", "rank", "row"))
    counts = Counter(hashes)
    (usual, most), *others = counts.most_common()
    wrong = [i for i, own in enumerate(hashes) if own != usual] if most > sum(n for _, n in others) else []
    note = "" if wrong else f"there are {len(counts)} different results"
    if len(counts) == 2 and not wrong:
        first, second = ([r for r, own in zip(ranks, hashes, strict=True) if own == one] for one in counts)
        note = f"one half ends with other bits than the other: {_list(first)} against {_list(second)}"
    shown = tuple(row for i, row in enumerate(rows) if i not in wrong)[:2]
    return BrokenRule(
        "E1", rows[wrong[0]] if wrong else rows[0], tuple(ranks[i] for i in wrong), () if wrong else tuple(ranks),
        tuple(ranks), rows=shown, note=note,
    )  # fmt: skip


def _list(ranks: list[int]) -> str:
    return f"[{', '.join(map(str, ranks[:4]))}{', ...' if len(ranks) > 4 else ''}]"


def _moved_wrong(units: CollectiveUnits) -> tuple[int, pl.DataFrame, pl.Series]:
    """E2: how many outputs can be compared with what was sent, the rows of units where some differ, and theirs."""
    rows = units.rows.filter(pl.col("op").is_in(MOVES) & _known())
    sent = rows.filter(~pl.col("is_out")).select("unit", "numel", "dtype", sent="hash")
    sent = sent.filter(pl.len().over("unit") == 1)
    # what is cast on its way cannot be compared
    got = rows.filter("is_out").join(sent, on=["unit", "numel", "dtype"], how="inner")
    wrong = got.filter(pl.col("hash") != pl.col("sent")).select("unit").unique()
    return got.height, rows.join(wrong, on="unit", how="semi", maintain_order="left"), got["row"]


def _wrong_receivers(rows: pl.DataFrame) -> BrokenRule:
    """The receivers that got something else; the sender, where all receivers got it."""
    source = rows.filter(~pl.col("is_out")).row(0, named=True)
    outs = rows.filter(pl.col("is_out") & (pl.col("numel") == source["numel"]) & (pl.col("dtype") == source["dtype"]))
    wrong = outs.filter(pl.col("hash") != source["hash"])
    ranks, members = tuple(wrong["rank"]), tuple(outs["rank"])
    if outs.height == wrong.height:
        # the one receiver, or the sender
        alone = ranks if outs.height > 1 else ()
        who: tuple[tuple[int, ...], tuple[int, ...]] = (
            ((source["rank"],), ()) if alone else ((), tuple(sorted({source["rank"], *ranks})))
        )
        note = "all receivers got something else than what was sent" if alone else ""
    else:
        who, note = (ranks, ()), f"{outs.height - wrong.height} of {outs.height} receivers got what was sent"
    return BrokenRule("E2", wrong["row"][0], *who, tuple(sorted({source["rank"], *members})),
                      rows=(source["row"],), note=note)  # fmt: skip


def _wrong_integers(units: CollectiveUnits) -> tuple[int, pl.DataFrame, pl.Series]:
    """E3: hashes are sums over elements of weight times bits, so those of a sum add up modulo 2**bits."""
    fit = pl.col("op").is_in(REDUCTIONS) & (pl.col("reduce_op") == "sum") & pl.col("dtype").is_in(list(INTEGER_BITS))
    fit &= ~pl.col("foreign")
    whole = units.chosen(units.table.select(fit & pl.col("whole") & pl.col("alike")).to_series())
    rows = whole.rows.filter(pl.col("numel") > 0)
    ins = rows.filter(~pl.col("is_out")).group_by("unit").agg(
        total=pl.col("hash").sum(), known=pl.col("hash").is_not_null().all()
    )  # fmt: skip
    both = rows.filter(pl.col("is_out") & pl.col("hash").is_not_null()).join(ins.filter("known"), on="unit")
    bits = both["dtype"].replace_strict(dict(INTEGER_BITS), return_dtype=pl.UInt64).to_numpy().astype(np.uint64)
    mask = np.where(bits == 64, ~np.uint64(0), (np.uint64(1) << (bits % np.uint64(64))) - np.uint64(1))
    off = (both["hash"].to_numpy() ^ both["total"].to_numpy()) & mask
    wrong = both.filter(pl.Series(off != 0, dtype=pl.Boolean)).select("unit").unique()
    return both.height, rows.join(wrong, on="unit", how="semi", maintain_order="left"), both["row"]


def _wrong_sum(rows: pl.DataFrame) -> BrokenRule:
    outs = rows.filter("is_out")
    return BrokenRule("E3", outs["row"][0], members=tuple(rows["rank"].unique().sort()),
                      rows=tuple(rows.filter(~pl.col("is_out"))["row"][:2]))  # fmt: skip


# Sends and receives: the k-th of a step between two ranks.

_LANE = ["group", "source", "target", "step"]


def _wrong_receives(dataset: Dataset) -> tuple[pl.Series, list[BrokenRule]]:
    """Rows of the receives that can be compared, and those that got what was not sent in the step.

    Lanes with other numbers of sends and receives in a step are left out: which belongs to which is not known then.
    """
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "p2p") & pl.col("peer").is_not_null())
    if rows.is_empty():
        return rows["row"], []
    is_send = pl.col("op").cast(pl.String) == "send"
    rows = rows.with_columns(
        source=pl.when(is_send).then("rank").otherwise("peer"), target=pl.when(is_send).then("peer").otherwise("rank"),
        is_send=is_send,
    ).sort("row").with_columns(
        k=pl.coalesce(pl.col("occurrence").cast(pl.Int64), pl.int_range(pl.len()).over([*_LANE, "is_send"]))
    )  # fmt: skip
    lanes = rows.group_by([*_LANE, "is_send"]).agg(pl.len(), hashes=pl.col("hash"))
    sends, gets = (lanes.filter(pl.col("is_send") == one).drop("is_send") for one in (True, False))
    even = sends.join(gets, on=[*_LANE, "len"], how="inner", nulls_equal=True).select(*_LANE, sent_in_step="hashes")
    keys = [*_LANE, "k", "numel", "dtype"]
    sent = rows.filter(pl.col("is_send") & _known()).select(*keys, sent="hash", sent_row="row")
    pairs = rows.filter(~pl.col("is_send") & _known()).join(sent, on=keys, how="inner", nulls_equal=True)
    pairs = pairs.join(even, on=_LANE, how="inner", nulls_equal=True)
    wrong = pairs.filter(pl.col("hash") != pl.col("sent")).sort("step", "row")
    return pairs["row"], list(_unsent(wrong))


def _unsent(wrong: pl.DataFrame) -> Iterator[BrokenRule]:
    for row, sent_row, source, target, own, sent in wrong.select(
        "row", "sent_row", "source", "target", "hash", "sent_in_step"
    ).iter_rows():
        # batched sends may be matched in another order, by their tags
        if own not in sent:
            pair = tuple(sorted({source, target}))
            yield BrokenRule("E2", row, candidates=pair, members=pair, rows=(sent_row,))
