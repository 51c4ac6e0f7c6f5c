"""Numbers of a run against those of a trusted run: where it first differs, and whether that is more than rounding.

Runs of one layout meet rank by rank, in `tensor_matching`; runs of other layouts meet by names, in `layout_comparison`.
Records of other tools hold no samples, so those of other layouts meet as whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from rankscope.features.numbers.rules.collective_units import reference_marks
from rankscope.features.numbers.rules.layout_comparison import (
    VARIANT,
    LayoutComparison,
    begins_with,
    compare_layouts,
    layout_causes,
)
from rankscope.features.numbers.rules.model import RULES, BrokenRule, RuleCount, format_of
from rankscope.features.numbers.rules.named_tensors import (
    IS_BATCH,
    NameChange,
    NamedTensors,
    named_tensors,
    with_canonical_names,
)
from rankscope.features.numbers.rules.number_findings import NumberCause, NumbersJudgement, judge_numbers
from rankscope.features.numbers.rules.tensor_matching import (
    KEY,
    LEAST_ROUNDOFFS,
    RESPONSES,
    ComparedTensors,
    DifferenceOrigin,
    compared_tensors,
    difference_origins,
    differing,
    has_records,
    is_small,
    last_equal,
)
from rankscope.features.numbers.rules.wrong_values import ValueSpread
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

SAME_SHAPES, SAME_GROUPS = 0.95, 0.5
"""Shares of the named tensors of ranks, and of the groups in use, that two runs of one layout have alike at least."""


def have_same_layout(ours: Dataset, reference: Dataset) -> bool:
    """Whether both runs have the same ranks, the same shapes on them, and the same groups in use."""
    if set(ours.tensors["rank"].unique()) != set(reference.tensors["rank"].unique()):
        return False
    key, tables, used = ["rank", "site", "name", "slot"], [], []
    for run in (ours, reference):
        place = [pl.col(name).cast(pl.List(pl.String)).list.join(",").fill_null("") for name in ("shape", "offsets")]
        rows = run.tensors.filter(pl.col("site").is_in(["forward", "gradient", "parameter"]) & (pl.col("name") != ""))
        texts = [pl.col(name).cast(pl.String) for name in ("site", "name", "slot")]
        rows = rows.select("rank", *texts, shape=pl.concat_str(place, separator="@"))
        rows = with_canonical_names(rows.unique(key, keep="first", maintain_order=True))
        tables.append(rows.unique(key, keep="first", maintain_order=True))
        groups = run.groups.filter(pl.col("group").is_in(run.tensors["group"].drop_nulls().unique().to_list()))
        used.append({tuple(ranks) for ranks in groups["ranks"]})
    both = tables[0].join(tables[1], on=key, suffix="_other")
    alike = both.filter(pl.col("shape").eq_missing(pl.col("shape_other"))).height
    # groups are told by their members; a run that uses none tells nothing
    shared = len(used[0] & used[1]) >= SAME_GROUPS * len(used[0] | used[1]) or not (used[0] and used[1])
    return alike >= SAME_SHAPES * both.height and shared


def judge_layouts(
    ours: Dataset, reference: Dataset, perturbed: Sequence[Dataset], changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """Where the run first differs from a trusted run of another layout, by more than rounding."""
    mine, trusted = named_tensors(ours, changes), named_tensors(reference)
    found = compare_layouts(mine, trusted, [named_tensors(run) for run in perturbed])
    table, judged = found.table, bool(perturbed)
    asked, data = _batch_causes(mine, trusted)
    wrong = layout_causes(found, ours, judged)
    if data and wrong:
        # a consequence of other data, if those come before it
        step, data_step = (ours.tensors["step"][cause.first.row] or 0 for cause in (wrong[0], data[0]))
        wrong = [replace(wrong[0], explained_by=0)] if data_step <= step else wrong
    causes = [*data, *wrong]
    weights = table.filter(begins_with())
    exact = RuleCount("RX", asked + weights.height, len(data) + weights.filter(~pl.col("equal")).height)
    limited = RuleCount("RP", table.height - table["limit"].null_count(), int(table["wrong"].sum()))
    notes = [*_layout_notes(found, judged)]
    if not all(have_same_layout(run, reference) for run in perturbed):
        notes.append("a perturbed run has another layout than the reference: limits are too large")
    distances = reference_marks(ours, table, [cause.first for cause in causes])
    return NumbersJudgement(tuple(causes), (exact, limited) if judged else (exact,), tuple(notes), distances=distances)


def _layout_notes(found: LayoutComparison, judged: bool) -> Iterator[str]:
    """Sentences on the comparison as a whole, and whether shuffled samples fail the check, as they must."""
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
    if not judged:
        yield (
            "only the data, the weights of the first step and constant factors are judged: limits of other differences "
            "need --perturbed runs of the reference"
        )
        return
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
    if lone := table["limit"].null_count():
        yield f"not judged: {plural(lone, 'tensor')}; no perturbed run has them"


def _batch_causes(ours: NamedTensors, reference: NamedTensors) -> tuple[int, list[NumberCause]]:
    """How many batches were compared, and the first one with other data; only whole numbers, whose sums are exact.

    Parts of a batch that no place is recorded of have the same totals together.
    """
    totals = []
    for tensors in (ours, reference):
        rows = tensors.rows.filter(IS_BATCH & pl.col("dtype").str.contains("^[iu]") & pl.col("hash").is_not_null())
        rows = rows.with_columns(varied=pl.col("varied").all().over("step", "name")).filter("varied")
        ranks = rows.group_by("step", "name").agg(ranks=pl.col("rank").unique().sort())
        # each piece with its bits counted once
        pieces = rows.unique(["step", "name", "hash", "numel"], keep="first", maintain_order=True)
        sums = pieces.group_by("step", "name", maintain_order=True).agg(
            pl.col("row", "order").first(), pl.col("sum", "numel").sum(), power=(pl.col("l2") ** 2).sum()
        )
        totals.append(sums.join(ranks, on=["step", "name"], nulls_equal=True))
    both = totals[0].join(totals[1], on=["step", "name"], nulls_equal=True, suffix="_other", maintain_order="left")
    power = (pl.col("power") / pl.col("power_other") - 1).abs() > _POWER_ERROR
    differs = (pl.col("sum") != pl.col("sum_other")) | (pl.col("numel") != pl.col("numel_other")) | power
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


def compare_numbers(
    ours: Dataset, reference: Dataset, perturbed: Sequence[Dataset] = (), changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """Where a run first differs from its reference.

    `perturbed` are runs of the reference with a small change; `changes` make names of the run those of the reference.
    """
    has_samples = not (has_records(ours) or has_records(reference))
    if changes or (has_samples and not have_same_layout(ours, reference)):
        return judge_layouts(ours, reference, perturbed, changes)
    judged = bool(perturbed)
    found = compared_tensors(ours, reference, is_rolled=judged)
    if judged:
        responses = [compared_tensors(run, reference).table for run in perturbed]
        found = replace(found, table=_with_limits(found.table, responses))
    return compare_tables(found, ours, judged)


NO_LIMIT = "no limit for differences is known: --perturbed runs of the reference give one"


def compare_tables(found: ComparedTensors, ours: Dataset, judged: bool, unjudged: str = NO_LIMIT) -> NumbersJudgement:
    """Where a run first differs, by tensors beside those of its reference; `judged` if they have limits, else
    `unjudged` says what gives some."""
    table = found.table
    schedule, bad = list(_schedule(found)), differing(table, judged)
    differences = [_origin_cause(same, judged, bad.height) for same in difference_origins(found, judged=judged)]
    if schedule:
        # a consequence of another schedule, if that parts before it in program order. Collectives of one size are
        # counted: from a step on in which one is left out, others stand in its place
        places = ours.tensors.select(pl.col("step", "order").fill_null(0), pl.col("site").cast(pl.String))
        step, order, _ = places.row(schedule[0].first.row)
        for number, cause in enumerate(differences):
            own_step, own_order, site = places.row(cause.first.row)
            if (step, order) <= (own_step, own_order) or (site == "collective" and step <= own_step):
                differences[number] = replace(cause, explained_by=0)
    causes = [*schedule, *differences]
    beyond = table.filter(pl.col("off") > pl.col("limit")).height
    counts = (
        RuleCount("RX", table.height, table.height - int(table["equal"].sum())),
        *([RuleCount("RP", table.height - table["limit"].null_count(), beyond)] if judged else []),
    )
    distances = reference_marks(ours, table, [cause.first for cause in causes])
    return NumbersJudgement(
        tuple(causes), counts, tuple(_notes(found, "" if judged else unjudged)), distances=distances
    )


def _with_limits(table: pl.DataFrame, responses: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The limit of each tensor: twice the largest response of its name to a perturbation, at least four roundoffs."""
    name = ["site", "name", "op", "slot"]
    offs = pl.concat([response.select(*name, "off") for response in responses])
    largest = offs.filter(pl.col("off").is_finite()).group_by(name).agg(response=pl.col("off").max())
    roundoffs = {d: LEAST_ROUNDOFFS * form.roundoff for d in table["dtype"].unique() if (form := format_of(d))}
    least = pl.col("dtype").replace_strict(roundoffs, default=0.0, return_dtype=pl.Float64)
    limit = pl.max_horizontal(RESPONSES * pl.col("response"), pl.when(pl.col("response").is_not_null()).then(least))
    table = table.join(largest, on=name, how="left", nulls_equal=True, maintain_order="left")
    return table.with_columns(limit=limit).drop("response")


