"""Numbers of a run against those of a trusted run: where it first differs, and whether that is more than rounding.

Runs of one layout meet rank by rank, in `tensor_matching`; runs of other layouts meet by names, in `layout_judgement`.
Records of other tools hold no samples, so those of other layouts meet as whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from rankscope.analysis.numbers.canonical_names import NameChange
from rankscope.analysis.numbers.difference_origins import DifferenceOrigin, difference_origins, differing, is_small
from rankscope.analysis.numbers.layout_judgement import have_same_layout, judge_layouts
from rankscope.analysis.numbers.model import BrokenRule, RuleCount, format_of
from rankscope.analysis.numbers.number_rules import NumberCause, NumbersJudgement
from rankscope.analysis.numbers.printed_records import has_records
from rankscope.analysis.numbers.response_limits import (
    LADDER_C,
    LADDER_K,
    LADDER_LAYERS,
    LEAST_ROUNDOFFS,
    RESPONSES,
)
from rankscope.analysis.numbers.row_marks import reference_marks
from rankscope.analysis.numbers.tensor_matching import ComparedTensors, compared_tensors
from rankscope.schema import Dataset
from rankscope.text.wording import plural


def compare_numbers(
    ours: Dataset, reference: Dataset, perturbed: Sequence[Dataset] = (), changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """Where a run first differs from its reference.

    `perturbed` are runs of the reference with a small change; `changes` make names of the run those of the reference.
    """
    has_samples = not (has_records(ours) or has_records(reference))
    if changes or (has_samples and not have_same_layout(ours, reference)):
        return judge_layouts(ours, reference, perturbed, changes)
    found = compared_tensors(ours, reference, is_rolled=bool(perturbed))
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
    distances = reference_marks(ours, table, [cause.first for cause in causes])
    return NumbersJudgement(tuple(causes), counts, tuple(_notes(judged, bool(perturbed))), distances=distances)


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


def _schedule(found: ComparedTensors) -> Iterator[NumberCause]:
    """The first tensor that one run recorded and the other did not, if both have the same ranks."""
    steps = set(found.table["step"].unique())
    lost = found.unmatched.filter(pl.col("step").is_in(list(steps)) & pl.col("ours"))
    missing = found.unmatched.filter(pl.col("step").is_in(list(steps)) & ~pl.col("ours"))
    if not found.is_ranked or (lost.is_empty() and missing.is_empty()):
        return
    if missing.is_empty() or (not lost.is_empty() and _first_step(lost) <= _first_step(missing)):
        first = lost.sort("step", "order").row(0, named=True)
        ranks = _ranks_at(lost, first)
        note = f"the reference has no such tensor; {plural(lost.height, 'tensor')} stand only in this run"
        yield NumberCause(
            "schedule-differs", BrokenRule("RS", first["row"], ranks, (), ranks, note=note), (), lost.height, None
        )
        return
    first = missing.sort("step", "order").row(0, named=True)
    ranks = _ranks_at(missing, first)
    what = " ".join(part for part in (first["op"] or first["site"], first["name"]) if part)
    earlier = (pl.col("rank") == ranks[0]) & (pl.col("order_other") < first["order"])
    before = found.table.filter(earlier).sort("order_other")
    row = before["row"][-1] if before.height else found.table["row"][0]
    note = f"the reference recorded {first['slot']} of {what} in step {first['step']}, and this run did not"
    yield NumberCause("schedule-differs", BrokenRule("RS", row, ranks, (), ranks, note=note), (), missing.height, None)


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


def _first_step(rows: pl.DataFrame) -> int:
    step = rows["step"].min()
    return step if isinstance(step, int) else 0


def _ranks_at(rows: pl.DataFrame, first: dict[str, object]) -> tuple[int, ...]:
    same = rows.filter(*(pl.col(name).eq_missing(first[name]) for name in ("step", "site", "name", "op", "slot")))
    return tuple(sorted({rank for rank in same["rank"].to_list() if rank is not None}))


def _first_differences(found: ComparedTensors, judged: bool) -> list[NumberCause]:
    """Causes for the places at which a difference begins."""
    bad = differing(found.table, judged)
    return [_origin_cause(same, judged, bad) for same in difference_origins(found, judged=judged)]


def _origin_cause(same: Sequence[DifferenceOrigin], judged: bool, bad: pl.DataFrame) -> NumberCause:
    one = same[0]
    ranks = tuple(sorted({int(str(each.first["rank"])) for each in same if each.first["rank"] is not None}))
    off, limit = float(str(one.first["off"])), one.first["limit"]
    kind = _kind(one)
    where = "all of its recorded inputs are equal, so it made the difference" if one.is_exact else (
        f"at it or before it: {one.before}"
    )  # fmt: skip
    note = f"{where}{f'; {kind}' if kind else ''}; {plural(bad.height, 'tensor')} differ in all"
    broken = BrokenRule(
        "RP" if judged else "RX", int(str(one.first["row"])), ranks, (), ranks, off,
        float(str(limit)) if limit is not None else 0.0, note=note,
    )  # fmt: skip
    return NumberCause("differs-from-reference", broken, (broken,), 1, None)


def _kind(one: DifferenceOrigin) -> str:
    """The usual reason for such a difference, as a part of a sentence; "" without one."""
    row = one.first
    for what in ("dtype", "reduce_op"):
        if row[what] != row[f"{what}_other"]:
            return f"it is {row[what]}, and {row[f'{what}_other']} in the reference"
    if row["site"] == "batch":
        return "the data differ"
    if "dropout" in str(row["name"]).lower():
        return "the seed of a dropout may differ"
    small = is_small(row)
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
    alike = "in all that is printed of them" if table["printed"].any() else "bit for bit"
    how = "rank by rank" if found.is_ranked else "as whole tensors, with shards merged by their places"
    yield f"{plural(table.height, 'tensor')} compared {how}: {int(table['equal'].sum()):,} are equal {alike}"
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
