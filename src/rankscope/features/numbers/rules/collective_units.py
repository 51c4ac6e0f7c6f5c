"""Inputs and outputs of collectives over all members, joined by group and sequence number.

A unit is what has one right result: an all_reduce, one slice of a reduce_scatter, what one member gives to all in an
all_gather, what one gives to another in an all_to_all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.model import (
    RULES,
    BrokenRule,
    Floats,
    Ints,
    NumberMarks,
    ReferenceMarks,
    RowState,
    RuleAnswer,
)
from rankscope.schema import Dataset

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
MOVES = ("all_gather", "broadcast", "scatter", "gather", "all_to_all")
EQUAL_OUTPUTS = ("all_reduce", "broadcast", "all_gather")
"""Operations after which all members hold the same."""
_KEYS = ["group", "call", "op", "nth", "place", "piece"]
WHOLE = -1
"""The piece of an operation that has only one."""
GATHERED = -2
"""The piece of an output that holds what all members gave."""


@dataclass(frozen=True)
class CollectiveUnits:
    """Units with their rows; all arrays are indexed by unit or by member row."""

    rows: pl.DataFrame
    """A row for each recorded tensor, sorted by unit, inputs first, then by member: unit, row (of `tensors`), is_out,
    member, rank, size, step, order, dtype, numel, hash, nan, foreign (another tool wrote it), the columns of the key,
    and `origin`: the unit's number among all."""

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each unit: unit, group, seq, op, reduce_op, size (members of the group), inputs, outputs, whether
        it is `whole` (every member's input is there) and `alike` (one dtype and one number of elements), its dtype,
        numel and step; and whether another tool wrote it (`foreign`), with rounded statistics."""
        is_in = ~pl.col("is_out")
        return self.rows.group_by("unit", maintain_order=True).agg(
            pl.col("group", "seq", "op", "reduce_op", "size", "dtype", "numel", "step").first(),
            inputs=is_in.sum().cast(pl.Int64), outputs=pl.col("is_out").sum().cast(pl.Int64),
            members=pl.col("member").filter(is_in).n_unique().cast(pl.Int64),
            foreign=pl.col("foreign").any(), guessed=(pl.col("foreign") & pl.col("guessed")).any(),
            alike=(pl.col("numel").n_unique() == 1) & (pl.col("dtype").n_unique() == 1),
        ).with_columns(whole=(pl.col("inputs") == pl.col("size")) & (pl.col("members") == pl.col("size"))
                        & ~pl.col("guessed"))  # fmt: skip

    @cached_property
    def starts(self) -> Ints:
        """The first of `rows` of each unit, and the number of rows at the end."""
        unit = self.rows["unit"].to_numpy()
        return np.append(np.flatnonzero(np.diff(unit, prepend=-1)), len(unit)).astype(np.int64)

    def chosen(self, keep: pl.Series) -> CollectiveUnits:
        """The units with True in `keep`, in the order of the table, numbered anew."""
        wanted = self.table.filter(keep).select("unit").with_row_index("new")
        rows = self.rows.join(wanted, on="unit", how="inner", maintain_order="left")
        return CollectiveUnits(rows.drop("unit").rename({"new": "unit"}))


def collective_units(dataset: Dataset) -> CollectiveUnits:
    """The units of all recorded collectives of known groups."""
    # the place of each rank in each group, the number of members, and whether they are `guessed`
    size, guessed = pl.col("ranks").list.len().cast(pl.Int64), pl.col("membership") == "inferred"
    members = dataset.groups.select("group", rank="ranks", size=size, guessed=guessed).explode("rank")
    members = members.with_columns(member=pl.int_range(pl.len()).over("group")).drop_nulls("rank")
    op, out, slot = pl.col("op"), pl.col("is_out"), pl.col("slot")
    chosen = op.cast(pl.String).is_in([*REDUCTIONS, *MOVES])
    rows = dataset.tensors.with_row_index("row")
    rows = rows.filter((pl.col("site") == "collective") & pl.col("group").is_not_null() & chosen)
    texts = pl.col("op", "reduce_op", "dtype", "slot").cast(pl.String)
    kept = ("row", "rank", "step", "order", "group", "seq", "occurrence", "root", "numel", "slice", "hash", "nan")
    rows = rows.select(*kept, texts, foreign=pl.col("tool").is_not_null())
    rows = rows.join(members, on=["group", "rank"], how="inner", maintain_order="left")
    rows = rows.with_columns(
        is_out=slot.str.starts_with("out"),
        place=slot.str.strip_prefix("out").str.strip_prefix("in"),
        # calls without a number: the k-th of its kind in the step
        call=pl.coalesce("seq", -1 - (pl.col("step").fill_null(0) * (1 << 20)) - pl.col("occurrence").fill_null(0)),
    )
    # only the root's input of a broadcast is read, and only its output of a reduce is written
    only_root = (op.is_in(["broadcast", "scatter"]) & ~out) | (op.is_in(["reduce", "gather"]) & out)
    is_root = (pl.col("rank") == pl.col("root")).fill_null(value=True)
    rows = rows.filter(pl.when(only_root).then(is_root).otherwise(pl.lit(value=True)))
    # the piece of its operation that the row is: member of origin, of destination, or both
    member, part = pl.col("member"), pl.col("slice").cast(pl.Int64)
    pair = pl.when(out).then(part * pl.col("size") + member).otherwise(member * pl.col("size") + part)
    gathered = part.fill_null(GATHERED)
    rows = rows.with_columns(
        piece=pl.when(op.is_in(["all_gather", "gather"]))
        .then(pl.when(out).then(gathered).otherwise(member))
        .when(op.is_in(["reduce_scatter", "scatter"]))
        .then(pl.when(out).then(member).otherwise(gathered))
        .when(op == "all_to_all")
        .then(pair.fill_null(GATHERED))
        .otherwise(pl.lit(WHOLE))
    )
    # several calls of a coalesced group share one number
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over(["rank", "is_out", *_KEYS[:3], "place", "piece"]))
    rows = rows.sort([*_KEYS, "is_out", "member"])
    number = pl.struct(_KEYS).rle_id().cast(pl.Int64)
    return CollectiveUnits(rows.with_columns(unit=number, origin=number))


def group_kinds(dataset: Dataset) -> pl.DataFrame:
    """The kind of each group: its description without numbers and its size, which groups of the same use share."""
    called = pl.coalesce(pl.col("description").replace("", None), "name").str.replace_all(r"\d+", "")
    return dataset.groups.select("group", kind=pl.concat_str(called, pl.col("ranks").list.len()))


NEAREST = {"row": pl.Int64, "unit": pl.Int64, "rule": pl.UInt8, "value": pl.Float64, "limit": pl.Float64,
           "broken": pl.Boolean}  # fmt: skip
"""Columns of the nearest limit of an output; `rule` is a place in `RULES`."""
_RANGE = "R4"
"""The rule whose limit tells a range, and no distance: that of any other rule is nearer."""
_EXACT = "N2"
"""The rule that leaves no room: where it holds, others tell nothing more."""
MOST_MARKED = 2_000_000
"""Most pairs of a broken rule and a rank that are looked up, the earliest first."""
_PLACE = ["step", "micro", "site", "name", "op", "slot", "slice", "kind", "call"]
"""The place of a tensor in the program, the same on all ranks."""
_NAMED = {"at": pl.Int64, "row": pl.Int64, "rank": pl.Int32, "alike": pl.Boolean}
_NUMBER: Mapping[str, int] = {name: place for place, name in enumerate(RULES)}
_IS_PROOF = np.array([rule.standing == "proof" for rule in RULES.values()])
Bools = npt.NDArray[np.bool_]


def nearest_limits(rows: Ints, units: Ints, checks: Sequence[tuple[str, Bools, Floats, Floats, Bools]]) -> pl.DataFrame:
    """For each output of a block the strictest broken rule, else the one whose limit is nearest; columns `NEAREST`."""
    if not checks or not len(rows):
        return pl.DataFrame(schema=NEAREST)
    rules = np.array([_NUMBER[rule] for rule, *_ in checks], np.uint8)
    bad, value, limit, known = (np.stack([check[place] for check in checks]) for place in (1, 2, 3, 4))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(limit > 0, value / limit, np.where(value > 0, np.inf, 0.0))
    # proofs first, then in the order of the rules
    strictness = 100.0 + 100.0 * _IS_PROOF[rules] - rules
    share = np.minimum(np.nan_to_num(share), 9.0) * np.where(rules == _NUMBER[_RANGE], 1e-3, 1.0)[:, None]
    share[rules == _NUMBER[_EXACT]] = 10.0
    score = np.where(bad, strictness[:, None], np.where(known, share, -1.0))
    best, at = score.argmax(axis=0), np.arange(len(rows))
    columns = {"row": rows, "unit": units, "rule": rules[best], "value": value[best, at], "limit": limit[best, at],
             "broken": bad[best, at]}  # fmt: skip
    return pl.DataFrame(columns, schema=NEAREST).filter(pl.Series(score[best, at] >= 0))


def row_marks(
    dataset: Dataset,
    units: CollectiveUnits,
    nearest: pl.DataFrame,
    answers: Sequence[RuleAnswer],
    broken: Sequence[BrokenRule],
    states: Sequence[RowState],
    *,
    roots: tuple[int, ...],
    reached: Mapping[int, int],
) -> NumberMarks:
    """The state of each tensor.

    `nearest` has the columns `NEAREST`, `states` are those that each broken rule gives to its rows, and `reached` is by
    rank the order from which on it may hold wrong values.
    """
    count = dataset.tensors.height
    state, rule = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    value, limit = np.zeros(count), np.zeros(count)
    for answer in answers:
        if answer.rows is not None:
            place = answer.rows.drop_nulls().to_numpy()
            state[place], rule[place] = RowState.RIGHT, _NUMBER[answer.rule]
    # of outputs of a unit that are equal bit for bit only the first was judged
    outs = units.rows.filter("is_out").select(unit="origin", row="row", hash="hash")
    judged = nearest.with_columns(hash=dataset.tensors["hash"].gather(nearest["row"])).drop("row")
    near = outs.join(judged, on=["unit", "hash"], how="inner", nulls_equal=True)
    place, rule_of_row = near["row"].to_numpy(), near["rule"].to_numpy()
    wrong = np.where(_IS_PROOF[rule_of_row], RowState.WRONG, RowState.SUSPICIOUS)
    state[place] = np.where(near["broken"].to_numpy(), wrong, RowState.RIGHT)
    rule[place], value[place], limit[place] = rule_of_row, near["value"].to_numpy(), near["limit"].to_numpy()
    marked = _marked(dataset, broken)
    at, place = marked["at"].to_numpy(), marked["row"].to_numpy()
    if len(place):
        broken_rules = np.array([_NUMBER[broken_rule.rule] for broken_rule in broken], np.uint8)
        state_of_broken, named = (
            np.array(states, np.uint8),
            np.array([bool(broken_rule.ranks) for broken_rule in broken]),
        )
        # of several broken rules the last one stays: the worst, and the strictest that names ranks
        order = np.lexsort((-broken_rules[at].astype(np.int64), named[at], state_of_broken[at]))
        at, place = at[order], place[order]
        state[place], rule[place] = state_of_broken[at], broken_rules[at]
        value[place] = np.array([broken_rule.value for broken_rule in broken])[at]
        limit[place] = np.array([broken_rule.limit for broken_rule in broken])[at]
    # whether each row comes behind a wrong value on its rank
    begin = pl.DataFrame(list(reached.items()), {"rank": pl.Int32, "begin": pl.Int64}, orient="row")
    orders = dataset.tensors.select("rank", "order").join(begin, on="rank", how="left", maintain_order="left")
    after = orders.select((pl.col("order") > pl.col("begin")).fill_null(value=False)).to_series().to_numpy()
    return NumberMarks(state, rule, value, limit, after, roots)


def reference_marks(dataset: Dataset, table: pl.DataFrame, broken: Sequence[BrokenRule]) -> ReferenceMarks:
    """The distance of each tensor from the reference, from `ComparedTensors.table` and the first differences."""
    count = dataset.tensors.height
    off, limit, norm = (np.full(count, np.nan) for _ in range(3))
    equal, first = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    place = table["row"].to_numpy()
    equal[place] = table["equal"].to_numpy()
    for values, name in ((off, "off"), (limit, "limit"), (norm, "l2_other")):
        values[place] = table[name].fill_null(float("nan")).to_numpy()
    first[_marked(dataset, broken)["row"].to_numpy()] = True
    return ReferenceMarks(off, equal, limit, norm, first, tuple(one.row for one in broken))


def _marked(dataset: Dataset, broken: Iterable[BrokenRule]) -> pl.DataFrame:
    """Pairs of a broken rule (`at`, its place) and a row that shows it: the tensor of each named rank at this place;
    where only the group is named, of all members with the same bits."""
    pairs: list[tuple[int, int, int, bool]] = []
    for at, rule in enumerate(broken):
        ranks = rule.ranks or rule.candidates
        pairs += ((at, rule.row, rank, not ranks) for rank in ranks or rule.members)
        pairs += ((at, row, -1, False) for row in (rule.row, *(rule.rows if rule.ranks else ())))
        if len(pairs) > MOST_MARKED:
            break
    named = pl.DataFrame(pairs, _NAMED, orient="row")
    if named.is_empty():
        return named.select("at", "row")
    # the place of each tensor in the program
    tensors = dataset.tensors.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    names = [pl.col(name).to_physical() for name in ("site", "name", "op", "slot")]
    call = pl.coalesce(pl.col("occurrence").cast(pl.Int64), "seq")
    placed = tensors.join(group_kinds(dataset), on="group", how="left", maintain_order="left")
    placed = placed.select("row", "rank", "step", "micro", *names, "slice", "kind", "hash", call=call)
    accused = named.filter(pl.col("rank") >= 0)
    accused_rows = accused.join(placed.drop("rank"), on="row", how="left").drop("row")
    there = accused_rows.join(placed, on=[*_PLACE, "rank"], how="inner", nulls_equal=True, suffix="_there")
    there = there.filter(~pl.col("alike") | pl.col("hash").eq_missing(pl.col("hash_there"))).select("at", "row")
    # rows of which a rule tells itself: its own, and in the same step those of ranks that it names
    holders = placed.select("row", "step", holder="rank")
    alone = named.filter(pl.col("rank") < 0).join(holders, on="row", how="left", maintain_order="left")
    alone = alone.with_columns(begun=pl.col("step").first().over("at"), is_own=pl.int_range(pl.len()).over("at") == 0)
    holding = accused.select("at", holder="rank").unique()
    others = alone.join(holding, on=["at", "holder"], how="semi").filter(pl.col("step").eq_missing(pl.col("begun")))
    shown = [alone.filter("is_own").select("at", "row"), others.select("at", "row")]
    return pl.concat([there, *shown]).unique(maintain_order=True)