_CALLS = ["rank", *(name for name in KEY if name != "occurrence"), "numel"]
"""Keys of tensors that only their order tells apart."""


def _schedule(found: ComparedTensors) -> Iterator[NumberCause]:
    """The first tensor that one run recorded and the other did not, if both have the same ranks."""
    lost = found.unmatched.join(found.table.select("step").unique(), on="step", how="semi", nulls_equal=True)
    if not found.is_ranked or lost.is_empty():
        return
    first = _lost_places(found.table, lost).sort("step", "place", "ours").row(0, named=True)
    alone = lost.filter(pl.col("ours") == first["ours"])
    same = alone.filter(*(pl.col(name).eq_missing(first[name]) for name in ("step", "site", "name", "op", "slot")))
    ranks = tuple(same["rank"].drop_nulls().unique().sort())
    what = " ".join(part for part in (first["op"] or first["site"], first["name"]) if part)
    note = f"the reference recorded {first['slot']} of {what} in step {first['step']}, and this run did not"
    if first["ours"]:
        note = f"the reference has no such tensor; {plural(alone.height, 'tensor')} stand only in this run"
    before = found.table.filter(
        pl.col("equal") & (pl.col("rank") == first["rank"]) & (pl.col("order") < first["place"])
    ).sort("order")
    after = before["row"][-1] if before.height else None
    row = next((row for row in (first["at"], after) if row is not None), found.table["row"][0])
    broken = BrokenRule("RS", row, ranks, (), ranks, note=note, after=after)
    yield NumberCause("schedule-differs", broken, (), alone.height, None)


