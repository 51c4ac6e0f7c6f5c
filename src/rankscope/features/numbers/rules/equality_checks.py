"""Exact rules, by hashes: members end with the same bits, integers add up, twins are equal, inputs are fresh.

Those over steps and ranks are learned: from the first steps, from other ranks, or from the forward pass. S1 and S2 are
about what ranks bring to reductions; S3 is about gradients and parameters that several ranks hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.collective_units import (
    EQUAL_OUTPUTS,
    MOVES,
    REDUCTIONS,
    CollectiveUnits,
    group_kinds,
)
from rankscope.features.numbers.rules.model import INTEGER_BITS, MOST_BROKEN, BrokenRule, RuleAnswer, format_of
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text


def check_equality(dataset: Dataset, units: CollectiveUnits) -> list[RuleAnswer]:
    """The answers of the rules about bits, on collectives, sends and receives."""
    answers = []
    for rule, (asked, wrong, rows), broken_at in (
        ("E1", _unequal_outputs(units), _differing_members),
        ("E2", _moved_wrong(units), _wrong_receivers),
        ("E3", _wrong_integers(units), _wrong_sum),
    ):
        times = wrong.group_by("unit").agg(pl.col("step", "order").min()).sort("step", "order", "unit")
        first = wrong.join(times.head(MOST_BROKEN), on="unit", how="semi", maintain_order="left")
        broken = [broken_at(place) for place in first.partition_by("unit", maintain_order=True)]
        answers.append(RuleAnswer(rule, asked, broken, times.height, rows))
    return [*answers, _wrong_receives(dataset)]


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
    wrong = [i for i, digest in enumerate(hashes) if digest != usual] if most > sum(n for _, n in others) else []
    note = "" if wrong else f"there are {len(counts)} different results"
    if len(counts) == 2 and not wrong:
        first, second = ([r for r, digest in zip(ranks, hashes, strict=True) if digest == half] for half in counts)
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
    return BrokenRule(
        "E2", wrong["row"][0], *who, tuple(sorted({source["rank"], *members})), rows=(source["row"],), note=note
    )


def _wrong_integers(units: CollectiveUnits) -> tuple[int, pl.DataFrame, pl.Series]:
    """E3: hashes are sums over elements of weight times bits, so those of a sum add up modulo 2**bits."""
    fit = pl.col("op").is_in(REDUCTIONS) & (pl.col("reduce_op") == "sum") & pl.col("dtype").is_in(list(INTEGER_BITS))
    fit &= ~pl.col("foreign")
    whole = units.chosen(units.table.select(fit & pl.col("whole") & pl.col("alike")).to_series())
    rows = whole.rows.filter(pl.col("numel") > 0)
    ins = (
        rows.filter(~pl.col("is_out"))
        .group_by("unit")
        .agg(total=pl.col("hash").sum(), known=pl.col("hash").is_not_null().all())
    )
    both = rows.filter(pl.col("is_out") & pl.col("hash").is_not_null()).join(ins.filter("known"), on="unit")
    bits = both["dtype"].replace_strict(dict(INTEGER_BITS), return_dtype=pl.UInt64).to_numpy().astype(np.uint64)
    mask = np.where(bits == 64, ~np.uint64(0), (np.uint64(1) << (bits % np.uint64(64))) - np.uint64(1))
    off = (both["hash"].to_numpy() ^ both["total"].to_numpy()) & mask
    wrong = both.filter(pl.Series(off != 0, dtype=pl.Boolean)).select("unit").unique()
    return both.height, rows.join(wrong, on="unit", how="semi", maintain_order="left"), both["row"]


def _wrong_sum(rows: pl.DataFrame) -> BrokenRule:
    outs = rows.filter("is_out")
    return BrokenRule(
        "E3",
        outs["row"][0],
        members=tuple(rows["rank"].unique().sort()),
        rows=tuple(rows.filter(~pl.col("is_out"))["row"][:2]),
    )


_LANE = ["group", "source", "target", "step"]


def _wrong_receives(dataset: Dataset) -> RuleAnswer:
    """E2: the receives that got what was not sent in the step.

    Lanes with other numbers of sends and receives in a step are left out: which belongs to which is not known then.
    """
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "p2p") & pl.col("peer").is_not_null())
    if rows.is_empty():
        return RuleAnswer.of("E2", 0)
    is_send = pl.col("op").cast(pl.String) == "send"
    rows = rows.with_columns(
        source=pl.when(is_send).then("rank").otherwise("peer"), target=pl.when(is_send).then("peer").otherwise("rank"),
        is_send=is_send,
    ).sort("row").with_columns(
        k=pl.coalesce(pl.col("occurrence").cast(pl.Int64), pl.int_range(pl.len()).over([*_LANE, "is_send"]))
    )  # fmt: skip
    lanes = rows.group_by([*_LANE, "is_send"]).agg(pl.len(), hashes=pl.col("hash"))
    sends, gets = (lanes.filter(pl.col("is_send") == is_sent).drop("is_send") for is_sent in (True, False))
    even = sends.join(gets, on=[*_LANE, "len"], how="inner", nulls_equal=True).select(*_LANE, sent_in_step="hashes")
    keys = [*_LANE, "k", "numel", "dtype"]
    sent = rows.filter(pl.col("is_send") & _known()).select(*keys, sent="hash", sent_row="row")
    pairs = rows.filter(~pl.col("is_send") & _known()).join(sent, on=keys, how="inner", nulls_equal=True)
    pairs = pairs.join(even, on=_LANE, how="inner", nulls_equal=True)
    wrong = pairs.filter(pl.col("hash") != pl.col("sent")).sort("step", "row")
    broken = [
        # batched sends may be matched in another order, by their tags
        BrokenRule("E2", row, candidates=tuple(sorted({*pair})), members=tuple(sorted({*pair})), rows=(sent_row,))
        for row, sent_row, *pair, digest, sent in wrong.select(
            "row", "sent_row", "source", "target", "hash", "sent_in_step"
        ).iter_rows()
        if digest not in sent
    ]
    return RuleAnswer.of("E2", pairs.height, broken, pairs["row"])


FEWEST_ELEMENTS = 8
"""Tensors of no more elements are flags and counters: they may be equal for good reasons."""
MOST_ROUNDOFFS = 64.0
"""Difference, in units of roundoff, that a kernel which is not deterministic may make."""
MOST_STALE, FEWEST_SENT = 0.5, 2
"""Share of old weights among those that healthy ranks send, and the fewest that a rank must send to be judged."""


def is_varied() -> pl.Expr:
    """Whether a tensor is large and no constant, so that equality is no chance."""
    spread = (pl.col("min") != pl.col("max")).fill_null(value=True)
    large = (pl.col("numel") > FEWEST_ELEMENTS) & pl.col("hash").is_not_null()
    return large & (pl.col("l2").fill_null(1.0) != 0) & spread


def _tied_weights(dataset: Dataset) -> RuleAnswer:
    """Parameters of different names that hold the same bits before and after a first update, and later do not."""
    is_weight = pl.col("site").is_in(["parameter"]) & is_varied() & (pl.col("nan").fill_null(0) == 0)
    rows = dataset.tensors.with_row_index("row").filter(is_weight)
    rows = rows.select("row", "rank", "step", "hash", "numel", name=pl.col("name").cast(pl.String))
    steps = rows["step"].drop_nulls().unique().sort().head(2).to_list()
    if len(steps) < 2:
        return RuleAnswer.of("S3t", 0)
    both = [pl.col("hash").filter(pl.col("step") == step).first().alias(f"hash_{n}") for n, step in enumerate(steps)]
    begun = rows.group_by("rank", "name", "numel", maintain_order=True).agg(*both).drop_nulls()
    changed = begun.filter(pl.col("hash_0") != pl.col("hash_1"))
    twins = changed.filter(pl.col("name").n_unique().over("hash_0", "hash_1", "numel") > 1)
    twins = twins.with_columns(set=pl.struct("hash_0", "hash_1", "numel").rank("dense"))
    later = rows.filter(pl.col("step") > steps[-1]).join(twins, on=["rank", "name", "numel"], how="inner")
    sets = (
        later.sort("row")
        .group_by("set", "step", maintain_order=True)
        .agg(pl.col("rank", "hash", "row", "name"), names=pl.col("name").unique().sort())
        .filter(pl.col("names").list.len() > 1)
        .sort("step", maintain_order=True)
    )
    broken = [
        _tied(ranks, hashes, digests, names, steps[-1])
        for ranks, hashes, digests, names in sets.filter(pl.col("hash").list.n_unique() > 1)
        .select("rank", "hash", "row", "name")
        .iter_rows()
    ]
    return RuleAnswer.of("S3t", sets.height, broken)


def _tied(ranks: list[int], hashes: list[int], rows: list[int], names: list[str], last: int) -> BrokenRule:
    other = next(i for i, digest in enumerate(hashes) if digest != hashes[0])
    holders = tuple(sorted(set(ranks)))
    note = f"{' and '.join(sorted(set(names))[:3])} held the same weights up to step {last}, and are tied no more"
    return BrokenRule("S3t", rows[other], (), holders, holders, rows=(rows[0],), note=note)


def _recomputed(dataset: Dataset) -> RuleAnswer:
    """Outputs and inputs of modules that are computed again for the backward pass, and differ from all that the module
    had in the forward pass of the step by more than a kernel which is not deterministic makes, or only on a rank."""
    key = ["rank", "step", "name", "slot", "numel", "dtype"]
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "forward") & is_varied())
    rows = rows.with_columns(pl.col("name", "slot", "dtype").cast(pl.String))
    again = rows.filter(pl.col("recompute").fill_null(value=False))
    if again.is_empty():
        return RuleAnswer.of("S6", 0)
    first = rows.filter(~pl.col("recompute").fill_null(value=False)).select(*key, its="hash", its_row="row")
    pairs = again.select(*key, "hash", "row", "order").join(first, on=key, how="inner", nulls_equal=True)
    judged = pairs.group_by("row", maintain_order=True).agg(
        pl.col("rank", "step", "name", "slot", "dtype", "order").first(),
        equal=(pl.col("hash") == pl.col("its")).any(),
        its_row=pl.col("its_row").last(),
    )
    usual = pl.col("equal").mean().over("name", "slot") > MOST_STALE
    wrong = judged.with_columns(usual=usual).filter(~pl.col("equal"))
    far = _is_far(dataset, wrong)
    wrong = wrong.filter(pl.col("usual") | far).sort("step", "order")
    everybody = judged["rank"].n_unique()
    broken = [
        BrokenRule("S6", row, (rank,) if odd < everybody else (), (), (rank,), rows=(its,),
                   note="the forward pass had another value: the generator of random numbers, or the input, differs")
        for row, rank, its, odd in wrong.with_columns(odd=pl.col("rank").n_unique().over("name", "slot", "step"))
        .select("row", "rank", "its_row", "odd").iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("S6", judged.height, broken)


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


def _sent_weights(dataset: Dataset, units: CollectiveUnits) -> RuleAnswer:
    """Ranks that broadcast, or give to all_gathers, in a step only what they gave in the step before, while they sent
    new values before and others do now."""
    sent = pl.col("op").is_in(["broadcast", "all_gather"]) & ~pl.col("is_out") & pl.col("dtype").str.contains("^b?f")
    rows = units.rows.filter(sent)
    statistics = dataset.tensors.select("min", "max", "l2")[rows["row"].to_numpy()]
    rows = pl.concat([rows, statistics], how="horizontal").filter(is_varied())
    call = ["rank", "group", "op", "k", "numel"]
    rows = (
        rows.sort("step", "order")
        .with_columns(k=pl.int_range(pl.len()).over("rank", "group", "op", "numel", "step"))
        .with_columns(before=pl.col("hash").shift().over(call), before_row=pl.col("row").shift().over(call))
        .drop_nulls("before")
        .with_columns(stale=pl.col("hash") == pl.col("before"))
    )
    lane = ["group", "op"]
    facts = (
        rows.group_by(*lane, "rank", "step", maintain_order=True)
        .agg(pl.len(), pl.col("stale").mean(), pl.col("row", "before_row").first())
        .sort("step", maintain_order=True)
    )
    facts = facts.with_columns(
        usual=pl.col("stale").shift().over(*lane, "rank").fill_null(1.0),
        others=(pl.col("stale").sum().over(*lane, "step") - pl.col("stale"))
        / (pl.len().over(*lane, "step") - 1).replace(0, None),
    )
    lost = facts.filter(
        (pl.col("len") >= FEWEST_SENT)
        & (pl.col("stale") == 1)
        & (pl.col("usual") < MOST_STALE)
        & (pl.col("others") < MOST_STALE)
    )
    broken = [
        BrokenRule("S1", row, (rank,), (), (rank,), rows=(before,),
                   note=f"all {count} tensors that {ranks_text((rank,))} sends there are those of the step before, and "
                   "others send new ones: its update is lost")
        for row, rank, before, count in lost.select("row", "rank", "before_row", "len").iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("S1", facts.height, broken)


MOST_SAME_SHARE = 0.5
"""Share of the reductions of a group in a step with the same input from two ranks, from which on it is no chance."""
LEARNED_STEPS = 2
"""First recorded steps from which is learned what ranks have in common, and what each step issues."""
_NORM = r"(?i)norm|(?:^|\.)ln[_.\d]"
"""Names of layers whose weights begin as constants."""
_PART = ["name", "site", "occurrence", "slot", "slice", "micro"]
_SHARD = ["offsets", "global_shape"]


def check_replicas(dataset: Dataset, units: CollectiveUnits) -> list[RuleAnswer]:
    """The answers of the rules over steps and ranks."""
    # inputs of sums and averages, with their statistics
    sums = pl.col("op").is_in(["all_reduce", "reduce_scatter", "reduce"]) & pl.col("reduce_op").is_in(["sum", "avg"])
    rows = units.rows.filter(~pl.col("is_out") & sums & pl.col("dtype").str.contains("^b?f"))
    statistics = dataset.tensors.select("min", "max", "l2")[rows["row"].to_numpy()]
    inputs = pl.concat([rows, statistics], how="horizontal").filter(is_varied())
    answers = [_stale_inputs(inputs), _same_inputs(inputs), _same_batches(dataset), *_parted(dataset)]
    answers += [_changed_weights(dataset), _tied_weights(dataset), _recomputed(dataset), _sent_weights(dataset, units)]
    steps = dataset.tensors["step"].drop_nulls().unique().sort().to_list()
    if len(steps) > LEARNED_STEPS:
        learned = steps[:LEARNED_STEPS]
        answers += [_joined_batches(dataset, learned), _parted_values(dataset, learned), _left_out(dataset, steps)]
    return answers


def _stale_inputs(inputs: pl.DataFrame) -> RuleAnswer:
    call = ["rank", "group", "op", "nth_in_step", "place", "piece"]
    rows = inputs.with_columns(nth_in_step=pl.col("call").rank("dense").over(["rank", "group", "op", "step"]))
    rows = rows.sort("step", "order").with_columns(
        first=pl.col("step").first().over([*call, "hash"]),
        began=pl.col("step").min().over(call),
        again=pl.len().over("rank", "step"),
    )
    rows = rows.with_columns(stale=pl.col("first") < pl.col("step"))
    # a step that repeats whole is a job that does not learn, not a buffer
    rows = rows.with_columns(share=pl.col("stale").mean().over("rank", "step"), all=pl.col("stale").all().over("step"))
    stale = rows.filter(pl.col("stale") & ~pl.col("all"))
    asked = rows.filter(pl.col("began") < pl.col("step")).height
    before = rows.select(*call, "hash", first="step", before="row").unique([*call, "hash", "first"], keep="first")
    stale = stale.join(before, on=[*call, "hash", "first"], how="left", maintain_order="left")
    broken = [
        BrokenRule("S1", row, (rank,), (), (rank,), rows=(earlier,), note=f"its input is what it had in step {first}")
        for row, rank, earlier, first in stale.select("row", "rank", "before", "first").iter_rows()
    ]
    return RuleAnswer.of("S1", asked, broken)


def _same_inputs(inputs: pl.DataFrame) -> RuleAnswer:
    """Ranks whose inputs to most reductions of their group in a step are those of another member."""
    per_step, call = ["group", "step"], ["group", "step", "call", "op", "nth"]
    whole = inputs.group_by([*call, "rank"], maintain_order=True).agg(
        pl.col("hash").sum(), pl.col("row", "size").first(), parts=pl.len()
    )
    calls = whole.select(call).unique().group_by(per_step).agg(total=pl.len())
    sets = (
        whole.group_by([*call, "hash", "parts"], maintain_order=True)
        .agg(ranks=pl.col("rank").sort(), row=pl.col("row").first(), other=pl.col("row").last())
        .filter(pl.col("ranks").list.len() > 1)
    )
    often = sets.group_by(*per_step, "ranks", maintain_order=True).agg(pl.len(), pl.col("row", "other").first())
    often = often.join(calls, on=per_step)
    broken = [
        BrokenRule("S2", row, (), tuple(ranks), tuple(ranks), count / total, MOST_SAME_SHARE, (other,),
                   note=f"{count} of {total} inputs are equal bit for bit")
        for ranks, row, other, count, total in often.filter(pl.col("len") > MOST_SAME_SHARE * pl.col("total"))
        .sort("step", "row").select("ranks", "row", "other", "len", "total").iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("S2", inputs["unit"].n_unique(), broken)


def _same_batches(dataset: Dataset) -> RuleAnswer:
    """Data-parallel ranks with the same batch. Ranks are data-parallel if all of their parameters are equal in the
    first recorded step; ranks that share a model in other ways read the same batch for good reasons."""
    weights = dataset.tensors.filter((pl.col("site") == "parameter") & is_varied())
    first = weights.filter(pl.col("step") == pl.col("step").min())
    models = first.group_by("rank").agg(model=pl.struct("name", "hash").sort_by("name").hash().sum())
    batches = dataset.tensors.with_row_index("row").filter((pl.col("site") == "batch") & is_varied())
    rows = batches.join(models, on="rank", how="inner", maintain_order="left")
    keys = ["step", "micro", "name", "occurrence", "slot", "model"]
    sets = rows.group_by(keys, maintain_order=True).agg(
        ranks=pl.col("rank"),
        row=pl.col("row").first(),
        other=pl.col("row").last(),
        same=pl.col("hash").n_unique() == 1,
        size=pl.col("rank").n_unique(),
    )
    asked = sets.filter(pl.col("size") > 1)
    broken = [
        BrokenRule("S2", row, (), tuple(sorted(set(ranks))), tuple(sorted(set(ranks))), rows=(other,),
                   note="their models are equal, and they read the same batch")
        for ranks, row, other in asked.filter("same").select("ranks", "row", "other").iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("S2", asked.height, broken)


def _parted(dataset: Dataset) -> list[RuleAnswer]:
    """Replicas that differ: those that placements declare, and those that were equal in the first recorded step."""
    known = pl.col("hash").is_not_null() & (pl.col("numel") > 0) & (pl.col("nan").fill_null(0) == 0)
    is_state = pl.col("site").is_in(["gradient", "parameter", "optimizer"])
    rows = dataset.tensors.with_row_index("row").filter(is_state & known)
    if rows.is_empty():
        return []
    rows = rows.with_columns(pl.col("name").cast(pl.String), placed=pl.col("placements").cast(pl.String))
    declared = rows.filter(pl.col("placed").is_not_null() & ~pl.col("placed").str.contains("P"))
    # shards with the same place in the whole tensor: every rank that holds them holds them alike
    keys = [*_PART, "step", *_SHARD, "placed", "mesh", "dtype", "numel"]
    sets = declared.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(",") for name in _SHARD)
    sets = sets.group_by(keys, maintain_order=True).agg(pl.col("rank", "hash", "row", "order"))
    sets = sets.filter(pl.col("rank").list.n_unique() > 1)
    wrong = sets.filter(pl.col("hash").list.n_unique() > 1)
    broken = [_odd("S3", *row) for row in wrong.select("rank", "hash", "row").iter_rows()]
    return [
        RuleAnswer.of("S3", sets.height, broken, sets["row"].explode()),
        _learned(rows.filter(pl.col("placed").is_null())),
    ]


def _learned(rows: pl.DataFrame) -> RuleAnswer:
    """Tensors that the first recorded step has alike on several ranks, and that differ in it or in a later one."""
    first = rows.filter(pl.col("step") == pl.col("step").min().over(_PART))
    # constants are equal by their initialisation, but for norms, of which every rank has the same
    learned = first.filter(is_varied() | pl.col("name").str.contains(_NORM))
    replicas, begun = _replicas(learned), _uneven(learned)
    classes = learned.join(replicas, on=[*_PART, "rank"], how="anti", nulls_equal=True)
    # what is wrong in the first step is in the weights of others in the next one
    classes = classes.join(begun.select(_PART).unique(), on=_PART, how="anti", nulls_equal=True)
    classes = classes.group_by([*_PART, "hash"]).agg(pl.col("rank").unique()).filter(pl.col("rank").list.len() > 1)
    classes = classes.with_row_index("set").drop("hash").explode("rank")
    replicas = replicas.with_columns(set=pl.struct(_PART).rank("dense") + classes.height)
    classes = pl.concat([classes, replicas.select(classes.columns)], how="vertical_relaxed")
    later = rows.join(classes, on=[*_PART, "rank"], how="inner", nulls_equal=True, maintain_order="left")
    sets = later.group_by("set", "step", maintain_order=True).agg(pl.col("rank", "hash", "row"))
    sets = sets.filter(pl.col("rank").list.len() > 1)
    wrong = sets.filter(pl.col("hash").list.n_unique() > 1).sort("step", maintain_order=True)
    broken = [_odd("S3l", *row) for row in wrong.select("rank", "hash", "row").iter_rows()]
    broken = [*map(_wrong_from_the_start, begun.partition_by([*_PART, "held"], maintain_order=True)), *broken]
    rows_asked = pl.concat([sets["row"].explode(), begun["row"]])
    return RuleAnswer.of("S3l", sets.height + begun.select(_PART).n_unique(), broken, rows_asked)


def _uneven(first: pl.DataFrame) -> pl.DataFrame:
    """Gradients of the first step that some ranks with equal weights have alike and others alone: rows with `held`, the
    weight, and `alike`, how many ranks have the same value.

    In a layout that is right each value has as many holders: data-parallel ranks have others, those that split the
    layers the same one.
    """
    weights = first.filter(pl.col("site") == "parameter").select("rank", "name", "numel", "dtype", held="hash")
    weights = weights.unique(["rank", "name", "numel", "dtype"], keep="first", maintain_order=True)
    rows = first.filter(pl.col("site") == "gradient").join(weights, on=["rank", "name", "numel", "dtype"])
    set_of = [*_PART, "held"]
    rows = rows.with_columns(alike=pl.len().over([*set_of, "hash"]))
    most, least = pl.col("alike").max().over(set_of), pl.col("alike").min().over(set_of)
    return rows.filter((most > least) & (pl.len().over(set_of) > 2)).sort("order", maintain_order=True)


def _wrong_from_the_start(rows: pl.DataFrame) -> BrokenRule:
    """The ranks that have a value with fewer holders than others: a single one is named, of several one is wrong."""
    odd = rows.filter(pl.col("alike") < rows["alike"].max())
    usual = rows.filter(pl.col("alike") == rows["alike"].max())
    ranks = tuple(sorted(odd["rank"].unique().to_list()))
    alone = ranks if len(ranks) == 1 else ()
    note = "others with the same weights have it alike in the first step" + (
        "" if alone else "; which one is wrong is unknown"
    )
    return BrokenRule(
        "S3l", odd["row"][0], alone, () if alone else ranks, ranks, rows=(usual["row"][0],),
        note=f"{ranks_text(ranks)} differ{'s' if alone else ''}, and {note}",
    )  # fmt: skip


def _replicas(first: pl.DataFrame) -> pl.DataFrame:
    """The ranks of each parameter, and of its reduced gradient, that are replicas by most of them: columns of `_PART`
    and rank, with those that differ from the others already in the first step.

    Shards of tensor parallelism have as many holders each, so no value of theirs has a majority; neither has a gradient
    that only its owner has reduced. The state of an optimizer may lie with its owner alone and is not learned so.
    """
    holders = [name for name in _PART if name not in ("site", "slot")]
    is_reduced = (pl.col("site") == "gradient") & pl.col("slot").cast(pl.String).str.starts_with("out")
    rows = first.filter((pl.col("site") == "parameter") | is_reduced)
    size = ["dtype", "numel"]
    most = rows.group_by([*_PART, *size, "hash"]).agg(alike=pl.col("rank").n_unique())
    most = most.with_columns(usual=(pl.col("alike") == pl.col("alike").max().over([*_PART, *size])))
    rows = rows.join(most, on=[*_PART, *size, "hash"], how="left", nulls_equal=True).with_columns(
        holders=pl.col("rank").n_unique().over([*_PART, *size])
    )
    known = (pl.col("alike").max().over([*_PART, *size]) * 2 > pl.col("holders")) & (pl.col("holders") > 2)
    parameters = rows.filter(pl.col("site") == "parameter")
    # a rank of which most parameters are others than those of the majority holds another part of the model
    held = parameters.filter(known).group_by("rank").agg(share=pl.col("usual").mean())
    members = parameters.filter(known).join(held.filter(pl.col("share") >= MOST_SAME_SHARE), on="rank", how="semi")
    of_model = members.select([*holders, *size, "rank"]).unique()
    return rows.filter(known).join(of_model, on=[*holders, *size, "rank"], how="semi", nulls_equal=True).select(
        [*_PART, "rank"]
    )  # fmt: skip


def _odd(rule: str, ranks: Sequence[int], hashes: Sequence[int], rows: Sequence[int]) -> BrokenRule:
    """The ranks that hold another value than most; all are candidates where none has a majority."""
    (usual, most), *others = Counter(hashes).most_common()
    wrong = [i for i, digest in enumerate(hashes) if digest != usual] if most > sum(n for _, n in others) else []
    shown = rows[wrong[0]] if wrong else rows[0]
    against = next(row for row, digest in zip(rows, hashes, strict=True) if digest != hashes[list(rows).index(shown)])
    holders = tuple(sorted(set(ranks)))
    return BrokenRule(
        rule, shown, tuple(sorted({ranks[i] for i in wrong})), () if wrong else holders, holders, rows=(against,),
        note=f"{1 + len(others)} different values on {len(holders)} ranks",
    )  # fmt: skip


def _changed_weights(dataset: Dataset) -> RuleAnswer:
    """Parameters that are not, on some ranks, what the optimizer left in the step before; a change on all ranks that
    hold the name is meant."""
    key = ["rank", "name", "numel", "dtype"]
    rows = dataset.tensors.with_row_index("row").filter(
        pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0)
    )
    left = rows.filter((pl.col("site") == "optimizer") & (pl.col("slot").cast(pl.String) == "out0"))
    left = left.select(*key, pl.col("step") + 1, left="hash", left_row="row").unique([*key, "step"], keep="last")
    weights = rows.filter(pl.col("site") == "parameter").unique([*key, "step"], keep="first", maintain_order=True)
    both = weights.select(*key, "step", "order", "hash", "row").join(left, on=[*key, "step"], how="inner")
    both = both.with_columns(changed=pl.col("hash") != pl.col("left"))
    wrong = both.filter(pl.col("changed") & ~pl.col("changed").all().over("name", "step")).sort("step", "row")
    broken = [
        BrokenRule("S5", row, (rank,), (), (rank,), rows=(before,),
                   note="the optimizer left another value in the step before, and on other ranks this one")
        for row, rank, before in wrong.select("row", "rank", "left_row").iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("S5", both.height, broken, both["row"])


_VALUE = ["site", "op", "kind", "name", "slot", "slice", "micro", "numel", "dtype"]


def _valued(dataset: Dataset) -> pl.DataFrame:
    """Tensors of reductions and losses, with the description of their group: its twins have the same one."""
    known = pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0)
    reduced = pl.col("op").cast(pl.String).is_in(["all_reduce", "reduce_scatter"])
    is_loss = (pl.col("site") == "loss") & (pl.col("l2").fill_null(1.0) != 0)
    is_valued = (is_loss | ((pl.col("site") == "collective") & reduced & is_varied())) & known
    rows = dataset.tensors.with_row_index("row").filter(is_valued)
    rows = rows.join(group_kinds(dataset), on="group", how="left", maintain_order="left")
    return rows.select("row", "rank", "step", "hash", *_VALUE)


def _parted_values(dataset: Dataset, learned: Sequence[int]) -> RuleAnswer:
    """Sums and losses that were equal on several ranks in the first steps, and are not in a later one."""
    rows = _valued(dataset)
    begun = rows.filter(pl.col("step").is_in(list(learned)))
    twins = begun.select("step", "hash", "rank").unique().filter(pl.len().over("step", "hash") > 1)
    kinds = begun.join(twins, on=["step", "hash", "rank"], how="semi").select(_VALUE).unique()
    rows = rows.join(kinds, on=_VALUE, how="semi", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(k=pl.int_range(pl.len()).over(["rank", "step", *_VALUE]))
    key = [*_VALUE, "k"]
    equal = (
        rows.filter(pl.col("step").is_in(list(learned)))
        .group_by([*key, "step", "hash"])
        .agg(ranks=pl.col("rank").unique().sort())
        .filter(pl.col("ranks").list.len() > 1)
    )
    lasting = equal.group_by([*key, "ranks"]).agg(pl.col("step").n_unique()).filter(pl.col("step") == len(learned))
    # where some ranks have a value alone that others share, a fault may have begun before, and be in all weights since
    counts = (
        begun.join(rows.select("row", "k"), on="row").group_by([*key, "step", "hash"]).agg(pl.col("rank").n_unique())
    )
    even = counts.group_by(key).agg(even=pl.col("rank").n_unique() == 1).filter("even")
    lasting = lasting.join(even, on=key, how="semi", nulls_equal=True)
    sets = lasting.drop("step").with_row_index("set")
    later = rows.filter(pl.col("step") > learned[-1]).join(
        sets.with_columns(rank="ranks").explode("rank"), on=[*key, "rank"], how="inner", nulls_equal=True
    )
    values = (
        later.sort("row")
        .group_by("set", "step", maintain_order=True)
        .agg(pl.col("rank", "hash", "row"), size=pl.col("ranks").first().list.len())
        .filter(pl.col("rank").list.len() == pl.col("size"))
    )
    wrong = values.filter(pl.col("hash").list.n_unique() > 1).sort("step", maintain_order=True)
    broken = [_odd("S3l", *row) for row in wrong.select("rank", "hash", "row").iter_rows()]
    return RuleAnswer.of("S3l", values.height, broken, values["row"].explode())


def _joined_batches(dataset: Dataset, learned: Sequence[int]) -> RuleAnswer:
    """Ranks that had different batches in the first steps, and the same one in a later step."""
    rows = dataset.tensors.with_row_index("row").filter((pl.col("site") == "batch") & is_varied())
    key = ["micro", "name", "occurrence", "slot", "step"]
    batches = rows.select("rank", "row", "hash", *key)
    pairs = batches.join(
        batches.select(*key, other="rank", its="hash", its_row="row"), on=key, how="inner", nulls_equal=True
    )
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
    return RuleAnswer.of("S2", later.height, broken)


def _left_out(dataset: Dataset, steps: Sequence[int]) -> RuleAnswer:
    """Operations that a rank issued in each of the first steps, and in none of two or more later ones."""
    key = ["rank", "group", "op", "slot", "numel", "dtype"]
    moved = dataset.tensors.with_row_index("row").filter(pl.col("site").is_in(["collective", "p2p"]))
    counts = moved.group_by(*key, "step").agg(pl.len(), pl.col("row").max())
    seen = dataset.tensors.select("rank", "step").drop_nulls().unique()
    grid = (
        counts.select(key)
        .unique()
        .join(seen, on="rank")
        .join(counts, on=[*key, "step"], how="left", nulls_equal=True)
        .with_columns(pl.col("len").fill_null(0))
    )
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
    return RuleAnswer.of("S4", asked.height, broken)
