"""Answers to what-if questions, from a schedule.

S = T(recorded durations) / T(ideal), S_x = T(ideal, but recorded durations for x) / T(ideal), M_W and M_S are those of
"Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI '25), sections 3.3, 5.1 and 5.2.

What is worth mending goes by levels of computing: a rank has one for each kind of its operations (the median over steps
and micro batches), a stage the lower median of those of its ranks. So ranks that are all as long lie at their stage,
and one that is longer than the others of its stage at itself. What then varies from micro batch to micro batch,
in forward and backward alike, are the lengths of sequences (section 5.3: a correlation of at least 0.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.features.whatif.model import Gain, Slowdown, WhatIf
from rankscope.features.whatif.step_graph import Times
from rankscope.features.whatif.step_schedule import StepSchedule, part_of

DIGITS = 6
"""Digits of ratios: sums of many durations differ in their last bits from run to run."""
WORTH = 0.03
"""Smallest part of a step that is worth mending."""
LEAST = {"sequence": 0.05}
"""The same for causes that chance may look like: it, too, makes some micro batches longer than others."""
ALIKE = 0.9
"""Correlation of forward and backward from which sequences explain what varies."""
FEWEST_MICRO = 8
"""Fewest micro batches that can show it."""
WORST_SHARE = 0.03
"""Part of the workers that M_W is about."""
EXCESS_SHARE = 0.5
"""A rank whose excess is at least this part of the largest is slow as well."""
SURELY = 4
"""A rank is slow if its excess is this many times the error of its mean."""
FEWEST_STEPS, AGAIN = 5, 0.8
"""It is, too, if it computes longest in this part of so many steps: lengths come to another rank each time."""
FEWEST_FREE = 4
"""Fewest degrees of freedom by which the parts of a step tell that error."""
SLOW_ROUTE = 1.3
"""A route is slow if its transfers take this many times as long as is usual of their kind."""
MOST_WORKERS = 64
"""Most workers, and most routes, of which each is simulated."""
MOST_SIMULATED = 1 << 25
"""Most operations over all of these simulations."""


@dataclass(frozen=True)
class _Levels:
    """The usual duration of each operation, shape (operations,)."""

    took: Times
    typical: Times
    rank: Times
    stage: Times
    balanced: Times
    """Of the stage, if all stages had equally much to do."""
    sequence: Times
    """Length of the sequences of its micro batch, 1 is usual; 1 everywhere if they do not explain what varies."""
    even: Times
    """The mean of that in the step."""
    correlation: float | None
    slow: pl.DataFrame
    """Of `_surely_slow`."""


def answers(schedule: StepSchedule, origin: str, accused: tuple[int, ...] = (), *, steps_known: bool = True) -> WhatIf:
    """The answers for a schedule; `steps_known`: its steps are those of the program.

    `accused` are the ranks that the findings call slow: without any, those that compute longest are asked about.
    """
    ops, graph = schedule.ops, schedule.graph
    levels = _levels(schedule)
    base = graph.step_times(np.stack([levels.took, levels.typical], axis=1))
    step, ideal = base.mean(axis=0)
    repeats = max(1, schedule.repeats)
    per_step = base[:, 0] / np.maximum(base[:, 1], 1)
    by = {name: _alone(schedule, levels, name, ideal) for name in ("replica", "stage", "what")}
    workers = _workers(schedule, levels, by, ideal)
    measured = float(schedule.measured_ns.mean())
    gains = [
        *_gains(schedule, levels, accused, step),
        *(
            [Gain("launch", (), None, "", 0, round(float(1 - step / measured), DIGITS))]
            if schedule.named and measured > 0
            else []
        ),
    ]
    stages, replicas = ops["stage"].n_unique(), ops["replica"].n_unique()
    lost = step - ideal
    worst, last = workers[: -(-round(WORST_SHARE * 1e6) * len(workers) // 1_000_000)], ops["stage"].max()
    fixed = [ops["rank"].is_in([int(worker.name) for worker in worst]), ops["stage"] == last]
    mended = graph.step_times(np.stack([np.where(rows, levels.typical, levels.took) for rows in fixed], axis=1))
    shares = (step - mended.mean(axis=0)) / lost if lost > 0 else None
    shown = _named(gains, measured / repeats, {} if schedule.named else LEAST)
    acquitted = bool(accused) and _is_acquitted(levels, accused, gains, shown)
    if accused:
        shown = tuple(g for g in shown if g.cause != "worker" or _is_of(g, accused) == (not acquitted))
    return WhatIf(
        origin=origin,
        steps=len(base) * repeats if steps_known else 0,
        stages=stages,
        replicas=replicas,
        measured_ns=round(measured / repeats),
        step_ns=round(step / repeats),
        ideal_ns=round(ideal / repeats),
        slowdown=round(float(step / max(ideal, 1)), DIGITS),
        worst_step=(int(per_step.argmax()), float(per_step.max())),
        workers=workers,
        by_replica=by["replica"],
        by_stage=by["stage"],
        by_kind=by["what"],
        worst_workers=None if shares is None else round(float(shares[0]), DIGITS),
        last_stage=None if shares is None or stages < 2 else round(float(shares[1]), DIGITS),
        correlation=None if levels.correlation is None else round(levels.correlation, DIGITS),
        gains=shown,
        acquitted=acquitted,
    )


def _named(gains: list[Gain], measured: float, least: dict[str, float]) -> tuple[Gain, ...]:
    """The gains that are worth it, best first, with the times of steps as they were recorded."""
    worth = sorted((gain for gain in gains if gain.share >= least.get(gain.cause, WORTH)), key=lambda gain: -gain.share)
    return tuple(replace(gain, step_ns=round(measured * (1 - gain.share))) for gain in worth)


def _alone(schedule: StepSchedule, levels: _Levels, column: str, ideal: float) -> tuple[Slowdown, ...]:
    """The slowdown by each value of a column alone, the largest first."""
    values = schedule.ops[column]
    # of many replicas only those that lose most can matter
    named = values.unique().sort().to_list()
    if len(named) * len(values) > MOST_SIMULATED:
        named = _longest(schedule, levels, column, max(1, MOST_SIMULATED // len(values)))
    return _kept(schedule, levels, [(str(value), (values == value).to_numpy()) for value in named], ideal)


def _kept(
    schedule: StepSchedule, levels: _Levels, rows: list[tuple[str, np.ndarray]], ideal: float
) -> tuple[Slowdown, ...]:
    ratios: list[float] = []
    for at in range(0, len(rows), MOST_WORKERS):
        columns = [np.where(kept, levels.took, levels.typical) for _, kept in rows[at : at + MOST_WORKERS]]
        ratios += (schedule.graph.step_times(np.stack(columns, axis=1)).mean(axis=0) / max(ideal, 1)).tolist()
    told = [Slowdown(name, round(ratio, DIGITS)) for (name, _), ratio in zip(rows, ratios, strict=True)]
    return tuple(sorted(told, key=lambda one: (-one.ratio, len(one.name), one.name)))


def _longest(schedule: StepSchedule, levels: _Levels, column: str, most: int) -> list[int]:
    lost = pl.Series("lost", levels.took - levels.typical)
    table = schedule.ops.select(column).with_columns(lost).group_by(column).agg(pl.col("lost").sum())
    return table.sort("lost", descending=True)[column].head(most).to_list()


def _workers(
    schedule: StepSchedule, levels: _Levels, by: dict[str, tuple[Slowdown, ...]], ideal: float
) -> tuple[Slowdown, ...]:
    """By rank; each of the worst by a simulation of its own, of the others what their replica and stage allow."""
    ranks = schedule.ops.select("rank", "replica", "stage").unique("rank")
    ratios = {name: {one.name: one.ratio for one in by[name]} for name in ("replica", "stage")}
    bound = {
        rank: min(ratios["replica"].get(str(replica), 1.0), ratios["stage"].get(str(stage), 1.0))
        for rank, replica, stage in ranks.iter_rows()
    }
    most = max(1, min(4 * MOST_WORKERS, MOST_SIMULATED // max(1, schedule.ops.height)))
    first = sorted(bound, key=lambda rank: (-bound[rank], rank))
    rank = schedule.ops["rank"]
    exact = _kept(schedule, levels, [(str(one), (rank == one).to_numpy()) for one in first[:most]], ideal)
    rest = tuple(Slowdown(str(one), round(bound[one], DIGITS)) for one in first[most:])
    return tuple(sorted((*exact, *rest), key=lambda one: (-one.ratio, len(one.name), one.name)))


def _levels(schedule: StepSchedule) -> _Levels:
    lower = pl.col("rank_ns").sort().get((pl.len() - 1) // 2)
    rows = schedule.ops.with_row_index("op")
    # pieces of one slot may be cut differently: all of them together are compared
    whole = ["rank", "step", "slot", "micro"]
    computing = rows.filter(~pl.col("transfer")).with_columns(total_ns=pl.col("took_ns").sum().over(whole))
    ranks = (
        computing.unique(whole)
        .group_by("stage", "rank", "slot")
        .agg(rank_ns=pl.col("total_ns").median(), times=pl.len())
    )
    stages = ranks.group_by("stage", "slot").agg(stage_ns=lower, times=pl.col("times").max())
    over = ["slot"] if schedule.named else []
    totals = stages.group_by("stage", *over).agg(total=(pl.col("stage_ns") * pl.col("times")).sum())
    mean = pl.col("total").mean().over(over) if over else pl.col("total").mean()
    totals = totals.with_columns(ratio=(mean / pl.col("total")).fill_nan(1))
    part = part_of("total_ns")
    computing = (
        computing.join(ranks.drop("times", "stage"), on=["rank", "slot"], how="left")
        .join(stages.drop("times"), on=["stage", "slot"], how="left")
        .join(totals.drop("total"), on=["stage", *over], how="left")
        .with_columns(rank_ns=pl.col("rank_ns") * part, stage_ns=pl.col("stage_ns") * part)
        .with_columns(balanced_ns=pl.col("stage_ns") * pl.col("ratio"))
    )  # fmt: skip
    rows = rows.join(
        computing.select("op", "rank_ns", "stage_ns", "balanced_ns"), on="op", how="left", maintain_order="left"
    ).with_columns(sequence=pl.lit(1.0), even=pl.lit(1.0))  # fmt: skip
    slow, correlation = _surely_slow(rows), _correlation(rows)
    if correlation is not None and correlation >= ALIKE:
        known = pl.col("micro").is_not_null() & pl.col("first_ns").is_not_null()
        # what a slow rank needs longer in all of them is no length
        usual = pl.when(pl.col("rank").is_in(slow["rank"].implode())).then("rank_ns").otherwise("stage_ns")
        length = (pl.col("took_ns").filter(known).sum() / usual.filter(known).sum()).over("step", "replica", "micro")
        stretched = known | (pl.col("micro").is_not_null() & pl.col("transfer"))
        rows = rows.with_columns(sequence=pl.when(stretched & length.is_finite()).then(length).otherwise(1.0))
        even = pl.when(stretched).then(pl.col("sequence").filter(known).mean().over("step")).otherwise(1.0)
        rows = rows.with_columns(even=even)
    took = rows["took_ns"].to_numpy()
    levels = [rows[name].fill_null(rows["took_ns"]).to_numpy() for name in ("rank_ns", "stage_ns", "balanced_ns")]
    factors = [rows[name].to_numpy() for name in ("sequence", "even")]
    rank_ns, stage_ns, balanced_ns = levels
    sequences, evens = factors
    typical_ns = rows["typical_ns"].to_numpy()
    return _Levels(took, typical_ns, rank_ns, stage_ns, balanced_ns, sequences, evens, correlation, slow)


def _correlation(rows: pl.DataFrame) -> float | None:
    """Pearson's correlation of two parts of the work of a rank on a micro batch, over all of them.

    Each is relative to what is usual on the rank, so that slow ranks and long stages correlate nothing.
    """
    known = rows.drop_nulls(["micro", "first_ns", "second_ns"])
    batches = known.group_by("rank", "step", "micro").agg(pl.col("first_ns", "second_ns").sum())
    batches = batches.filter((pl.col("first_ns") > 0) & (pl.col("second_ns") > 0))
    if batches.height < FEWEST_MICRO:
        return None
    shares = batches.select(pl.col(name) / pl.col(name).median().over("rank") for name in ("first_ns", "second_ns"))
    # few outliers, as a rank that pauses once, must not decide
    low, high = (
        pl.col(name).clip(pl.col(name).quantile(0.01), pl.col(name).quantile(0.99))
        for name in ("first_ns", "second_ns")
    )
    found = shares.select(pl.corr(low, high)).item()
    return None if found is None or np.isnan(found) else float(found)


def _gains(schedule: StepSchedule, levels: _Levels, accused: tuple[int, ...], step: float) -> Iterator[Gain]:
    """The cost of each cause: the schedule without it, all else as recorded."""
    ops = schedule.ops
    computes = (~ops["transfer"]).to_numpy()
    questions: list[tuple[Gain, Times]] = []
    for slow in {ranks: None for ranks in (accused, _slow_ranks(schedule, levels)) if ranks}:
        rows = ops["rank"].is_in(slow).to_numpy() & computes
        usual = np.where(rows, np.minimum(levels.took, levels.stage * levels.sequence), levels.took)
        questions.append((Gain("worker", slow, None, "", 0, 0.0), usual))
    if ops["stage"].n_unique() > 1:
        balanced = np.where(computes, levels.took * levels.balanced / np.maximum(levels.stage, 1), levels.took)
        longest = _longest_stage(schedule, levels)
        ranks = tuple(ops.filter(pl.col("stage") == longest)["rank"].unique().sort().to_list())
        questions.append((Gain("stage", ranks, longest, "", 0, 0.0), balanced))
    if (levels.sequence != 1).any():
        questions.append((Gain("sequence", (), None, "", 0, 0.0), levels.took * levels.even / levels.sequence))
    questions += _links(schedule, levels)
    if questions:
        columns = np.stack([durations for _, durations in questions], axis=1)
        times = schedule.graph.step_times(columns).mean(axis=0)
        for (gain, _), without in zip(questions, times.tolist(), strict=True):
            yield replace(gain, step_ns=round(without), share=round(float(1 - without / max(step, 1)), DIGITS))


def _is_acquitted(levels: _Levels, accused: tuple[int, ...], gains: list[Gain], shown: tuple[Gain, ...]) -> bool:
    """Whether a stage, lengths, a link of theirs, or other ranks cost the job what the accused ranks do not.

    They do if the accused, made as long as their peers, gain nothing, or clearly less, and are not surely slow.
    `shown` are those of the `gains` that are worth mending.
    """
    if set(accused) & set(levels.slow["rank"]):
        return False
    alone = max((gain.share for gain in gains if _is_of(gain, accused)), default=0.0)
    links = max((g.share for g in shown if g.cause == "link" and set(accused) <= set(g.ranks)), default=0.0)
    if links >= max(WORTH, 2 * alone):
        return True
    shared = max((gain.share for gain in shown if gain.cause in ("stage", "sequence")), default=0.0)
    others = max((gain.share for gain in shown if gain.cause != "launch" and not _is_of(gain, accused)), default=0.0)
    return others >= WORTH and (alone < WORTH or alone < shared)


def _is_of(gain: Gain, accused: tuple[int, ...]) -> bool:
    return gain.cause == "worker" and gain.ranks == accused


def _surely_slow(rows: pl.DataFrame) -> pl.DataFrame:
    """rank, excess: the ranks that compute longer than the others of their stage do, by more than chance explains.

    `rows` of SCHEDULE with `stage_ns`. Chance includes lengths of sequences: a rank may have had the longer ones.
    """
    computing = rows.filter(~pl.col("transfer"))
    batches = computing.group_by("rank", "stage", "step", "micro").agg(pl.col("took_ns", "stage_ns").sum())
    # of steps that differ for all, as the first and the last, only the others of the stage in the same step tell
    usual_ns = pl.col("took_ns").sort().get((pl.len() - 1) // 2).over("stage", "step", "micro")
    batches = batches.with_columns(usual_ns=usual_ns).filter((pl.col("took_ns") > 0) & (pl.col("usual_ns") > 0))
    over = (pl.col("took_ns") / pl.col("usual_ns")).log()
    parts = batches.group_by("rank", "stage", "micro").agg(
        excess=(pl.col("took_ns") - pl.col("stage_ns")).sum(), mean=over.mean(), all=over, times=pl.len(),
        # by how much the same part of a step varies: that parts differ from each other is no chance
        variance=over.var() / pl.len(),
    )  # fmt: skip
    by_part = pl.col("variance").sum().sqrt() / pl.len()
    overall = pl.col("all").explode().std().fill_null(float("inf")) / pl.col("times").sum().sqrt()
    free = (pl.col("times") - 1).sum()
    ranks = parts.group_by("rank", "stage").agg(
        pl.col("excess").sum(), mean=pl.col("all").explode().mean(),
        error=pl.when((free >= FEWEST_FREE) & (pl.col("times").min() > 1)).then(by_part).otherwise(overall),
    )  # fmt: skip
    ranks = ranks.join(_longest_in(batches), on=["rank", "stage"])
    # alone in its stage, a rank cannot be told from its stage
    usual = pl.col("mean").sort().get((pl.len() - 1) // 2).over("stage")
    again = (pl.col("steps") >= FEWEST_STEPS) & (pl.col("longest") >= AGAIN * pl.col("steps"))
    return ranks.filter(
        (pl.len().over("stage") > 1) & (pl.col("excess") > 0)
        & (again | (pl.col("mean") - usual >= SURELY * pl.col("error")))
    )  # fmt: skip


def _longest_in(batches: pl.DataFrame) -> pl.DataFrame:
    """rank, stage, steps, longest: in how many steps it computes and in how many it computes longest, or nearly so."""
    steps = batches.group_by("rank", "stage", "step").agg(pl.col("took_ns").sum())
    others_ns = pl.col("took_ns").sort().get((pl.len() - 1) // 2).over("stage", "step")
    longest = (pl.col("took_ns") >= 0.98 * pl.col("took_ns").max().over("stage", "step")) & (
        pl.col("took_ns") > 1.02 * others_ns
    )
    return steps.with_columns(longest=longest).group_by("rank", "stage").agg(
        steps=pl.len(), longest=pl.col("longest").sum()
    )  # fmt: skip


def _slow_ranks(schedule: StepSchedule, levels: _Levels) -> tuple[int, ...]:
    """The ranks whose computing costs most, of those that are surely slow."""
    slow = levels.slow
    longest = slow.filter(pl.col("excess") >= EXCESS_SHARE * pl.col("excess").max()).sort("excess", descending=True)
    names = longest["rank"].to_list()
    return tuple(sorted(names)) if 4 * len(names) <= schedule.ops["rank"].n_unique() else tuple(names[:1])


def _longest_stage(schedule: StepSchedule, levels: _Levels) -> int:
    table = schedule.ops.select("stage", "rank", "transfer").with_columns(pl.Series("usual", levels.stage))
    ranks = table.filter(~pl.col("transfer")).group_by("stage", "rank").agg(pl.col("usual").sum())
    return int(ranks.sort("usual", "stage")["stage"][-1])


def _links(schedule: StepSchedule, levels: _Levels) -> list[tuple[Gain, Times]]:
    """The routes whose transfers take longer than those of the same kind on other routes, the slowest first."""
    rows = schedule.ops.with_row_index("op").filter(pl.col("transfer") & pl.col("route").is_not_null())
    slots = rows.group_by("what", "slot", "route").agg(level=pl.col("took_ns").median(), times=pl.len())
    usual = pl.col("level").sort().get((pl.len() - 1) // 2).over("what", "slot")
    slots = slots.with_columns(usual=usual, alike=pl.len().over("what", "slot")).filter(pl.col("alike") > 1)
    routes = slots.group_by("what", "route").agg((pl.col("level", "usual") * pl.col("times")).sum())
    slow = routes.filter((pl.col("level") > 0) & (pl.col("level") >= SLOW_ROUTE * pl.col("usual")))
    slow = slow.with_columns(lost=pl.col("level") - pl.col("usual")).sort("lost", descending=True)
    out = []
    for what, route, level, usual_ns in slow.head(MOST_WORKERS).select("what", "route", "level", "usual").iter_rows():
        own = rows.filter((pl.col("what") == what) & (pl.col("route") == route))
        mended = levels.took.copy()
        mended[own["op"].to_numpy()] *= usual_ns / level
        out.append((Gain("link", tuple(own["rank"].unique().sort().to_list()), None, what, 0, 0.0), mended))
    return out
