"""Exact rules, by hashes: members end with the same bits, integers add up, tensors that are twins are equal.

All of them are learned: from the first steps, from other ranks, or from the forward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.collective_units import EQUAL_OUTPUTS, MOVES, REDUCTIONS, CollectiveUnits
from rankscope.features.numbers.rules.model import INTEGER_BITS, BrokenRule, format_of
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text

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


Answer = tuple[dict[str, int], list[BrokenRule]]
"""How often each rule was asked, and what breaks it."""
FEWEST_ELEMENTS = 8
"""Tensors of no more elements are flags and counters: they may be equal for good reasons."""
MOST_ROUNDOFFS = 64.0
"""Difference, in units of roundoff, that a kernel which is not deterministic may make."""
MOST_STALE, FEWEST_SENT = 0.5, 2
"""Share of old weights among those that healthy ranks send, and the fewest that a rank must send to be judged."""


def check_twins(dataset: Dataset, units: CollectiveUnits) -> list[Answer]:
    """The answers of these rules."""
    return [_tied_weights(dataset), _recomputed(dataset), _sent_weights(dataset, units)]


def is_varied() -> pl.Expr:
    """Whether a tensor is large and no constant, so that equality is no chance."""
    spread = (pl.col("min") != pl.col("max")).fill_null(value=True)
    large = (pl.col("numel") > FEWEST_ELEMENTS) & pl.col("hash").is_not_null()
    return large & (pl.col("l2").fill_null(1.0) != 0) & spread


# S3t: weights under two names.


def _tied_weights(dataset: Dataset) -> Answer:
    """Parameters of different names that hold the same bits before and after a first update, and later do not."""
    held = pl.col("site").is_in(["parameter"]) & is_varied() & (pl.col("nan").fill_null(0) == 0)
    rows = dataset.tensors.with_row_index("row").filter(held)
    rows = rows.select("row", "rank", "step", "hash", "numel", name=pl.col("name").cast(pl.String))
    steps = rows["step"].drop_nulls().unique().sort().head(2).to_list()
    if len(steps) < 2:
        return {}, []
    both = [pl.col("hash").filter(pl.col("step") == step).first().alias(f"hash_{n}") for n, step in enumerate(steps)]
    begun = rows.group_by("rank", "name", "numel", maintain_order=True).agg(*both).drop_nulls()
    changed = begun.filter(pl.col("hash_0") != pl.col("hash_1"))
    twins = changed.filter(pl.col("name").n_unique().over("hash_0", "hash_1", "numel") > 1)
    twins = twins.with_columns(set=pl.struct("hash_0", "hash_1", "numel").rank("dense"))
    later = rows.filter(pl.col("step") > steps[-1]).join(twins, on=["rank", "name", "numel"], how="inner")
    sets = later.sort("row").group_by("set", "step", maintain_order=True).agg(
        pl.col("rank", "hash", "row", "name"), names=pl.col("name").unique().sort()
    ).filter(pl.col("names").list.len() > 1).sort("step", maintain_order=True)  # fmt: skip
    broken = [
        _tied(ranks, hashes, own, names, steps[-1])
        for ranks, hashes, own, names in sets.filter(pl.col("hash").list.n_unique() > 1)
        .select("rank", "hash", "row", "name")
        .iter_rows()
    ]
    return {"S3t": sets.height}, broken


def _tied(ranks: list[int], hashes: list[int], rows: list[int], names: list[str], last: int) -> BrokenRule:
    other = next(i for i, own in enumerate(hashes) if own != hashes[0])
    holders = tuple(sorted(set(ranks)))
    note = f"{' and '.join(sorted(set(names))[:3])} held the same weights up to step {last}, and are tied no more"
    return BrokenRule("S3t", rows[other], (), holders, holders, rows=(rows[0],), note=note)


# S6: activations that are computed again.


def _recomputed(dataset: Dataset) -> Answer:
    """Outputs and inputs of modules that are computed again for the backward pass, and differ from all that the module
    had in the forward pass of the step by more than a kernel which is not deterministic makes, or only on a rank."""
    key = ["rank", "step", "name", "slot", "numel", "dtype"]
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "forward") & is_varied())
    rows = rows.with_columns(pl.col("name", "slot", "dtype").cast(pl.String))
    again = rows.filter(pl.col("recompute").fill_null(value=False))
    if again.is_empty():
        return {}, []
    first = rows.filter(~pl.col("recompute").fill_null(value=False)).select(*key, its="hash", its_row="row")
    pairs = again.select(*key, "hash", "row", "order").join(first, on=key, how="inner", nulls_equal=True)
    judged = pairs.group_by("row", maintain_order=True).agg(
        pl.col("rank", "step", "name", "slot", "dtype", "order").first(),
        equal=(pl.col("hash") == pl.col("its")).any(), its_row=pl.col("its_row").last(),
    )  # fmt: skip
    usual = pl.col("equal").mean().over("name", "slot") > MOST_STALE
    wrong = judged.with_columns(usual=usual).filter(~pl.col("equal"))
    far = _is_far(dataset, wrong)
    wrong = wrong.filter(pl.col("usual") | far).sort("step", "order")
    everybody = judged["rank"].n_unique()
    return {"S6": judged.height}, [
        BrokenRule("S6", row, (rank,) if odd < everybody else (), (), (rank,), rows=(its,),
                   note="the forward pass had another value: the generator of random numbers, or the input, differs")
        for row, rank, its, odd in wrong.with_columns(odd=pl.col("rank").n_unique().over("name", "slot", "step"))
        .select("row", "rank", "its_row", "odd").iter_rows()
    ]  # fmt: skip


def _is_far(dataset: Dataset, pairs: pl.DataFrame) -> pl.Series:
    """Whether the tensors of `row` and `its_row` differ by more than roundings, by norm and projection.

    The projection of a difference d is about sqrt(1.25) times its norm: signs are random, those of columns half as
    large.
    """
    one, two = (dataset.tensors.select("l2", "projection")[pairs[name].to_numpy()] for name in ("row", "its_row"))
    off = [((one[name] - two[name]) * share).abs().fill_null(0.0) for name, share in (("l2", 1.0), ("projection", 0.8))]
    roundoff = [form.roundoff if (form := format_of(dtype)) else 0.0 for dtype in pairs["dtype"].to_list()]
    limit = MOST_ROUNDOFFS * pl.Series(roundoff, dtype=pl.Float64) * two["l2"]
    return (pl.select(pl.max_horizontal(*off)).to_series() > limit).fill_null(value=False)


# S1 of weights: a rank whose update is lost.


def _sent_weights(dataset: Dataset, units: CollectiveUnits) -> Answer:
    """Ranks that broadcast, or give to all_gathers, in a step only what they gave in the step before, while they sent
    new values before and others do now."""
    sent = pl.col("op").is_in(["broadcast", "all_gather"]) & ~pl.col("is_out") & pl.col("dtype").str.contains("^b?f")
    rows = units.rows.filter(sent)
    told = dataset.tensors.select("min", "max", "l2")[rows["row"].to_numpy()]
    rows = pl.concat([rows, told], how="horizontal").filter(is_varied())
    call = ["rank", "group", "op", "k", "numel"]
    rows = rows.sort("step", "order").with_columns(
        k=pl.int_range(pl.len()).over("rank", "group", "op", "numel", "step")
    ).with_columns(
        before=pl.col("hash").shift().over(call), before_row=pl.col("row").shift().over(call)
    ).drop_nulls("before").with_columns(stale=pl.col("hash") == pl.col("before"))  # fmt: skip
    lane = ["group", "op"]
    facts = rows.group_by(*lane, "rank", "step", maintain_order=True).agg(
        pl.len(), pl.col("stale").mean(), pl.col("row", "before_row").first()
    ).sort("step", maintain_order=True)  # fmt: skip
    facts = facts.with_columns(
        usual=pl.col("stale").shift().over(*lane, "rank").fill_null(1.0),
        others=(pl.col("stale").sum().over(*lane, "step") - pl.col("stale"))
        / (pl.len().over(*lane, "step") - 1).replace(0, None),
    )  # fmt: skip
    lost = facts.filter(
        (pl.col("len") >= FEWEST_SENT) & (pl.col("stale") == 1) & (pl.col("usual") < MOST_STALE)
        & (pl.col("others") < MOST_STALE)
    )  # fmt: skip
    return {"S1": facts.height}, [
        BrokenRule("S1", row, (rank,), (), (rank,), rows=(before,),
                   note=f"all {count} tensors that {ranks_text((rank,))} sends there are those of the step before, and "
                   "others send new ones: its update is lost")
        for row, rank, before, count in lost.select("row", "rank", "before_row", "len").iter_rows()
    ]  # fmt: skip
