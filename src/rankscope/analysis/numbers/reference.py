"""Numbers of a run against those of a trusted run: where it first differs, and whether that is more than rounding.

Tensors meet by step, micro batch, site, name (or members and operation), slot and k-th. Where both runs have the same
ranks each rank is compared with itself; else shards are merged to whole tensors: their linear hashes add up, and each
holds some of the same sampled places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.analysis.numbers.model import BrokenRule, Floats, RuleCount, format_of
from rankscope.analysis.numbers.number_rules import NumberCause, NumbersJudgement
from rankscope.schema import MOST_SAMPLES, Dataset
from rankscope.text.wording import plural

RESPONSES = 2.0
"""Limit of a difference, as a multiple of the response of the reference to a perturbation of half an epsilon."""
LEAST_ROUNDOFFS = 4.0
"""The limit is never below this multiple of the unit roundoff."""
LADDER_K, LADDER_C, LADDER_LAYERS = 4.0, 1.03, 32
"""The bound k * C**(L + 1 - l) * epsilon of Megatron-LM's test of gradients, with l = 0. It is shown and does not
judge."""
SINGLE_ROOTS = 8
"""Most first differences that are told."""
_KEY = ["step", "micro", "site", "name", "op", "lane", "occurrence", "slot", "slice"]
_SITES_BY_NAME = ("forward", "backward", "gradient", "parameter", "optimizer", "batch", "loss")


@dataclass(frozen=True)
class ComparedTensors:
    """Tensors that both runs have, in the program order of the run under test.

    Columns: those of the key; rank (null for a whole tensor merged from shards), row and other_row (rows of `tensors`
    of each run), order, dtype, equal (bit for bit), off (norm of the difference as a share of the norm of the
    reference, from samples), limit (null where nothing judges), rolled (`off` of shuffled samples).
    """

    table: pl.DataFrame
    unmatched: pl.DataFrame
    """Tensors that one run lacks: the key, numel, rank, row, order, and `ours`, whether the run under test has it."""
    is_ranked: bool


def compare_numbers(ours: Dataset, reference: Dataset, perturbed: Sequence[Dataset] = ()) -> NumbersJudgement:
    """Where a run first differs from its reference; `perturbed` are runs of the reference with a small change."""
    found = compared_tensors(ours, reference)
    judged = _with_limits(found, [compared_tensors(one, reference) for one in perturbed])
    schedule = list(_schedule(judged))
    differences = _first_differences(judged, bool(perturbed))
    causes = [*schedule, *(_after(one, schedule, ours) for one in differences)]
    table = judged.table
    beyond = table.filter(pl.col("off") > pl.col("limit")).height
    counts = (
        RuleCount("RX", table.height, table.height - int(table["equal"].sum())),
        *([RuleCount("RP", table.height - table["limit"].null_count(), beyond)] if perturbed else []),
    )
    return NumbersJudgement(tuple(causes), counts, tuple(_notes(judged, bool(perturbed))))


def compared_tensors(ours: Dataset, reference: Dataset) -> ComparedTensors:
    """The tensors of two runs side by side."""
    ranked = set(ours.tensors["rank"].unique()) == set(reference.tensors["rank"].unique())
    a, b = (_keyed(one) if ranked else _merged(one) for one in (ours, reference))
    keys = [*_KEY, "numel", *(["rank"] if ranked else [])]
    fit = a.join(b, on=keys, how="inner", nulls_equal=True, suffix="_other", maintain_order="left")
    mine, other, held = _samples(fit)
    off, rolled = _distance(mine, other, held), _distance(np.roll(mine, 7, axis=1), other, held)
    same = fit["hash"].eq_missing(fit["hash_other"]) & fit["dtype"].eq_missing(fit["dtype_other"])
    equal = same & fit["hash"].is_not_null()
    table = fit.drop("samples", "samples_other").with_columns(
        equal=equal, off=pl.Series(np.where(equal, 0.0, off)), rolled=pl.Series(rolled), other_row="row_other",
        limit=pl.lit(None, pl.Float64),
    )  # fmt: skip
    lost = [
        one.join(rest, on=keys, how="anti", nulls_equal=True).select(
            *_KEY, "numel", "rank", "row", "order", ours=pl.lit(own)
        )
        for one, rest, own in ((a, b, True), (b, a, False))
    ]
    sites = set(a["site"].unique()) & set(b["site"].unique())
    return ComparedTensors(table, pl.concat(lost).filter(pl.col("site").is_in(list(sites))), ranked)


def _keyed(dataset: Dataset) -> pl.DataFrame:
    """The tensors of each rank with their keys: groups by their members, for names differ between runs."""
    members = dataset.groups.select("group", lane=pl.col("ranks").cast(pl.List(pl.String)).list.join(","))
    texts = [pl.col(name).cast(pl.String) for name in ("site", "name", "op", "reduce_op", "slot", "dtype")]
    rows = dataset.tensors.with_row_index("row").with_columns(texts)
    peer = pl.col("peer").cast(pl.String).fill_null("")
    rows = rows.join(members, on="group", how="left", maintain_order="left")
    rows = rows.with_columns(lane=pl.concat_str(pl.col("lane").fill_null(""), peer, separator=":"))
    # the k-th of its size: one that is left out shifts no others
    place = [name for name in _KEY if name != "occurrence"]
    rows = rows.with_columns(occurrence=pl.int_range(pl.len()).over(["rank", *place, "numel"]))
    return rows.select(
        *_KEY, "rank", "row", "order", "group", "seq", "dtype", "reduce_op", "numel", "hash", "l2", "samples", "held",
        "offsets", "global_shape",
    )  # fmt: skip


def _merged(dataset: Dataset) -> pl.DataFrame:
    """Whole tensors by name: the sum of their shards, each counted once; of replicas the first."""
    rows = _keyed(dataset).filter(pl.col("site").is_in(_SITES_BY_NAME) & (pl.col("name") != ""))
    place = pl.col("offsets").cast(pl.List(pl.String)).list.join(",").fill_null("")
    rows = rows.with_columns(place=place, lane=pl.lit("")).unique([*_KEY, "place"], keep="first", maintain_order=True)
    whole = pl.col("global_shape").list.eval(pl.element().product()).list.first()
    facts = rows.group_by(_KEY, maintain_order=True).agg(
        pl.col("row", "order", "dtype", "place", "group", "seq").first(), rank=pl.lit(None, pl.Int32), shards=pl.len(),
        numel=pl.col("numel").sum(), reduce_op=pl.lit(None, pl.String), whole=whole.first(), hash=pl.col("hash").sum(),
        known=pl.col("hash").is_not_null().all(),
        l2=(pl.col("l2") ** 2).sum().sqrt(), own=pl.col("row"), held=pl.col("held").bitwise_or(),
    )  # fmt: skip
    facts = facts.filter((pl.col("numel") == pl.col("whole")).fill_null(value=True))
    facts = facts.with_columns(hash=pl.when("known").then("hash"))
    return facts.with_columns(_joined_samples(dataset, facts)).drop("shards", "whole", "known", "own", "place")


def _joined_samples(dataset: Dataset, facts: pl.DataFrame) -> pl.Series:
    """The samples of whole tensors: each place from the shard that holds it."""
    own = facts.select(at=pl.int_range(pl.len()), row="own").explode("row")
    values = dataset.tensors["samples"].gather(own["row"]).to_numpy() if own.height else np.empty((0, MOST_SAMPLES))
    out = np.full((facts.height, MOST_SAMPLES), np.nan)
    begin = np.flatnonzero(np.diff(own["at"].to_numpy(), prepend=-1))
    if len(begin):
        out = np.fmax.reduceat(values, begin)
    return pl.Series("samples", out.reshape(-1)).reshape((facts.height, MOST_SAMPLES))


def _samples(fit: pl.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Samples of both runs, and 1.0 where both have one."""
    if fit.is_empty():
        return (np.empty((0, MOST_SAMPLES)),) * 3
    bits = fit["held"].to_numpy() & fit["held_other"].to_numpy()
    held = (bits[:, None] >> np.arange(MOST_SAMPLES, dtype=np.uint64)) & np.uint64(1)
    return fit["samples"].to_numpy(), fit["samples_other"].to_numpy(), held.astype(np.float64)