def _lost_places(table: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """The lost tensors, the first of each rank and kind, with `place`, where in the run, and the row `at` there.

    Tensors of one kind are counted, so the last one is left over whichever is left out. The first one that differs
    stands in the place of the one that is left out, unless values differ before it.
    """
    kinds = lost.sort("step", "order").unique([*_CALLS, "ours"], keep="first", maintain_order=True)
    kinds = kinds.select(*KEY, "numel", "rank", "row", "order", "ours", known=pl.lit(value=True))
    parted = table.filter(~pl.col("equal")).sort("order").unique(_CALLS, keep="first", maintain_order=True)
    others = kinds.join(parted.select(*_CALLS, mine="order", its="order_other"), on=_CALLS, nulls_equal=True)
    others = others.with_columns(order=pl.when("ours").then("mine").otherwise("its"), known=pl.lit(value=False))
    matched = table.select("rank", last="order_other", place="order").drop_nulls("last").sort("last")
    places = pl.concat([kinds, others.select(kinds.columns)]).sort("order").join_asof(
        matched, left_on="order", right_on="last", by="rank", strategy="backward", check_sortedness=False,
        allow_exact_matches=False,
    )  # fmt: skip
    is_ours, first = pl.col("ours"), parted.group_by("rank").agg(first=pl.col("order").min())
    places = places.with_columns(place=pl.when(is_ours).then("order").otherwise(pl.col("place").fill_null(-1) + 1))
    places = places.join(first, on="rank", how="left", maintain_order="left")
    places = places.filter(pl.col("known") | (pl.col("place") <= pl.col("first")))
    standing = pl.concat(
        [table.select("rank", "order", at="row"), lost.filter(is_ours).select("rank", "order", at="row")]
    )
    return places.sort("place").drop("row").join_asof(
        standing.sort("order"), left_on="place", right_on="order", by="rank", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip


def _origin_cause(same: Sequence[DifferenceOrigin], judged: bool, differing_count: int) -> NumberCause:
    """The cause for a place at which a difference begins, on some ranks."""
    origin, row = same[0], same[0].first
    ranks = tuple(sorted({int(each.first["rank"]) for each in same if each.first["rank"] is not None}))
    reason = _usual_reason(origin)
    if origin.is_exact:
        where = "all of its recorded inputs are equal, so it made the difference"
    else:
        where = f"at it or before it: {last_equal(origin)}"
    broken = BrokenRule(
        "RP" if judged else "RX",
        int(row["row"]),
        ranks,
        members=ranks,
        value=float(row["off"]),
        limit=float(row["limit"] or 0.0),
        rows=tuple(int(each.first["row"]) for each in same[1:]),
        note="; ".join(
            filter(None, (where, *_other_names(same), reason, f"{plural(differing_count, 'tensor')} differ in all"))
        ),
        after=None if origin.before is None else int(origin.before["row"]),
    )
    return NumberCause(VARIANT, broken, (broken,), 1, None)


def _other_names(same: Sequence[DifferenceOrigin]) -> Iterator[str]:
    """The names of tensors in which other ranks differ at the same moment."""
    ranks: dict[str, list[int]] = {}
    for origin in same:
        if origin.first["name"] != same[0].first["name"]:
            ranks.setdefault(str(origin.first["name"]), []).append(int(origin.first["rank"] or 0))
    for name, members in ranks.items():
        yield f"{ranks_text(members)} differ{'s' if len(members) == 1 else ''} at the same moment in {name}"


def _usual_reason(origin: DifferenceOrigin) -> str:
    """The usual reason for such a difference, as a part of a sentence; "" without one."""
    row = origin.first
    for what in ("dtype", "reduce_op"):
        if row[what] != row[f"{what}_other"]:
            return f"it is {row[what]}, and {row[f'{what}_other']} in the reference"
    if row["site"] == "batch":
        return "the data differ"
    if "dropout" in str(row["name"]).lower():
        return "the seed of a dropout may differ"
    small = is_small(row)
    if row["site"] == "collective" and origin.is_exact:
        return "another order of additions explains it: algorithm, protocol or topology of the backend" if small else ""
    if row["site"] in ("parameter", "optimizer"):
        return "look at the optimizer and its state"
    return "a kernel that is not deterministic may do that" if small and origin.is_exact else ""


def _notes(found: ComparedTensors, unjudged: str) -> Iterator[str]:
    """Sentences on the comparison as a whole."""
    table = found.table
    if table.is_empty():
        yield "no tensor of the two runs can be compared"
        return
    alike = "in all that is printed of them" if table["printed"].any() else "bit for bit"
    how = "rank by rank" if found.is_ranked else "as whole tensors, with shards merged by their places"
    yield f"{plural(table.height, 'tensor')} compared {how}: {int(table['equal'].sum()):,} are equal {alike}"
    largest = table.filter(~pl.col("equal") & pl.col("off").is_finite()).sort("off", descending=True)
    if largest.height:
        yield f"the largest relative difference is {largest['off'][0]:.3g}"
    if unjudged:
        yield unjudged
        return
    blind = table.filter(pl.col("rolled") <= pl.col("limit")).height
    if blind * 2 > table.height - table["limit"].null_count():
        yield f"this check cannot tell: shuffled samples pass it as well on {plural(blind, 'tensor')}"


def judge_beside(
    dataset: Dataset, reference: Dataset, perturbed: Sequence[Dataset] = (), changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """The answers of all rules on a run, with those about its reference; the rest as in `compare_numbers`."""
    return joined_judgement(dataset, judge_numbers(dataset), compare_numbers(dataset, reference, perturbed, changes))


def joined_judgement(dataset: Dataset, ours: NumbersJudgement, beside: NumbersJudgement) -> NumbersJudgement:
    """The judgement by laws and that beside a reference: all causes, roots first, each with what explains it."""
    shift = len(beside.causes)
    shifted = (
        law if law.explained_by is None else replace(law, explained_by=law.explained_by + shift) for law in ours.causes
    )
    causes = [*beside.causes, *shifted]
    explained: dict[int, int] = {}
    for place, first in enumerate(beside.causes):
        if first.explained_by is None:
            explained |= _explained(dataset, place, causes, range(shift, len(causes)), explained)
    causes = [
        replace(cause, explained_by=explained.get(place, cause.explained_by)) for place, cause in enumerate(causes)
    ]
    order = sorted(range(len(causes)), key=lambda place: causes[place].explained_by is not None)
    at: dict[int | None, int | None] = {None: None} | {old: place for place, old in enumerate(order)}
    linked = tuple(replace(causes[old], explained_by=at[causes[old].explained_by]) for old in order)
    counts, notes = (*ours.counts, *beside.counts), (*ours.notes, *beside.notes)
    return NumbersJudgement(linked, counts, notes, ours.marks, beside.distances)


def _explained(
    dataset: Dataset, place: int, causes: Sequence[NumberCause], laws: range, known: dict[int, int]
) -> dict[int, int]:
    """By place the cause that explains it: a first difference explains what breaks laws behind it. A law that names
    ranks or is a proof, and breaks in the very operation that first differs, is the root of both, and so is one about
    a weight that changed before it was used there."""
    first, spread = causes[place], ValueSpread(dataset)
    reached = spread.reached(spread.origins(first.first))
    names = dataset.tensors.select("step", "group", "seq", pl.col("site", "name", "op").cast(pl.String), "peer", "rank")
    explained: dict[int, int] = {}
    for at in laws:
        law = causes[at]
        if law.explained_by is not None or at in known:
            continue
        # whether both are about one operation, and none of the ranks that the law names is another one's
        (*call, peer, rank), (*law_call, law_peer, law_rank) = names[[first.first.row, law.first.row]].rows()
        is_same = call == law_call and (call[3] != "p2p" or {peer, rank} == {law_peer, law_rank})
        is_same = is_same and set(law.first.ranks) <= set(first.first.members)
        is_proof = any(RULES[broken.rule].standing == "proof" for broken in law.rules)
        # a weight that changed between two steps, on the ranks whose outputs first differ in the step that uses it
        is_weight = law.variant == "weights-changed" and call[0] == law_call[0] and law.first.ranks == first.first.ranks
        if is_weight or (is_same and (law.first.ranks or is_proof)):
            return {**dict.fromkeys(explained, at), place: at}
        is_schedule = (first.variant, law.variant) == ("schedule-differs", "schedule-changes")
        if is_schedule or spread.is_after(reached, law.first):
            explained[at] = place
    return explained
