"""Rules on tensors that are twins: weights with two names, activations that are computed again, weights that are sent.

All of them are learned: from the first steps, from other ranks, or from the forward pass.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.numbers.collective_units import CollectiveUnits
from rankscope.analysis.numbers.model import BrokenRule, format_of
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text

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
