"""Judgement of a run beside a trusted run of another layout: its batches, its tensors, and what the check can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from rankscope.features.numbers.rules.collective_units import reference_marks
from rankscope.features.numbers.rules.layout_causes import VARIANT, begins_with, layout_causes
from rankscope.features.numbers.rules.layout_comparison import LayoutComparison, compare_layouts
from rankscope.features.numbers.rules.model import BrokenRule, RuleCount
from rankscope.features.numbers.rules.named_tensors import (
    IS_BATCH,
    NameChange,
    NamedTensors,
    named_tensors,
    with_canonical_names,
)
from rankscope.features.numbers.rules.number_rules import NumberCause, NumbersJudgement
from rankscope.schema import Dataset
from rankscope.text.wording import plural

SAME_SHAPES, SAME_GROUPS = 0.95, 0.5
"""Shares of the named tensors of ranks, and of the groups in use, that two runs of one layout have alike at least."""


def have_same_layout(ours: Dataset, reference: Dataset) -> bool:
    """Whether both runs have the same ranks, the same shapes on them, and the same groups in use."""
    if set(ours.tensors["rank"].unique()) != set(reference.tensors["rank"].unique()):
        return False
    shapes, others = (_shapes(one.tensors) for one in (ours, reference))
    both = shapes.join(others, on=["rank", "site", "name", "slot"], suffix="_other")
    alike = both.filter(pl.col("shape").eq_missing(pl.col("shape_other"))).height
    return alike >= SAME_SHAPES * both.height and _share_of_groups(ours, reference) >= SAME_GROUPS


def _shapes(tensors: pl.DataFrame) -> pl.DataFrame:
    place = [pl.col(name).cast(pl.List(pl.String)).list.join(",").fill_null("") for name in ("shape", "offsets")]
    rows = tensors.filter(pl.col("site").is_in(["forward", "gradient", "parameter"]) & (pl.col("name") != ""))
    texts = [pl.col(name).cast(pl.String) for name in ("site", "name", "slot")]
    found = rows.select("rank", *texts, shape=pl.concat_str(place, separator="@"))
    found = with_canonical_names(found.unique(["rank", "site", "name", "slot"], keep="first", maintain_order=True))
    return found.unique(["rank", "site", "name", "slot"], keep="first", maintain_order=True)


def _share_of_groups(ours: Dataset, reference: Dataset) -> float:
    """Share of the groups in use, by their members, that both runs have; 1 if one of them uses none."""
    used = []
    for one in (ours, reference):
        groups = one.groups.filter(pl.col("group").is_in(one.tensors["group"].drop_nulls().unique().to_list()))
        used.append({tuple(ranks) for ranks in groups["ranks"]})
    return len(used[0] & used[1]) / len(used[0] | used[1]) if used[0] and used[1] else 1.0


def judge_layouts(
    ours: Dataset, reference: Dataset, perturbed: Sequence[Dataset], changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """Where the run first differs from a trusted run of another layout, by more than rounding."""
    mine, trusted = named_tensors(ours, changes), named_tensors(reference)
    found = compare_layouts(mine, trusted, [named_tensors(one) for one in perturbed])
    table, judged = found.table, bool(perturbed)
    asked, data = _batch_causes(mine, trusted)
    causes = [*data, *layout_causes(found, ours, judged)]
    if data and len(causes) > len(data):
        causes[-1] = _after(causes[-1], data[0], ours)
    weights = table.filter(begins_with())
    exact = RuleCount("RX", asked + weights.height, len(data) + weights.filter(~pl.col("equal")).height)
    limited = table.height - table["limit"].null_count()
    beyond = int(table["wrong"].sum())
    counts = (exact, *([RuleCount("RP", limited, beyond)] if judged else []))
    notes = [*_notes(found, judged)]
    if not all(have_same_layout(one, reference) for one in perturbed):
        notes.append("a perturbed run has another layout than the reference: limits are too large")
    distances = reference_marks(ours, table, [cause.first for cause in causes])
    return NumbersJudgement(tuple(causes), counts, tuple(notes), distances=distances)


def _after(cause: NumberCause, data: NumberCause, ours: Dataset) -> NumberCause:
    """The cause as a consequence of other data, if those come before it."""
    steps = [ours.tensors["step"][one.first.row] or 0 for one in (cause, data)]
    return replace(cause, explained_by=0) if steps[1] <= steps[0] else cause


def _notes(found: LayoutComparison, judged: bool) -> Iterator[str]:
    """Sentences on the comparison as a whole."""
    table = found.table
    if table.is_empty():
        yield "no tensor of the two runs can be compared: record modules in both, and declare shards"
    else:
        equal = int(table["equal"].sum())
        yield (
            f"the layouts differ: {plural(table.height, 'tensor')} of ranks compared with whole tensors of the "
            f"reference, at the sampled places that each holds; of {equal:,} the whole is equal bit for bit"
        )
    for why, count in found.left_out:
        yield f"not compared: {plural(count, 'tensor')} {why}"
    if table.is_empty():
        return
    yield from _ladder_notes(table)
    if judged:
        yield from _control_notes(table)
    else:
        yield (
            "only the data, the weights of the first step and constant factors are judged: limits of other differences "
            "need --perturbed runs of the reference"
        )


def _ladder_notes(table: pl.DataFrame) -> Iterator[str]:
    """The largest difference beside the bound of Megatron-LM."""
    known = table.filter(~pl.col("equal") & pl.col("off").is_finite() & (pl.col("ladder") > 0))
    if known.is_empty():
        return
    worst = known.with_columns(part=pl.col("off") / pl.col("ladder")).sort("part", descending=True).row(0, named=True)
    limit = "" if worst["limit"] is None else f", its limit {worst['limit']:.3g}"
    over = known.filter(pl.col("off") > pl.col("ladder")).height
    yield (
        f"as a share of Megatron's bound of gradients, which does not judge here, the largest difference is that of "
        f"{worst['site']} {worst['name'] or 'the model'} in step {worst['step']}: {worst['off']:.3g}{limit}, the bound "
        f"{worst['ladder']:.3g}; {plural(over, 'tensor')} {'exceeds' if over == 1 else 'exceed'} it"
    )


def _control_notes(table: pl.DataFrame) -> Iterator[str]:
    """Whether shuffled samples fail the check, as they must."""
    asked = table.filter(pl.col("rolled").is_not_null() & pl.col("limit").is_not_null())
    blind = asked.filter(pl.col("rolled") <= pl.col("limit")).height
    if asked.height and blind * 2 <= asked.height:
        failed = asked.height - blind
        yield f"control: shuffled samples fail on {failed:,} of {plural(asked.height, 'tensor')}, as they must"
    else:
        yield f"this check cannot tell: shuffled samples pass it as well on {plural(blind, 'tensor')}"
    near = table.filter((pl.col("off") > pl.col("limit")) & ~pl.col("wrong")).height
    if near:
        yield f"{plural(near, 'tensor')} {'is' if near == 1 else 'are'} alone and a little beyond the limit: no fault"
    lone = table["limit"].null_count()
    if lone:
        yield f"not judged: {plural(lone, 'tensor')}; no perturbed run has them"


# Batches: parts of a batch that no place is recorded of have the same totals together.


def _batch_causes(ours: NamedTensors, reference: NamedTensors) -> tuple[int, list[NumberCause]]:
    """How many batches were compared, and the first one with other data; only whole numbers, whose sums are exact."""
    totals, others = (_totals(one.rows) for one in (ours, reference))
    both = totals.join(others, on=["step", "name"], nulls_equal=True, suffix="_other", maintain_order="left")
    differs = (pl.col("sum") != pl.col("sum_other")) | (pl.col("numel") != pl.col("numel_other")) | (
        (pl.col("power") / pl.col("power_other") - 1).abs() > _POWER_ERROR
    )  # fmt: skip
    bad = both.filter(differs).sort("step", "order")
    if bad.is_empty():
        return both.height, []
    row = bad.row(0, named=True)
    size, other = row["numel"], row["numel_other"]
    what = (
        f"the ranks have {size:,} different elements together, the reference has {other:,}"
        if size != other
        else "the elements of all ranks together have another sum than those of the reference"
    )
    broken = BrokenRule("RX", row["row"], (), (), tuple(row["ranks"]), note=f"the data differ: {what}")
    return both.height, [NumberCause(VARIANT, broken, (broken,), bad.height, bad["step"].max())]  # type: ignore[arg-type]


_POWER_ERROR = 1e-5
"""Relative error of the sum of squares, whose norm is computed in float32."""


def _totals(rows: pl.DataFrame) -> pl.DataFrame:
    """Totals of the pieces of each batch, each piece with its bits counted once."""
    own = rows.filter(IS_BATCH & pl.col("dtype").str.contains("^[iu]") & pl.col("hash").is_not_null())
    own = own.with_columns(varied=pl.col("varied").all().over("step", "name")).filter("varied")
    ranks = own.group_by("step", "name").agg(ranks=pl.col("rank").unique().sort())
    pieces = own.unique(["step", "name", "hash", "numel"], keep="first", maintain_order=True)
    found = pieces.group_by("step", "name", maintain_order=True).agg(
        pl.col("row", "order").first(), pl.col("sum", "numel").sum(), power=(pl.col("l2") ** 2).sum()
    )
    return found.join(ranks, on=["step", "name"], nulls_equal=True)
