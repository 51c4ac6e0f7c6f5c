"""Tensors of two runs side by side, limits of their differences, and the first tensor of each rank that differs.

Tensors meet by step, micro batch, site, name (or members and operation), slot and k-th. Where both runs have the same
ranks each rank is compared with itself; else shards are merged to whole tensors: their linear hashes add up, and each
holds some of the same sampled places. An operation makes a difference if its inputs are equal in both runs.

Hashes that are made of bits (CRC-32, MD5, XOR of words) prove by being different that the bits are. They are compared
only with hashes of their own kind, and never added up.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.collective_units import EQUAL_OUTPUTS, CollectiveUnits
from rankscope.features.numbers.rules.model import BrokenRule, Floats, RuleAnswer, format_of
from rankscope.features.numbers.rules.named_tensors import SampleRows, is_no_replay, spread
from rankscope.schema import Dataset
from rankscope.schema.tables import MOST_SAMPLES

BIT_HASHES = ("crc32", "md5", "xor")
"""Kinds of hashes that are made of all bits of a tensor."""
PRINTED = ("min", "max", "sum", "l2")
SAME_NORM = 1e-6
"""Relative difference of two norms up to which they may be of the same tensor, summed in another order."""


def has_records(dataset: Dataset) -> bool:
    """Whether another tool wrote rows."""
    return dataset.tensors["tool"].null_count() < dataset.tensors.height


def hash_kind(dataset: Dataset) -> str | None:
    """The most frequent kind of hash of bits that another tool wrote; None without one."""
    if not has_records(dataset):
        return None
    kinds = dataset.tensors.select(kind=pl.col("md5").str.split(":").list.first()).drop_nulls()
    found = kinds.filter(pl.col("kind").is_in(BIT_HASHES)).group_by("kind").len().sort("len", "kind", descending=True)
    return None if found.is_empty() else str(found["kind"][0])


def with_marks(dataset: Dataset, kind: str | None) -> Dataset:
    """The dataset with the hashes of this kind in place of linear ones that other tools lack, but of no tensor with
    values that are not finite: a NaN has many forms."""
    if kind is None:
        return dataset
    has_mark = pl.col("md5").str.starts_with(f"{kind}:") & pl.col("sum").is_finite().fill_null(value=True)
    mark = pl.when(has_mark).then(pl.col("md5").hash())
    return replace(dataset, tensors=dataset.tensors.with_columns(hash=pl.coalesce("hash", mark)))


def check_printed(dataset: Dataset, units: CollectiveUnits) -> RuleAnswer:
    """E1p: operations with outputs of several members without a hash, of which the smallest or largest element, or the
    norm, is not printed alike."""
    outs = units.rows.filter(
        pl.col("foreign") & pl.col("is_out") & pl.col("op").is_in(EQUAL_OUTPUTS) & (pl.col("numel") > 0)
    )
    if outs.is_empty():
        return RuleAnswer.of("E1p", 0)
    printed = dataset.tensors.select(PRINTED)[outs["row"].to_numpy()]
    outs = pl.concat([outs, printed], how="horizontal")
    finite = pl.all_horizontal(pl.col(name).is_finite() for name in ("min", "max", "l2"))
    facts = outs.group_by("unit").agg(
        told=finite.fill_null(value=False).all() & pl.col("hash").is_null().all() & (pl.len() > 1),
        alike=(pl.col("numel").n_unique() == 1) & (pl.col("dtype").n_unique() == 1),
        different=(pl.col("min").n_unique() > 1) | (pl.col("max").n_unique() > 1)
        | (pl.col("l2").max() - pl.col("l2").min() > SAME_NORM * pl.col("l2").max()),
    ).filter(pl.col("told") & pl.col("alike"))  # fmt: skip
    wrong = outs.join(facts.filter("different"), on="unit", how="semi", maintain_order="left")
    broken = [_odd_members(rows) for rows in wrong.partition_by("unit", maintain_order=True)]
    return RuleAnswer("E1p", facts.height, broken, len(broken))


def _odd_members(outs: pl.DataFrame) -> BrokenRule:
    """The members that print something else than most; all are candidates where nothing has a majority."""
    printed = [tuple(f"{value:.5g}" for value in row) for row in outs.select("min", "max", "l2").iter_rows()]
    (usual, most), *others = Counter(printed).most_common()
    ranks, rows = outs["rank"].to_list(), outs["row"].to_list()
    wrong = [i for i, text in enumerate(printed) if text != usual] if most > sum(n for _, n in others) else []
    members = tuple(sorted(set(ranks)))
    shown = wrong[0] if wrong else 0
    return BrokenRule(
        "E1p",
        rows[shown],
        tuple(sorted({ranks[i] for i in wrong})),
        () if wrong else members,
        members,
        rows=tuple(row for i, row in enumerate(rows) if i not in wrong and i != shown)[:2],
        note="the tool wrote no hash, so bits cannot be compared",
    )


def is_printed_equal() -> pl.Expr:
    """Whether all that was printed of a tensor in two runs is equal, by columns of one and, with "_other", of the
    other. Hashes of different kinds, or of one run only, say nothing."""
    kinds = (pl.col(name).str.split(":").list.first() for name in ("md5", "md5_other"))
    apart = (next(kinds) == next(kinds)) & (pl.col("md5") != pl.col("md5_other"))
    same = (pl.col(name).eq_missing(pl.col(f"{name}_other")) for name in (*PRINTED, "dtype"))
    return pl.all_horizontal(same) & ~apart.fill_null(value=False)


def printed_distance() -> pl.Expr:
    """The largest relative difference of two printed statistics; of extremes relative to the larger magnitude, of L1
    norms where only those are printed. Infinite where only one is finite."""
    size = pl.max_horizontal(pl.col("min_other").abs(), pl.col("max_other").abs())
    parts = [
        (pl.col("l2") - pl.col("l2_other")).abs() / pl.col("l2_other").abs(),
        *((pl.col(name) - pl.col(f"{name}_other")).abs() / size for name in ("min", "max")),
        (_norm("md5") - _norm("md5_other")).abs() / _norm("md5_other").abs(),
    ]
    known = [pl.when(one.is_nan()).then(None).otherwise(one) for one in parts]
    apart = pl.col("sum").is_finite().fill_null(value=True) != pl.col("sum_other").is_finite().fill_null(value=True)
    return pl.when(apart).then(float("inf")).otherwise(pl.max_horizontal(known).fill_null(0.0))


def _norm(column: str) -> pl.Expr:
    """The L1 norm of a mark "l1:13.9"."""
    norm = pl.when(pl.col(column).str.starts_with("l1:")).then(pl.col(column).str.strip_prefix("l1:"))
    return norm.cast(pl.Float64, strict=False)


def tells_something() -> pl.Expr:
    """Whether a row of another tool has anything that can be compared."""
    return pl.any_horizontal(pl.col(name).is_not_null() for name in (*PRINTED, "hash", "md5"))


BLOCK_ROWS = 1 << 14
"""Tensors whose samples are in memory at once."""
KEY = ["step", "micro", "site", "name", "op", "lane", "occurrence", "slot", "slice"]
_STATISTICS = ("l2", "sum", "min", "max")
_MOST_DIGITS = 10
"""Numbers with more digits are those of a computation, and not rounded when they were written."""
_SITES_BY_NAME = ("forward", "backward", "gradient", "parameter", "optimizer", "batch", "loss")


@dataclass(frozen=True)
class ComparedTensors:
    """Tensors that both runs have, in the program order of the run under test.

    Columns: those of the key; rank (null for a whole tensor merged from shards), row and other_row (rows of `tensors`
    of each run), order, dtype, equal (bit for bit, or all that is told), printed (another tool wrote both, without
    hashes that can be compared), off (norm of the difference as a share of the norm of the reference, from samples or
    what is printed), limit (null where nothing judges), rolled (`off` of shuffled samples, NaN if not asked).
    """

    table: pl.DataFrame
    unmatched: pl.DataFrame
    """Tensors that one run lacks: the key, numel, rank, row, order, and `ours`, whether the run under test has it."""
    is_ranked: bool


def compared_tensors(ours: Dataset, reference: Dataset, *, is_rolled: bool = False) -> ComparedTensors:
    """The tensors of two runs side by side; with `rolled` if asked, which takes the samples of all of them."""
    ranked = set(ours.tensors["rank"].unique()) == set(reference.tensors["rank"].unique())
    kind = hash_kind(ours)
    marked = [with_marks(tensors, kind if kind == hash_kind(reference) else None) for tensors in (ours, reference)]
    a, b = (_keyed(tensors) if ranked else _merged(tensors) for tensors in marked)
    keys = [*KEY, "numel", *(["rank"] if ranked else [])]
    fit = a.join(b, on=keys, how="inner", nulls_equal=True, suffix="_other", maintain_order="left")
    tools = pl.col("tool").is_not_null(), pl.col("tool_other").is_not_null()
    hashed = pl.col("hash").is_not_null() & pl.col("hash_other").is_not_null()
    fit = fit.with_columns(printed=tools[0] & tools[1] & ~hashed)
    fit = fit.with_columns(equal=_equal_bits(fit)).filter(pl.col("equal").is_not_null())
    sampled = _with_distances(fit, SampleRows(ours), SampleRows(reference), is_rolled=is_rolled)
    distance = pl.when("equal").then(0.0).when(tools[0] | tools[1]).then(printed_distance()).otherwise("off")
    same_nan = (pl.col("nan") > 0) & (pl.col("nan") == pl.col("nan_other")) & (pl.col("off") == 0)
    table = sampled.with_columns(off=distance).with_columns(equal=pl.col("equal") | same_nan.fill_null(value=False))
    table = table.with_columns(other_row="row_other", limit=pl.lit(None, pl.Float64)).drop("own", "own_other")
    lost = [
        side.join(rest, on=keys, how="anti", nulls_equal=True).select(
            *KEY, "numel", "rank", "row", "order", ours=pl.lit(is_ours)
        )
        for side, rest, is_ours in ((a, b, True), (b, a, False))
    ]
    sites = set(a["site"].unique()) & set(b["site"].unique())
    return ComparedTensors(table, pl.concat(lost).filter(pl.col("site").is_in(list(sites))), ranked)


def _with_distances(fit: pl.DataFrame, ours: SampleRows, reference: SampleRows, *, is_rolled: bool) -> pl.DataFrame:
    """The tensors with `off` and `rolled`, from the samples of those that differ; of all of them if rolled."""
    equal = fit["equal"].to_numpy()
    off, rolled = np.zeros(fit.height), np.full(fit.height, np.nan)
    looked = np.arange(fit.height) if is_rolled else np.flatnonzero(~equal)
    for begin in range(0, len(looked), BLOCK_ROWS):
        rows = looked[begin : begin + BLOCK_ROWS]
        mine, other, sampled = _samples(fit[rows], ours, reference)
        off[rows] = np.where(equal[rows], 0.0, _distance(mine, other, sampled))
        if is_rolled:
            rolled[rows] = _distance(np.roll(mine, 7, axis=1), other, sampled)
    return fit.with_columns(off=pl.Series(off), rolled=pl.Series(rolled))


def _equal_bits(fit: pl.DataFrame) -> pl.Series:
    """Whether tensors are equal: bit for bit by hashes, by all that another tool printed of both, else by their
    statistics up to the last printed digit; null where nothing can be compared."""
    is_equal = pl.when("printed").then(is_printed_equal()).otherwise(pl.col("hash") == pl.col("hash_other"))
    equal = fit.select(is_equal).to_series()
    rest = np.flatnonzero(equal.is_null().to_numpy())
    if len(rest):
        equal = equal.scatter(rest, _equal_statistics(fit[rest]))
    return equal & fit["dtype"].eq_missing(fit["dtype_other"])


def _equal_statistics(fit: pl.DataFrame) -> pl.Series:
    """Whether the statistics that both have are equal; null where they have none in common."""
    columns = [fit.select(name, other=f"{name}_other").rows() for name in _STATISTICS]
    equal = []
    for pairs in zip(*columns, strict=True):
        known = [(ours_value, other) for ours_value, other in pairs if ours_value is not None and other is not None]
        equal.append(all(_alike(ours_value, other) for ours_value, other in known) if known else None)
    return pl.Series(equal, dtype=pl.Boolean)


def _alike(one: float, other: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    return abs(one - other) <= (_last_digit(one) + _last_digit(other)) / 2


def _last_digit(value: float) -> float:
    """The size of the last digit that a number is written with; that of a computed one is far below any difference."""
    if not math.isfinite(value):
        return 0.0
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    return 10.0 ** int(exponent) if len(digits) < _MOST_DIGITS else 0.0


def _keyed(dataset: Dataset) -> pl.DataFrame:
    """The tensors of each rank with their keys: groups by their members, for names differ between runs."""
    members = dataset.groups.select("group", lane=pl.col("ranks").cast(pl.List(pl.String)).list.join(","))
    texts = [pl.col(name).cast(pl.String) for name in ("site", "name", "op", "reduce_op", "slot", "dtype")]
    rows = dataset.tensors.with_row_index("row").filter(is_no_replay()).with_columns(texts)
    peer = pl.col("peer").cast(pl.String).fill_null("")
    rows = rows.join(members, on="group", how="left", maintain_order="left")
    rows = rows.with_columns(lane=pl.concat_str(pl.col("lane").fill_null(""), peer, separator=":"))
    # the k-th of its size: one that is left out shifts no others
    place = [name for name in KEY if name != "occurrence"]
    rows = rows.with_columns(occurrence=pl.int_range(pl.len()).over(["rank", *place, "numel"]))
    return rows.select(
        *KEY, "rank", "row", "order", "group", "seq", "dtype", "reduce_op", "numel", "hash", "md5", "tool",
        *_STATISTICS, "nan", "held", "offsets", "global_shape", own="row",
    ).filter(pl.col("tool").is_null() | tells_something())  # fmt: skip


def _merged(dataset: Dataset) -> pl.DataFrame:
    """Whole tensors by name: the sum of their shards, each counted once; of replicas the first."""
    rows = _keyed(dataset).filter(pl.col("site").is_in(_SITES_BY_NAME) & (pl.col("name") != ""))
    place = pl.col("offsets").cast(pl.List(pl.String)).list.join(",").fill_null("")
    rows = rows.with_columns(place=place, lane=pl.lit("")).unique([*KEY, "place"], keep="first", maintain_order=True)
    whole = pl.col("global_shape").list.eval(pl.element().product()).list.first()
    facts = rows.group_by(KEY, maintain_order=True).agg(
        pl.col("row", "order", "dtype", "place", "group", "seq").first(), rank=pl.lit(None, pl.Int32), shards=pl.len(),
        numel=pl.col("numel").sum(), reduce_op=pl.lit(None, pl.String), whole=whole.first(), hash=pl.col("hash").sum(),
        known=(pl.col("hash").is_not_null() & pl.col("tool").is_null()).all(), tool=pl.col("tool").first(),
        md5=pl.lit(None, pl.String), l2=(pl.col("l2") ** 2).sum().sqrt(), sum=pl.col("sum").sum(),
        min=pl.col("min").min(), max=pl.col("max").max(), nan=pl.col("nan").sum(), own=pl.col("row"),
        held=pl.col("held").bitwise_or(),
    )  # fmt: skip
    facts = facts.filter((pl.col("numel") == pl.col("whole")).fill_null(value=True))
    facts = facts.with_columns(hash=pl.when("known").then("hash"))
    return facts.drop("shards", "whole", "known", "place")


def sample_pairs(
    table: pl.DataFrame, ours: Dataset, reference: Dataset
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Samples of compared tensors of ranks in both runs, shape (rows, MOST_SAMPLES), and where both have one."""
    (mine, own), (other, its) = (
        SampleRows(run).take(table[name]) for run, name in ((ours, "row"), (reference, "other_row"))
    )
    return mine, other, spread(own & its)


