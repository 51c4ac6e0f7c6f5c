"""Times of two runs that profiler traces tell: steps, their parts, kernels and collectives, pooled and by rank.

A cost is the mean over steps, pooled by the median over the ranks that have it: a rank that alone is slow changes
little there, and is listed by itself. Nothing of this is judged but the time of a step.

Compilers count kernels (`triton_poi_fused_add_3`), append hashes, and libraries put tiles and types into names. So one
kernel may have another name in another run, which only counts where the exact name has no counterpart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.schedule_alignment import match_groups
from rankscope.features.comparison.rules.step_costs import (
    LEAST_RANKS,
    REST,
    SPREADS,
    StepCosts,
    own_stragglers,
    step_costs,
)
from rankscope.features.comparison.rules.time_comparison import TimeComparison, TimeRatio, stand_apart, time_ratio
from rankscope.features.traces.rules.device_spans import is_among
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, digits, plural, ranks_text, short_name

_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[a-f]*\d)[0-9a-f]{6,}(?![A-Za-z0-9])|0x[0-9a-fA-F]+|\d+")
"""Hashes and numbers; a word such as "facade" has no digit and stays."""
_NAMESPACES = re.compile(r"\b(?:at|native|detail|c10|cutlass|std)::|\(anonymous namespace\)::")
_ENGINE = "autograd::engine::evaluate_function: "
_LONGEST = 60
_MOST_BRACKETS = 2_000
"""Longest name whose brackets are counted."""


def kernel_labels(a: Collection[str], b: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels of the kernels of both runs by name; matched kernels share one, and no others do."""
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    renamed = set[str]()
    for key in (_same, _without_numbers, _without_templates):
        ours, theirs = (_by_key(names, known, key) for names, known in zip((a, b), found, strict=True))
        for shared in sorted(ours.keys() & theirs.keys()):
            first = min(ours[shared])
            found[0].update(dict.fromkeys(ours[shared], first))
            found[1].update(dict.fromkeys(theirs[shared], first))
            if key is not _same:
                renamed.add(first)
    for known, names in zip(found, (a, b), strict=True):
        known.update({name: name for name in names if name not in known})
    shown = _shown(sorted({*found[0].values(), *found[1].values()}))
    shown |= {name: f"{shown[name]} (other names in B)" for name in renamed}
    return {name: shown[one] for name, one in found[0].items()}, {name: shown[one] for name, one in found[1].items()}