def _distance(mine: Floats, other: Floats, held: Floats) -> Floats:
    """Norm of the difference of samples as a share of the norm of the reference; infinite where only one is finite."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        one, two = np.where(held > 0, mine, 0.0), np.where(held > 0, other, 0.0)
        alike = (np.isnan(one) & np.isnan(two)) | (one == two)
        gap = np.where(alike, 0.0, one - two)
        norm = np.sqrt((np.where(np.isfinite(two), two, 0.0) ** 2).sum(axis=1))
        off = np.sqrt((np.nan_to_num(gap, nan=np.inf) ** 2).sum(axis=1))
        return np.where(off == 0, 0.0, off / norm)


def _with_limits(found: ComparedTensors, responses: Sequence[ComparedTensors]) -> ComparedTensors:
    """The limit of each tensor: twice the largest response of its name to a perturbation, at least four roundoffs."""
    if not responses:
        return found
    name = ["site", "name", "op", "slot"]
    told = pl.concat([one.table.select(*name, "off") for one in responses])
    largest = told.filter(pl.col("off").is_finite()).group_by(name).agg(response=pl.col("off").max())
    least = pl.col("dtype").replace_strict(
        {d: LEAST_ROUNDOFFS * form.roundoff for d in found.table["dtype"].unique() if (form := format_of(d))},
        default=0.0, return_dtype=pl.Float64,
    )  # fmt: skip
    limit = pl.max_horizontal(RESPONSES * pl.col("response"), pl.when(pl.col("response").is_not_null()).then(least))
    table = found.table.join(largest, on=name, how="left", nulls_equal=True, maintain_order="left")
    return replace(found, table=table.with_columns(limit=limit).drop("response"))


_CALLS = ["rank", *(name for name in _KEY if name != "occurrence"), "numel"]
"""Keys of tensors that only their order tells apart."""


def _schedule(found: ComparedTensors) -> Iterator[NumberCause]:
    """The first tensor that one run recorded and the other did not, if both have the same ranks."""
    lost = found.unmatched.join(found.table.select("step").unique(), on="step", how="semi", nulls_equal=True)
    if not found.is_ranked or lost.is_empty():
        return
    first = _lost_places(found.table, lost).sort("step", "place", "ours").row(0, named=True)
    same = lost.filter(pl.col("ours") == first["ours"])
    ranks = _ranks_at(same, first)
    what = " ".join(part for part in (first["op"] or first["site"], first["name"]) if part)
    note = f"the reference recorded {first['slot']} of {what} in step {first['step']}, and this run did not"
    if first["ours"]:
        note = f"the reference has no such tensor; {plural(same.height, 'tensor')} stand only in this run"
    before = found.table.filter(
        pl.col("equal") & (pl.col("rank") == first["rank"]) & (pl.col("order") < first["place"])
    ).sort("order")
    after = before["row"][-1] if before.height else None
    row = next((one for one in (first["at"], after) if one is not None), found.table["row"][0])
    broken = BrokenRule("RS", row, ranks, (), ranks, note=note, after=after)
    yield NumberCause("schedule-differs", broken, (), same.height, None)


def _lost_places(table: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """The lost tensors, the first of each rank and kind, with `place`, where in the run, and the row `at` there.

    Tensors of one kind are counted, so the last one is left over whichever is left out. The first one that differs
    stands in the place of the one that is left out, unless values differ before it.
    """
    kinds = lost.sort("step", "order").unique([*_CALLS, "ours"], keep="first", maintain_order=True)
    kinds = kinds.select(*_KEY, "numel", "rank", "row", "order", "ours", known=pl.lit(value=True))
    parted = table.filter(~pl.col("equal")).sort("order").unique(_CALLS, keep="first", maintain_order=True)
    others = kinds.join(parted.select(*_CALLS, mine="order", its="order_other"), on=_CALLS, nulls_equal=True)
    others = others.with_columns(order=pl.when("ours").then("mine").otherwise("its"), known=pl.lit(value=False))
    matched = table.select("rank", last="order_other", place="order").drop_nulls("last").sort("last")
    told = pl.concat([kinds, others.select(kinds.columns)]).sort("order").join_asof(
        matched, left_on="order", right_on="last", by="rank", strategy="backward", check_sortedness=False,
        allow_exact_matches=False,
    )  # fmt: skip
    own, first = pl.col("ours"), parted.group_by("rank").agg(first=pl.col("order").min())
    told = told.with_columns(place=pl.when(own).then("order").otherwise(pl.col("place").fill_null(-1) + 1))
    told = told.join(first, on="rank", how="left", maintain_order="left")
    told = told.filter(pl.col("known") | (pl.col("place") <= pl.col("first")))
    standing = pl.concat([table.select("rank", "order", at="row"), lost.filter(own).select("rank", "order", at="row")])
    return told.sort("place").drop("row").join_asof(
        standing.sort("order"), left_on="place", right_on="order", by="rank", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip


def _after(cause: NumberCause, schedule: Sequence[NumberCause], ours: Dataset) -> NumberCause:
    """The cause as a consequence of another schedule, if that parts before it in program order.

    Collectives of one size are counted: from a step on in which one is left out, others stand in its place.
    """
    rows = [cause.first.row, *(one.first.row for one in schedule)]
    told = ours.tensors.select(
        pl.col("step").fill_null(0), pl.col("order").fill_null(0), pl.col("site").cast(pl.String)
    )
    own, *before = told[rows].rows()
    if not before:
        return cause
    follows = before[0][:2] <= own[:2] or (own[2] == "collective" and before[0][0] <= own[0])
    return replace(cause, explained_by=0) if follows else cause


def _ranks_at(rows: pl.DataFrame, first: dict[str, object]) -> tuple[int, ...]:
    same = rows.filter(*(pl.col(name).eq_missing(first[name]) for name in ("step", "site", "name", "op", "slot")))
    return tuple(sorted({rank for rank in same["rank"].to_list() if rank is not None}))


def _first_differences(found: ComparedTensors, judged: bool) -> list[NumberCause]:
    """The first differing tensor of each rank that nobody else brought in, those at the same place together."""
    table = found.table.with_columns(is_in=pl.col("slot").str.starts_with("in"), is_source=_is_source())
    bad = table.filter(pl.col("off") > pl.col("limit")) if judged else table.filter(~pl.col("equal"))
    if bad.is_empty():
        return []
    ranks = bad["rank"].unique().to_list()
    firsts = [_Origin.of(table, bad, rank) for rank in sorted(ranks, key=lambda rank: -1 if rank is None else rank)]
    own = [one for one in firsts if not one.is_brought]
    places: dict[tuple[object, ...], list[_Origin]] = {}
    for one in sorted(own or firsts, key=lambda one: (one.first["step"] or 0, one.first["order"] or 0)):
        places.setdefault(tuple(one.first[name] for name in ("step", "site", "name", "op", "slot")), []).append(one)
    return [_origin_cause(same, judged, bad) for same in list(places.values())[:SINGLE_ROOTS]]


def _is_source() -> pl.Expr:
    """Whether a tensor stands beside the flow of activations and gradients, so that its equality tells nothing about
    them: batches, losses, which jobs record late, and weights that are spread. Sharded ones are gathered twice in a
    step."""
    again = pl.struct("hash", "slot", "slice", "numel").is_duplicated().over("rank", "step", "lane", "op")
    gathered = (pl.col("op") == "all_gather") & again.any().over("rank", "lane", "op")
    return (gathered | (pl.col("op") == "broadcast") | pl.col("site").is_in(["batch", "loss"])).fill_null(value=False)


@dataclass(frozen=True)
class _Origin:
    """The first differing tensor of a rank."""

    first: dict[str, object]
    is_exact: bool
    """All recorded inputs of the operation are equal: it made the difference."""
    is_brought: bool
    """It came out of an operation into which another member brought a difference."""
    before: dict[str, object] | None
    """The last equal tensor of the rank before it."""

    @classmethod
    def of(cls, table: pl.DataFrame, bad: pl.DataFrame, rank: int | None) -> _Origin:
        """The first one of a rank; of whole tensors if `rank` is None."""
        mine = pl.col("rank").eq_missing(rank)
        first = bad.filter(mine).sort("step", "order").row(0, named=True)
        # the members of a broadcast have other numbers of inputs: only the number of a call tells it
        call = ("occurrence",) if first["seq"] is None else ("group", "seq")
        place = [name for name in _KEY if name not in ("slot", "slice", "occurrence")]
        same = table.filter(*(pl.col(name).eq_missing(first[name]) for name in (*place, *call)))
        inputs = same.filter(pl.col("is_in"))
        others = _others(table, first) if first["site"] == "p2p" else inputs.filter(~mine)
        brought = others.join(bad.select("row"), on="row", how="semi")
        own = inputs.filter(mine).join(bad.select("row"), on="row", how="semi")
        exact = not first["is_in"] and own.is_empty() and brought.is_empty()
        earlier = table.filter(mine & pl.col("equal") & ~pl.col("is_source") & (pl.col("order") < first["order"]))
        earlier = earlier.sort("order")
        before = earlier.row(-1, named=True) if earlier.height else None
        is_moved = first["site"] in ("collective", "p2p") and not first["is_in"]
        return cls(first, exact, is_moved and not brought.is_empty() and own.is_empty(), before)


def _others(table: pl.DataFrame, first: dict[str, object]) -> pl.DataFrame:
    """The send that belongs to a receive."""
    group, _, peer = str(first["lane"]).rpartition(":")
    sent = (pl.col("op") == "send") & (pl.col("lane") == f"{group}:{first['rank']}")
    return table.filter(
        sent & (pl.col("rank").cast(pl.String) == peer) & pl.col("step").eq_missing(first["step"])
        & pl.col("occurrence").eq_missing(first["occurrence"])
    )  # fmt: skip


def _words(row: dict[str, object]) -> str:
    number = f"#{row['seq']}" if row["seq"] is not None else ""
    return " ".join(str(part) for part in (row["slot"], "of", row["op"] or row["site"], number, row["name"]) if part)


def _origin_cause(same: Sequence[_Origin], judged: bool, bad: pl.DataFrame) -> NumberCause:
    one = same[0]
    ranks = tuple(sorted({int(str(each.first["rank"])) for each in same if each.first["rank"] is not None}))
    off, limit = float(str(one.first["off"])), one.first["limit"]
    kind = _kind(one)
    where = "all of its recorded inputs are equal, so it made the difference" if one.is_exact else (
        f"at it or before it: {_last_equal(one)}"
    )  # fmt: skip
    note = f"{where}{f'; {kind}' if kind else ''}; {plural(bad.height, 'tensor')} differ in all"
    broken = BrokenRule(
        "RP" if judged else "RX", int(str(one.first["row"])), ranks, (), ranks, off,
        float(str(limit)) if limit is not None else 0.0, tuple(int(str(each.first["row"])) for each in same[1:]), note,
        after=None if one.before is None else int(str(one.before["row"])),
    )  # fmt: skip
    return NumberCause("differs-from-reference", broken, (broken,), 1, None)


def _last_equal(one: _Origin) -> str:
    if one.before is None:
        return "nothing that was compared before it is equal"
    step = "" if one.before["step"] == one.first["step"] else f" of step {one.before['step']}"
    return f"before it {_words(one.before)}{step} is equal"


def _kind(one: _Origin) -> str:
    """The usual reason for such a difference, as a part of a sentence; "" without one."""
    row, form = one.first, format_of(str(one.first["dtype"]))
    small = form is not None and float(str(row["off"])) <= 2 * LEAST_ROUNDOFFS * form.roundoff
    for what in ("dtype", "reduce_op"):
        if row[what] != row[f"{what}_other"]:
            return f"it is {row[what]}, and {row[f'{what}_other']} in the reference"
    if row["site"] == "batch":
        return "the data differ"
    if "dropout" in str(row["name"]).lower():
        return "the seed of a dropout may differ"
    if row["site"] == "collective" and one.is_exact:
        return "another order of additions explains it: algorithm, protocol or topology of the backend" if small else ""
    if row["site"] in ("parameter", "optimizer"):
        return "look at the optimizer and its state"
    return "a kernel that is not deterministic may do that" if small and one.is_exact else ""


def _notes(found: ComparedTensors, judged: bool) -> Iterator[str]:
    """Sentences on the comparison as a whole."""
    table = found.table
    if table.is_empty():
        yield "no tensor of the two runs can be compared"
        return
    how = "rank by rank" if found.is_ranked else "as whole tensors, with shards merged by their places"
    yield f"{plural(table.height, 'tensor')} compared {how}: {int(table['equal'].sum()):,} are equal bit for bit"
    largest = table.filter(~pl.col("equal") & pl.col("off").is_finite()).sort("off", descending=True)
    form = format_of(largest["dtype"][0]) if largest.height else None
    if form is not None:
        ladder = LADDER_K * LADDER_C ** (LADDER_LAYERS + 1) * 2 * form.roundoff
        yield (
            f"the largest relative difference is {largest['off'][0]:.3g}; Megatron's bound of gradients, which does "
            f"not judge here, is {ladder:.3g}"
        )
    if not judged:
        yield "no limit for differences is known: --perturbed runs of the reference give one"
        return
    blind = table.filter(pl.col("rolled") <= pl.col("limit")).height
    if blind * 2 > table.height - table["limit"].null_count():
        yield f"this check cannot tell: shuffled samples pass it as well on {plural(blind, 'tensor')}"