def _samples(fit: pl.DataFrame, ours: SampleRows, reference: SampleRows) -> tuple[Floats, Floats, Floats]:
    """Samples of both runs, and 1.0 where both have one."""
    sampled = spread(fit["held"].to_numpy() & fit["held_other"].to_numpy())
    return _joined(ours, fit["own"]), _joined(reference, fit["own_other"]), sampled.astype(np.float64)


def _joined(samples: SampleRows, rows: pl.Series) -> Floats:
    """The samples of rows; of lists of rows, the shards of a tensor, each sample from the shard that holds it."""
    if not isinstance(rows.dtype, pl.List):
        return samples.take(rows)[0]
    begins = np.cumsum(np.append(0, rows.list.len().to_numpy()[:-1]))
    largest: Floats = np.fmax.reduceat(samples.take(rows.explode())[0], begins)
    return largest


def _distance(mine: Floats, other: Floats, sampled: Floats) -> Floats:
    """Norm of the difference of samples as a share of the norm of the reference; infinite where only one is finite."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ours, theirs = np.where(sampled > 0, mine, 0.0), np.where(sampled > 0, other, 0.0)
        alike = (np.isnan(ours) & np.isnan(theirs)) | (ours == theirs)
        gap = np.where(alike, 0.0, ours - theirs)
        norm = np.sqrt((np.where(np.isfinite(theirs), theirs, 0.0) ** 2).sum(axis=1))
        off = np.sqrt((np.nan_to_num(gap, nan=np.inf) ** 2).sum(axis=1))
        return np.where(off == 0, 0.0, off / norm)


RESPONSES = 2.0
"""Limit of a difference, as a multiple of the response of the reference to a perturbation of half an epsilon."""
LEAST_ROUNDOFFS = 4.0
"""The limit is never below this multiple of the unit roundoff."""


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
    ours, other = _roundoffs(dtypes), _roundoffs(others)
    known = (ours > 0) & (other > 0)
    return max(1.0, float((ours[known] / other[known]).max(initial=1.0)))


def sampling_slack(counts: Floats) -> Floats:
    """Factor of the limit of a norm that is estimated from so many samples instead of all; 1 for all of them.

    The estimate of a root mean square from h independent samples has a relative deviation of 1 / sqrt(2h); three of
    them are allowed for.
    """
    slack: Floats = (1 + 3 / np.sqrt(2 * np.maximum(counts, 1))) / (1 + 3 / np.sqrt(2 * MOST_SAMPLES))
    return slack


SINGLE_ROOTS = 8
"""Most first differences that are told."""


def differing(table: pl.DataFrame, judged: bool) -> pl.DataFrame:
    """The tensors that differ; if `judged`, beyond their limits."""
    return table.filter(pl.col("off") > pl.col("limit")) if judged else table.filter(~pl.col("equal"))


def difference_origins(compared: ComparedTensors, *, judged: bool = False) -> list[list[DifferenceOrigin]]:
    """The first differing tensor of each rank that nobody else brought in, those at the same place together; in
    program order. If `judged`, those beyond their limits, else all that are not equal."""
    table = compared.table.with_columns(is_in=pl.col("slot").str.starts_with("in"), is_source=_is_source())
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
        DifferenceOrigin.of(origin, right.get(origin["rank"]), same, sent, wrong)
        for origin in first.iter_rows(named=True)
    ]
    made_here = [origin for origin in firsts if not origin.is_brought]
    places: dict[tuple[object, ...], list[DifferenceOrigin]] = {}
    for origin in sorted(
        made_here or firsts, key=lambda origin: (origin.first["step"] or 0, origin.first["order"] or 0)
    ):
        # of several names at the step of the optimizer none comes before the others: stages hold other ones
        is_update = origin.first["site"] in _UPDATED and not origin.first["slot"].startswith("in")
        place = tuple(origin.first[name] for name in _PLACE if not (is_update and name == "name"))
        places.setdefault(place, []).append(origin)
    return list(places.values())[:SINGLE_ROOTS]


_UPDATED = ("gradient", "optimizer")
_PLACE = ("step", "site", "name", "op", "slot")
_OPERATION = [name for name in KEY if name not in ("slot", "slice", "occurrence")]


def _updated(table: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """Gradients and parameters that went into those new parameters, as their inputs."""
    key, rest = ["rank", "step", "name"], ["site", "micro", "op", "lane", "occurrence"]
    new = first.filter(pl.col("site") == "optimizer").select(*key, *rest).unique(key)
    gradient = (pl.col("site") == "gradient") & ~pl.col("is_in")
    inputs = table.filter(gradient | (pl.col("site") == "parameter")).drop(rest).with_columns(is_in=pl.lit(value=True))
    return inputs.join(new, on=key, nulls_equal=True)


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
        cls,
        first: dict[str, Any],
        before: dict[str, Any] | None,
        same: pl.DataFrame,
        sent: pl.DataFrame,
        wrong: set[int],
    ) -> DifferenceOrigin:
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
        is_wrong_input = not wrong.isdisjoint(inputs.filter(mine)["row"])
        is_moved = first["site"] in ("collective", "p2p") and not first["is_in"]
        exact = not first["is_in"] and not inputs.is_empty() and not is_wrong_input and not brought
        return cls(first, exact, is_moved and brought and not is_wrong_input, before, tuple(inputs["row"].to_list()))


def _others(table: pl.DataFrame, first: dict[str, object]) -> pl.DataFrame:
    """The send that belongs to a receive."""
    group, _, peer = str(first["lane"]).rpartition(":")
    sent = (pl.col("op") == "send") & (pl.col("lane") == f"{group}:{first['rank']}")
    return table.filter(
        sent
        & (pl.col("rank").cast(pl.String) == peer)
        & pl.col("step").eq_missing(first["step"])
        & pl.col("occurrence").eq_missing(first["occurrence"])
    )


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