def _by_key(names: Collection[str], known: Collection[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    keyed = defaultdict[str, list[str]](list)
    for name in names:
        if name not in known:
            keyed[key(name)].append(name)
    return keyed


def _same(name: str) -> str:
    return name


def _without_numbers(name: str) -> str:
    return _HASH.sub("#", name)


def _without_templates(name: str) -> str:
    """The name without all that stands in brackets, and without numbers; only that for one that is very long."""
    if len(name) > _MOST_BRACKETS:
        return _without_numbers(name)
    out, depth = list[str](), 0
    for letter in name.replace("(anonymous namespace)", ""):
        depth += letter in "<("
        if not depth:
            out.append(letter)
        depth = max(depth - (letter in ">)"), 0)
    return _without_numbers("".join(out).removeprefix("void ").strip() or name)


def _shown(keys: Collection[str]) -> dict[str, str]:
    """Names for people by key: short where that tells them apart, else with the start of what differs."""
    found = {key: clipped(short_name(key.removeprefix(_ENGINE)), _LONGEST) for key in keys}
    for tell in (_with_parameters, _with_end):
        often = Counter(found.values())
        found = {key: text if often[text] == 1 else tell(key) for key, text in found.items()}
    often = Counter(found.values())
    counts = Counter[str]()
    for key, text in found.items():
        if often[text] > 1:
            counts[text] += 1
            found[key] = f"{text} #{counts[text]}"
    return found


def _with_parameters(key: str) -> str:
    """The name with the first parameters of its template: "elementwise_kernel<4, CUDAFunctor_add<float>..."."""
    _, bracket, parameters = plain(key, 400).removeprefix("void ").partition("<")
    return clipped(f"{short_name(key)}{bracket}{_NAMESPACES.sub('', parameters)}", _LONGEST)


def _with_end(key: str) -> str:
    text = plain(key, 400)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}..{text[1 - _LONGEST // 2 :]}"


LEAST_SHARE = 0.01
"""Smaller parts of a step are counted together."""
MOST_LISTED = 40
"""Most things of a kind that are compared one by one, the costliest first."""
MOST_APART = 10
"""Most things of a kind that are listed for ranks or groups apart from the others."""
MOST_GROUPS = 3
_PYTHON = "python_function"
_LONGEST_RANKS = 30
Frames = tuple[pl.DataFrame, pl.DataFrame]
"""A table of A and one of B."""


def with_traced_times(times: TimeComparison | None, a: ComparedRun, b: ComparedRun) -> TimeComparison | None:
    """The times with those of the traces of both runs; as they are if a run has none."""
    traces = TRACE_RESULTS.find(a.analysis), TRACE_RESULTS.find(b.analysis)
    if traces[0] is None or traces[1] is None:
        return times
    notes = (*_damage("A", a.dataset), *_damage("B", b.dataset), *_overhead(a.dataset, b.dataset))
    found = (times or TimeComparison((), ()))._replace(stragglers=tuple(own_stragglers(a, b)), notes=notes)
    costs = step_costs(a.dataset, traces[0]), step_costs(b.dataset, traces[1])
    if costs[0] is None or costs[1] is None:
        return found._replace(kernels=tuple(_calls(traces[0], traces[1])))
    step = _step_ratio(costs[0], costs[1])
    pair = _Pair((costs[0].turns, costs[1].turns), LEAST_SHARE * min(step.median_a, step.median_b))
    # a turn of the loop that traces show is the same step, less exactly
    known = () if a.dataset.ops.is_empty() and a.series.is_empty() else found.steps
    same_size = a.dataset.world_size == b.dataset.world_size
    return found._replace(
        steps=(*known, step), phases=tuple(_phases(pair, costs[0], costs[1], by_rank=same_size)),
        kernels=tuple(_kernels(pair, costs[0], costs[1], by_rank=same_size)),
        collectives=tuple(_collectives(pair, costs[0], costs[1], a, b)) or found.collectives,
    )  # fmt: skip


def _damage(label: str, dataset: Dataset) -> Iterator[str]:
    """Words for the traces of which something could not be read."""
    damaged = dataset.files.filter(pl.col("problem").is_not_null()).join(dataset.traces, on="file", how="semi")
    if damaged.height:
        ranks = damaged["rank"].drop_nulls().unique().sort().to_list()
        whose = f" of {ranks_text(ranks, _LONGEST_RANKS)}" if ranks else ""
        yield f"{label}: traces{whose} are damaged, so times of kernels and phases may be too short there"


def _overhead(a: Dataset, b: Dataset) -> Iterator[str]:
    """Words for a profiler that recorded Python functions in one run only."""
    with_stack = [bool(one.spans.select(is_among("category", [_PYTHON]).any()).item()) for one in (a, b)]
    if with_stack[0] != with_stack[1]:
        label = "A" if with_stack[0] else "B"
        yield f"only {label} was profiled with_stack: to record Python functions makes its host slower"


def _step_ratio(a: StepCosts, b: StepCosts) -> TimeRatio:
    """Lengths of steps, of each the median over ranks."""
    ns = pl.col("end_ns") - pl.col("start_ns")
    series = [one.steps.group_by("step").agg(ns=ns.median()).sort("step")["ns"].to_numpy() / 1e9 for one in (a, b)]
    return time_ratio("profiled step", *series)._replace(apart=stand_apart(*series))


def _phases(pair: _Pair, a: StepCosts, b: StepCosts, *, by_rank: bool) -> Iterator[TimeRatio]:
    """Parts of a step, and the phases that both runs mark."""
    marked = tuple(set(one.phases["name"].unique()) for one in (a, b))
    shared = sorted(marked[0] & marked[1])
    if marked[0] != marked[1] or len(shared) == 1:
        # the rest of other phases is another rest, and that of no phase is the step
        shared = [name for name in shared if not name.startswith(REST)]
    phases = tuple(one.phases.filter(pl.col("name").is_in(shared)) for one in (a, b))
    yield from pair.ratios((a.parts, b.parts))
    yield from pair.ratios((phases[0], phases[1]))
    if by_rank:
        yield from pair.apart((phases[0], phases[1]), _ranks_text)


def _kernels(pair: _Pair, a: StepCosts, b: StepCosts, *, by_rank: bool) -> Iterator[TimeRatio]:
    """Kernels by name; on a host that computes itself they are its operators."""
    labels = kernel_labels(*(set(one.kernels["name"].unique()) for one in (a, b)))
    named = [
        one.kernels.with_columns(pl.col("name").replace(label))
        .group_by("name", "who", "step")
        .agg(pl.col("ns", "count").sum())
        for one, label in zip((a, b), labels, strict=True)
    ]
    nouns = {one.noun for one in (a, b)}
    noun = nouns.pop() if len(nouns) == 1 else "kernel"
    yield from pair.ratios((named[0], named[1]), noun, f"{noun} ")
    if by_rank:
        yield from pair.apart((named[0], named[1]), _ranks_text, f"{noun} ")


def _collectives(
    pair: _Pair, a: StepCosts, b: StepCosts, run_a: ComparedRun, run_b: ComparedRun
) -> Iterator[TimeRatio]:
    """Collectives by group, operation and size: moving without the wait, and the wait of ranks."""
    groups = match_groups(run_a.dataset, run_b.dataset)
    moving = tuple(
        one.moving.with_columns(pl.col("who").replace(dict(enumerate(numbers.tolist()))))
        for one, numbers in ((a, groups.of_a), (b, groups.of_b))
    )
    by_group = pair.of_groups()
    yield from by_group.ratios((moving[0], moving[1]), "collective")
    yield from pair.ratios((a.waiting, b.waiting))
    members = {int(groups.of_a[one.id]): one.ranks for one in run_a.dataset.group_list}
    yield from by_group.apart(
        (moving[0], moving[1]),
        lambda found: "; ".join(_ranks_text(members.get(one, ())) for one in found[:MOST_GROUPS]),
    )


def _ranks_text(ranks: Sequence[int]) -> str:
    return ranks_text(ranks, _LONGEST_RANKS)


class _Pair(NamedTuple):
    """Numbers of steps of both runs, and the smallest time that is listed."""

    turns: Frames
    """who, turns: the steps of each rank."""
    least: float
    """Seconds of a step from which something is listed."""

    def of_groups(self) -> _Pair:
        """The same for costs of groups, which have the steps of the rank with most."""
        most = [one.select(who=pl.lit(-1, dtype=pl.Int64), turns=pl.col("turns").max()) for one in self.turns]
        return self._replace(turns=(most[0], most[1]))

    def ratios(self, costs: Frames, counted: str = "", prefix: str = "") -> Iterator[TimeRatio]:
        """The times a step, the costliest first; `counted` is the noun of what is told with its number a step."""
        pooled = [_pooled(one, _each(one, turns)) for one, turns in zip(costs, self.turns, strict=True)]
        both = pooled[0].join(pooled[1], on="name", how="full", coalesce=True, suffix="_b")
        both = both.with_columns(most=pl.max_horizontal("cost", "cost_b")).sort(
            "most", "name", descending=[True, False]
        )
        large = both["most"] >= self.least
        listed = both.filter(large).head(MOST_LISTED)
        traced = [one.height for one in self.turns]
        yield from (_ratio(row, prefix, counted, traced) for row in listed.iter_rows(named=True))
        left = both[listed.height :]
        if counted and left.height:
            before, after = (float(left[name].fill_null(0).sum()) for name in ("cost", "cost_b"))
            share = "" if large.sum() > listed.height else f" below {100 * LEAST_SHARE:.0f} % of a step"
            count, name = left.height, f"{plural(left.height, f'more {counted}')}{share}"
            yield TimeRatio(name, before, after, count, count, None, None, before, after)

    def apart(self, costs: Frames, words: Callable[[Sequence[int]], str], prefix: str = "") -> Iterator[TimeRatio]:
        """The things that changed on some ranks, or groups, by more than on the others."""
        each = [_each(one, turns) for one, turns in zip(costs, self.turns, strict=True)]
        both = each[0].join(each[1], on=["name", "who"], suffix="_b").filter(pl.col("who") >= 0)
        change = pl.col("cost_b") - pl.col("cost")
        both = both.with_columns(change=change, far=(change - change.median().over("name")))
        far, spread = pl.col("far").abs(), pl.col("far").abs().median().over("name")
        some = both.filter(
            (pl.len().over("name") >= LEAST_RANKS) & (far >= self.least) & (far > SPREADS * spread)
            & (pl.col("change").abs() >= self.least)
        )  # fmt: skip
        found = some.group_by("name", up=pl.col("change") > 0).agg(
            pl.col("who").sort(), pl.col("cost", "cost_b").median()
        )
        order = [-(pl.col("cost_b") - pl.col("cost")).abs(), pl.col("name")]
        for name, _, who, before, after in found.sort(order).head(MOST_APART).iter_rows():
            yield TimeRatio(f"{prefix}{name}, on {words(who)}", before, after, 1, 1, None, None, before, after)


def _each(costs: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """name, who, cost, per_step: seconds and number a step of each thing and rank or group."""
    most = int(turns["turns"].to_numpy().max(initial=1))
    steps = pl.col("turns").fill_null(most)
    summed = costs.group_by("name", "who").agg(pl.col("ns", "count").sum()).join(turns, on="who", how="left")
    return summed.select("name", "who", cost=pl.col("ns") / steps / 1e9, per_step=pl.col("count") / steps)


def _pooled(costs: pl.DataFrame, each: pl.DataFrame) -> pl.DataFrame:
    """name, cost, per_step, who, seconds: the medians over ranks, these, and the time of each step that has it."""
    by_step = costs.filter(pl.col("ns") > 0).group_by("name", "step").agg(pl.col("ns").median() / 1e9).sort("step")
    series = by_step.group_by("name").agg(seconds="ns")
    return (
        each.group_by("name")
        .agg(pl.col("cost", "per_step").median(), pl.col("who").sort())
        .join(series, on="name", how="left")
    )


def _ratio(row: Mapping[str, Any], prefix: str, counted: str, traced: Sequence[int]) -> TimeRatio:
    """The times of one thing, which one of the runs may not have; `traced` ranks of both."""
    a, b = (np.array([] if row[name] is None else row[name], np.float64) for name in ("seconds", "seconds_b"))
    costs = row["cost"] or 0.0, row["cost_b"] or 0.0
    name = f"{prefix}{row['name']}"
    if counted:
        name = f"{name} ({_count_text(row['per_step'], row['per_step_b'])})"
    if len(a) and len(b):
        return time_ratio(name, a, b)._replace(cost_a=costs[0], cost_b=costs[1])
    who, ranks = (row["who"], traced[0]) if len(a) else (row["who_b"], traced[1])
    if counted and 0 < len(who) < ranks:
        name = f"{name}, on {_ranks_text(who)}"
    return TimeRatio(name, *costs, len(a), len(b), None, None, *costs)


def _count_text(a: float | None, b: float | None) -> str:
    """Words for how often it comes: "3 a step", "3 -> 4 a step"."""
    told = [digits(one) for one in (a, b) if one is not None]
    return f"{' -> '.join(dict.fromkeys(told))} a step"


# Traces without marked steps.


def _calls(a: TraceAnalysis, b: TraceAnalysis) -> Iterator[TimeRatio]:
    """The mean time of a call of the costliest kernels; without steps nothing is known of their number."""
    tables = [
        one.kernels.filter(pl.col("kind") != "communication", pl.col("total_ns") > 0).cast({"name": pl.String})
        for one in (a, b)
    ]
    labels = kernel_labels(*(set(one["name"].unique()) for one in tables))
    pooled = [
        table.group_by(pl.col("name").replace(label), "rank").agg(pl.col("total_ns", "count").sum())
        .group_by("name").agg(pl.col("count", "total_ns").sum(), ns=(pl.col("total_ns") / pl.col("count")).median())
        for table, label in zip(tables, labels, strict=True)
    ]  # fmt: skip
    both = pooled[0].join(pooled[1], on="name", suffix="_b").sort("total_ns", "name", descending=[True, False])
    for name, count, _, ns, count_b, _, ns_b in both.head(MOST_LISTED).iter_rows():
        yield TimeRatio(f"kernel {name}", ns / 1e9, ns_b / 1e9, count, count_b, None, None)
