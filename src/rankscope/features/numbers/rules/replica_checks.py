"""Rules over steps and ranks: inputs that are stale or shared, and replicas that part.

S1 and S2 are about what ranks bring to reductions; S3 is about gradients and parameters that several ranks hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from rankscope.features.numbers.rules.collective_units import CollectiveUnits, group_kinds
from rankscope.features.numbers.rules.equality_checks import MOST_BROKEN, EqualityChecks, check_twins, is_varied
from rankscope.features.numbers.rules.model import BrokenRule
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text

MOST_SAME_SHARE = 0.5
"""Share of the reductions of a group in a step with the same input from two ranks, from which on it is no chance."""
LEARNED_STEPS = 2
"""First recorded steps from which is learned what ranks have in common, and what each step issues."""
_NORM = r"(?i)norm|(?:^|\.)ln[_.\d]"
"""Names of layers whose weights begin as constants."""
_PART = ["name", "site", "occurrence", "slot", "slice", "micro"]
_SHARD = ["offsets", "global_shape"]


def check_replicas(dataset: Dataset, units: CollectiveUnits) -> EqualityChecks:
    """The places that break the rules over steps and ranks."""
    found = EqualityChecks([], {}, {})
    inputs = _summed_inputs(dataset, units)
    answers = [_stale_inputs(inputs), _same_inputs(inputs), _same_batches(dataset), *_parted(dataset)]
    answers += [_changed_weights(dataset), *(ReplicaAnswer(*one) for one in check_twins(dataset, units))]
    steps = dataset.tensors["step"].drop_nulls().unique().sort().to_list()
    if len(steps) > LEARNED_STEPS:
        learned = steps[:LEARNED_STEPS]
        answers += [_joined_batches(dataset, learned), _parted_values(dataset, learned), _left_out(dataset, steps)]
    for asked, broken, rows in answers:
        for rule, count in asked.items():
            found.asked[rule] = found.asked.get(rule, 0) + count
            if rows is not None:
                found.rows[rule] = pl.concat([found.rows[rule], rows]) if rule in found.rows else rows
        for one in broken:
            found.counts[one.rule] = found.counts.get(one.rule, 0) + 1
        found.broken.extend(broken[:MOST_BROKEN])
    return found


class ReplicaAnswer(NamedTuple):
    """How often each rule was asked, and what breaks it."""

    asked: dict[str, int]
    broken: list[BrokenRule]
    rows: pl.Series | None = None
    """Rows of `Dataset.tensors` about which the rule was asked; None where it does not tell them."""


def _summed_inputs(dataset: Dataset, units: CollectiveUnits) -> pl.DataFrame:
    """Inputs of sums and averages, with their statistics."""
    sums = pl.col("op").is_in(["all_reduce", "reduce_scatter", "reduce"]) & pl.col("reduce_op").is_in(["sum", "avg"])
    rows = units.rows.filter(~pl.col("is_out") & sums & pl.col("dtype").str.contains("^b?f"))
    told = dataset.tensors.select("min", "max", "l2")[rows["row"].to_numpy()]
    return pl.concat([rows, told], how="horizontal").filter(is_varied())


# S1: an input that the same call had in an earlier step.


def _stale_inputs(inputs: pl.DataFrame) -> ReplicaAnswer:
    call = ["rank", "group", "op", "nth_in_step", "place", "piece"]
    rows = inputs.with_columns(nth_in_step=pl.col("call").rank("dense").over(["rank", "group", "op", "step"]))
    rows = rows.sort("step", "order").with_columns(
        first=pl.col("step").first().over([*call, "hash"]), began=pl.col("step").min().over(call),
        again=pl.len().over("rank", "step"),
    )  # fmt: skip
    rows = rows.with_columns(stale=pl.col("first") < pl.col("step"))
    # a step that repeats whole is a job that does not learn, not a buffer
    rows = rows.with_columns(share=pl.col("stale").mean().over("rank", "step"), all=pl.col("stale").all().over("step"))
    stale = rows.filter(pl.col("stale") & ~pl.col("all"))
    asked = rows.filter(pl.col("began") < pl.col("step")).height
    before = rows.select(*call, "hash", first="step", before="row").unique([*call, "hash", "first"], keep="first")
    stale = stale.join(before, on=[*call, "hash", "first"], how="left", maintain_order="left")
    broken = [
        BrokenRule("S1", row, (rank,), (), (rank,), rows=(earlier,),
                   note=f"its input is what it had in step {first}")
        for row, rank, earlier, first in stale.select("row", "rank", "before", "first").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S1": asked}, broken)


# S2: two ranks that bring the same.


def _same_inputs(inputs: pl.DataFrame) -> ReplicaAnswer:
    """Ranks whose inputs to most reductions of their group in a step are those of another member."""
    per_step, call = ["group", "step"], ["group", "step", "call", "op", "nth"]
    whole = inputs.group_by([*call, "rank"], maintain_order=True).agg(
        pl.col("hash").sum(), pl.col("row", "size").first(), parts=pl.len()
    )  # fmt: skip
    calls = whole.select(call).unique().group_by(per_step).agg(total=pl.len())
    sets = whole.group_by([*call, "hash", "parts"], maintain_order=True).agg(
        ranks=pl.col("rank").sort(), row=pl.col("row").first(), other=pl.col("row").last()
    ).filter(pl.col("ranks").list.len() > 1)  # fmt: skip
    often = sets.group_by(*per_step, "ranks", maintain_order=True).agg(pl.len(), pl.col("row", "other").first())
    often = often.join(calls, on=per_step)
    broken = [
        BrokenRule("S2", row, (), tuple(ranks), tuple(ranks), count / total, MOST_SAME_SHARE, (other,),
                   note=f"{count} of {total} inputs are equal bit for bit")
        for ranks, row, other, count, total in often.filter(pl.col("len") > MOST_SAME_SHARE * pl.col("total"))
        .sort("step", "row").select("ranks", "row", "other", "len", "total").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S2": inputs["unit"].n_unique()}, broken)


def _same_batches(dataset: Dataset) -> ReplicaAnswer:
    """Data-parallel ranks with the same batch. Ranks are data-parallel if all of their parameters are equal in the
    first recorded step; ranks that share a model in other ways read the same batch for good reasons."""
    held = dataset.tensors.filter((pl.col("site") == "parameter") & is_varied())
    first = held.filter(pl.col("step") == pl.col("step").min())
    models = first.group_by("rank").agg(model=pl.struct("name", "hash").sort_by("name").hash().sum())
    batches = dataset.tensors.with_row_index("row").filter((pl.col("site") == "batch") & is_varied())
    rows = batches.join(models, on="rank", how="inner", maintain_order="left")
    keys = ["step", "micro", "name", "occurrence", "slot", "model"]
    sets = rows.group_by(keys, maintain_order=True).agg(
        ranks=pl.col("rank"), row=pl.col("row").first(), other=pl.col("row").last(),
        same=pl.col("hash").n_unique() == 1, size=pl.col("rank").n_unique(),
    )  # fmt: skip
    asked = sets.filter(pl.col("size") > 1)
    broken = [
        BrokenRule("S2", row, (), tuple(sorted(set(ranks))), tuple(sorted(set(ranks))), rows=(other,),
                   note="their models are equal, and they read the same batch")
        for ranks, row, other in asked.filter("same").select("ranks", "row", "other").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S2": asked.height}, broken)


# S3: replicas that part.


def _parted(dataset: Dataset) -> list[ReplicaAnswer]:
    """Replicas that differ: those that placements declare, and those that were equal in the first recorded step."""
    known = pl.col("hash").is_not_null() & (pl.col("numel") > 0) & (pl.col("nan").fill_null(0) == 0)
    held = pl.col("site").is_in(["gradient", "parameter", "optimizer"])
    rows = dataset.tensors.with_row_index("row").filter(held & known)
    if rows.is_empty():
        return []
    rows = rows.with_columns(pl.col("name").cast(pl.String), placed=pl.col("placements").cast(pl.String))
    declared = rows.filter(pl.col("placed").is_not_null() & ~pl.col("placed").str.contains("P"))
    return [_declared(declared), _learned(rows.filter(pl.col("placed").is_null()))]


def _declared(rows: pl.DataFrame) -> ReplicaAnswer:
    """Shards with the same place in the whole tensor, which every rank that holds them holds alike."""
    keys = [*_PART, "step", *_SHARD, "placed", "mesh", "dtype", "numel"]
    sets = rows.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(",") for name in _SHARD)
    sets = sets.group_by(keys, maintain_order=True).agg(pl.col("rank", "hash", "row", "order"))
    sets = sets.filter(pl.col("rank").list.n_unique() > 1)
    wrong = sets.filter(pl.col("hash").list.n_unique() > 1)
    broken = [_odd("S3", *one) for one in wrong.select("rank", "hash", "row").iter_rows()]
    return ReplicaAnswer({"S3": sets.height}, broken, sets["row"].explode())


def _learned(rows: pl.DataFrame) -> ReplicaAnswer:
    """Tensors that were equal on several ranks in the first recorded step, and are not in a later one."""
    first = rows.filter(pl.col("step") == pl.col("step").min().over(_PART))
    # constants are equal by their initialisation, but for norms, of which every rank has the same
    told = first.filter(is_varied() | pl.col("name").str.contains(_NORM))
    classes = told.group_by([*_PART, "hash"]).agg(pl.col("rank").unique()).filter(pl.col("rank").list.len() > 1)
    classes = classes.with_row_index("set").drop("hash").explode("rank")
    later = rows.join(classes, on=[*_PART, "rank"], how="inner", nulls_equal=True, maintain_order="left")
    sets = later.group_by("set", "step", maintain_order=True).agg(pl.col("rank", "hash", "row"))
    sets = sets.filter(pl.col("rank").list.len() > 1)
    wrong = sets.filter(pl.col("hash").list.n_unique() > 1).sort("step", maintain_order=True)
    broken = [_odd("S3l", *one) for one in wrong.select("rank", "hash", "row").iter_rows()]
    return ReplicaAnswer({"S3l": sets.height}, broken, sets["row"].explode())


def _odd(rule: str, ranks: Sequence[int], hashes: Sequence[int], rows: Sequence[int]) -> BrokenRule:
    """The ranks that hold another value than most; all are candidates where none has a majority."""
    (usual, most), *others = Counter(hashes).most_common()
    wrong = [i for i, own in enumerate(hashes) if own != usual] if most > sum(n for _, n in others) else []
    shown = rows[wrong[0]] if wrong else rows[0]
    against = next(row for row, own in zip(rows, hashes, strict=True) if own != hashes[list(rows).index(shown)])
    holders = tuple(sorted(set(ranks)))
    return BrokenRule(
        rule, shown, tuple(sorted({ranks[i] for i in wrong})), () if wrong else holders, holders, rows=(against,),
        note=f"{1 + len(others)} different values on {len(holders)} ranks",
    )  # fmt: skip


# S5: weights between two steps.


def _changed_weights(dataset: Dataset) -> ReplicaAnswer:
    """Parameters that are not, on some ranks, what the optimizer left in the step before; a change on all ranks that
    hold the name is meant."""
    key = ["rank", "name", "numel", "dtype"]
    rows = dataset.tensors.with_row_index("row").filter(
        pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0)
    )
    left = rows.filter((pl.col("site") == "optimizer") & (pl.col("slot").cast(pl.String) == "out0"))
    left = left.select(*key, pl.col("step") + 1, left="hash", left_row="row").unique([*key, "step"], keep="last")
    held = rows.filter(pl.col("site") == "parameter").unique([*key, "step"], keep="first", maintain_order=True)
    both = held.select(*key, "step", "order", "hash", "row").join(left, on=[*key, "step"], how="inner")
    both = both.with_columns(changed=pl.col("hash") != pl.col("left"))
    wrong = both.filter(pl.col("changed") & ~pl.col("changed").all().over("name", "step")).sort("step", "row")
    broken = [
        BrokenRule("S5", row, (rank,), (), (rank,), rows=(before,),
                   note="the optimizer left another value in the step before, and on other ranks this one")
        for row, rank, before in wrong.select("row", "rank", "left_row").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S5": both.height}, broken, both["row"])


# What ranks have in common in the first two recorded steps, and not later.

_VALUE = ["site", "op", "kind", "name", "slot", "slice", "micro", "numel", "dtype"]


def _valued(dataset: Dataset) -> pl.DataFrame:
    """Tensors of reductions and losses, with the description of their group: its twins have the same one."""
    known = pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0)
    reduced = pl.col("op").cast(pl.String).is_in(["all_reduce", "reduce_scatter"])
    held = (pl.col("site") == "loss") & (pl.col("l2").fill_null(1.0) != 0)
    told = (held | ((pl.col("site") == "collective") & reduced & is_varied())) & known
    rows = dataset.tensors.with_row_index("row").filter(told)
    rows = rows.join(group_kinds(dataset), on="group", how="left", maintain_order="left")
    return rows.select("row", "rank", "step", "hash", *_VALUE)


def _parted_values(dataset: Dataset, learned: Sequence[int]) -> ReplicaAnswer:
    """Sums and losses that were equal on several ranks in the first steps, and are not in a later one."""
    rows = _valued(dataset)
    begun = rows.filter(pl.col("step").is_in(list(learned)))
    twins = begun.select("step", "hash", "rank").unique().filter(pl.len().over("step", "hash") > 1)
    kinds = begun.join(twins, on=["step", "hash", "rank"], how="semi").select(_VALUE).unique()
    rows = rows.join(kinds, on=_VALUE, how="semi", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(k=pl.int_range(pl.len()).over(["rank", "step", *_VALUE]))
    key = [*_VALUE, "k"]
    equal = rows.filter(pl.col("step").is_in(list(learned))).group_by([*key, "step", "hash"]).agg(
        ranks=pl.col("rank").unique().sort()
    ).filter(pl.col("ranks").list.len() > 1)  # fmt: skip
    lasting = equal.group_by([*key, "ranks"]).agg(pl.col("step").n_unique()).filter(pl.col("step") == len(learned))
    sets = lasting.drop("step").with_row_index("set")
    later = rows.filter(pl.col("step") > learned[-1]).join(
        sets.with_columns(rank="ranks").explode("rank"), on=[*key, "rank"], how="inner", nulls_equal=True
    )  # fmt: skip
    held = later.sort("row").group_by("set", "step", maintain_order=True).agg(
        pl.col("rank", "hash", "row"), size=pl.col("ranks").first().list.len()
    ).filter(pl.col("rank").list.len() == pl.col("size"))  # fmt: skip
    wrong = held.filter(pl.col("hash").list.n_unique() > 1).sort("step", maintain_order=True)
    broken = [_odd("S3l", *one) for one in wrong.select("rank", "hash", "row").iter_rows()]
    return ReplicaAnswer({"S3l": held.height}, broken, held["row"].explode())


def _joined_batches(dataset: Dataset, learned: Sequence[int]) -> ReplicaAnswer:
    """Ranks that had different batches in the first steps, and the same one in a later step."""
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "batch") & is_varied())
    key = ["micro", "name", "occurrence", "slot", "step"]
    told = rows.select("rank", "row", "hash", *key)
    pairs = told.join(told.select(*key, other="rank", its="hash", its_row="row"), on=key, how="inner", nulls_equal=True)
    pairs = pairs.filter(pl.col("rank") < pl.col("other")).with_columns(equal=pl.col("hash") == pl.col("its"))
    apart = pairs.filter(pl.col("step").is_in(list(learned))).group_by("rank", "other").agg(pl.col("equal").any())
    apart = apart.filter(~pl.col("equal")).select("rank", "other")
    later = pairs.filter(pl.col("step") > learned[-1]).join(apart, on=["rank", "other"], how="semi")
    same = later.filter("equal").group_by(*key, "hash", maintain_order=True).agg(
        ranks=pl.concat_list("rank", "other").explode().unique().sort(), row=pl.col("row").first(),
        other=pl.col("its_row").last(),
    ).sort("step", maintain_order=True)  # fmt: skip
    broken = [
        BrokenRule("S2", row, (), tuple(ranks), tuple(ranks), rows=(other,),
                   note=f"their batches were different up to step {learned[-1]}")
        for ranks, row, other in same.select("ranks", "row", "other").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S2": later.height}, broken)


def _left_out(dataset: Dataset, steps: Sequence[int]) -> ReplicaAnswer:
    """Operations that a rank issued in each of the first steps, and in none of two or more later ones."""
    key = ["rank", "group", "op", "slot", "numel", "dtype"]
    moved = dataset.tensors.with_row_index("row").filter(pl.col("site").is_in(["collective", "p2p"]))
    counts = moved.group_by(*key, "step").agg(pl.len(), pl.col("row").max())
    seen = dataset.tensors.select("rank", "step").drop_nulls().unique()
    grid = counts.select(key).unique().join(seen, on="rank").join(
        counts, on=[*key, "step"], how="left", nulls_equal=True
    ).with_columns(pl.col("len").fill_null(0))  # fmt: skip
    first = pl.col("step").is_in(list(steps[:LEARNED_STEPS]))
    facts = grid.sort("step").group_by(key, maintain_order=True).agg(
        usual=pl.col("len").filter(first).min(), most=pl.col("len").filter(first).max(),
        last=pl.col("len").tail(2), row=pl.col("row").filter(first).last(), steps=pl.len(),
    )  # fmt: skip
    asked = facts.filter((pl.col("usual") == pl.col("most")) & (pl.col("usual") > 0) & (pl.col("steps") > 3))
    less = asked.filter(pl.col("last").list.max() < pl.col("usual"))
    where = grid.filter(pl.col("len") > 0).join(less.select(*key, "usual"), on=key, nulls_equal=True)
    ends = where.filter(pl.col("len") >= pl.col("usual")).group_by(key).agg(pl.col("row").sort_by("step").last())
    sets = ends.group_by("op", "slot", "numel", "dtype").agg(pl.col("rank").unique().sort(), pl.col("row").sort())
    everybody = dataset.tensors["rank"].n_unique()
    broken = [
        BrokenRule("S4", rows[0], tuple(ranks) if len(ranks) < everybody else (), (), tuple(ranks),
                   rows=tuple(rows[1:2]), note="later steps have fewer of this kind and size: one is left out, or uses "
                   f"another group, on {ranks_text(ranks)}")
        for ranks, rows in sets.sort("row").select("rank", "row").iter_rows()
    ]  # fmt: skip
    return ReplicaAnswer({"S4": asked.height}, broken)
