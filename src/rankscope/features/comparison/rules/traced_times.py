"""Times of two runs that traces tell: steps, parts, kernels and collectives, and ranks that are slow in one run only.

A step is what `torch.profiler.profile.step` marks. Work belongs to the step and to the phase in which the host launched
it: a device runs behind its host. Without a device the operators of the host are the work.

A cost is the mean over steps, pooled by the median over the ranks that have it: a rank that alone is slow changes
little there, and is listed by itself. Nothing of this is judged but the time of a step.

A rank is late by itself by the test of one run (`late_ranks`), and in the other run much less. Of ranks that do not
communicate, and so wait for nobody, it is the one whose steps became longer while those of the others did not.

Compilers count kernels (`triton_poi_fused_add_3`), append hashes, and libraries put tiles and types into names. So one
kernel may have another name in another run, which only counts where the exact name has no counterpart.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.places import Places
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.schedule_comparison import match_groups
from rankscope.features.comparison.rules.time_comparison import (
    APART,
    LEAST_APART,
    OwnStraggler,
    TimeComparison,
    TimeRatio,
    group_labels,
    stand_apart,
    time_ratio,
)
from rankscope.features.traces.rules.device_spans import BusyIntervals, SpanIndex, is_among, step_spans, with_steps
from rankscope.features.traces.rules.model import TRACE_RESULTS, Columns, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.tensors import tensors
from rankscope.text.wording import clipped, digits, duration, plural, ranks_text, short_name

LEAST_RATIO = 2
"""Smallest ratio of the lateness of a straggler to that of the same rank in the other run."""
SPREADS = 6 * 1.4826
"""Distance to the others, in median absolute deviations, from which a rank is apart: six sigma of a normal spread."""
LEAST_EXCESS = 0.1
"""Least excess of the steps of a rank that waits for nobody over those of the others. With it and the ranges of
`stand_apart`, 0 to 0.3 % of pairs of equal runs of 3 to 64 ranks accuse one (5 to 20 steps, noise of 3 % with a rank
correlation up to 0.6; 1.7 % at 0.9)."""
LEAST_RANKS = 3
"""Fewest ranks of which one can be apart from the others."""
_LONGEST_RANKS = 40


class _Side(NamedTuple):
    """A run, its label, and the rows of STEPS of its traces."""

    label: str
    run: ComparedRun
    steps: pl.DataFrame

    @property
    def accused(self) -> dict[int, str]:
        """The title of the finding for each rank that is called a straggler."""
        findings = [finding for finding in self.run.analysis.findings if finding.kind == "straggler"]
        return {rank: finding.title for finding in findings for rank in finding.culprit_ranks}

    @property
    def late(self) -> dict[int, float]:
        """For each rank the part of its time by which it is late by itself."""
        known = self.steps.drop_nulls(["rank", "late_ns"]).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
        parts = known.group_by("rank").agg(pl.col("late_ns").sum() / pl.col("ns").sum())
        return dict(parts.iter_rows())


class _SlowRank(NamedTuple):
    """The amounts by which a rank is slow."""

    here: float
    """A part of its time, or the nanoseconds of its steps if `others` are known."""
    there: float
    others: tuple[float, float] | None = None
    """Nanoseconds of the steps of the other ranks, here and there."""
    title: str = ""
    """Title of the finding of its run."""


def own_stragglers(a: ComparedRun, b: ComparedRun) -> Iterator[OwnStraggler]:
    """The stragglers of B that are none in A, then those of A that are none in B; only of runs of equal size.

    One for each host of which all traced ranks are slow, and for each other rank.
    """
    if a.dataset.world_size != b.dataset.world_size:
        return
    side_a, side_b = (
        _Side(label, run, (TRACE_RESULTS.find(run.analysis) or TraceAnalysis()).steps)
        for label, run in (("A", a), ("B", b))
    )
    for here, there in ((side_b, side_a), (side_a, side_b)):
        slow = _slow_steps(here, there)
        late, late_there, innocent = here.late, there.late, there.accused
        for rank, title in here.accused.items():
            if rank not in innocent and rank in late and late[rank] > LEAST_RATIO * late_there.get(rank, math.inf):
                slow[rank] = _SlowRank(late[rank], late_there[rank], title=title)
        hosts, before = Places(here.run.dataset).hosts, Places(there.run.dataset).hosts
        traced = defaultdict[str, list[int]](list)
        for rank in here.steps["rank"].drop_nulls().unique().sort():
            traced[hosts.get(rank, "")].append(rank)
        for host, ranks in traced.items():
            slow_here = {rank: slow[rank] for rank in ranks if rank in slow}
            if host and len(slow_here) == len(ranks) > 1 and len(traced) > 1:
                yield _straggler(f"host {host} ({ranks_text(ranks, _LONGEST_RANKS)})", slow_here, here, there)
                continue
            for rank, one in slow_here.items():
                moved = f" ({before[rank]} in {there.label})" if before.get(rank, host) != host else ""
                yield _straggler(f"rank {rank}{f' on {host}' if host else ''}{moved}", {rank: one}, here, there)


def _straggler(place: str, slow: Mapping[int, _SlowRank], here: _Side, there: _Side) -> OwnStraggler:
    after, before = (float(np.median([getattr(rank, side) for rank in slow.values()])) for side in ("here", "there"))
    others = next(iter(slow.values())).others
    if others is not None:
        times = [duration(round(ns)) for ns in (after, before, *others)]
        how = f"its steps take {times[0]}, in {there.label} {times[1]}"
        how += f"; those of the other ranks {times[2]} and {times[3]}"
    else:
        how = f"late by itself for {after:.1%} of the time, in {there.label} for {before:.1%}"
    title = f"{place} is a straggler of {here.label} only: {how}".replace("%", " %")
    return OwnStraggler(here.label, tuple(slow), title, tuple(rank.title for rank in slow.values() if rank.title))


def _slow_steps(here: _Side, there: _Side) -> dict[int, _SlowRank]:
    """The ranks without communication whose steps all are longer than there, by more than those of the others."""
    both = _step_lengths(here).join(_step_lengths(there), on="rank", suffix="_there")
    if both.height < LEAST_RANKS:
        return {}
    change = (both["ns"] / both["ns_there"]).to_numpy()
    far = change / np.median(change) - 1
    limit = max(LEAST_EXCESS, SPREADS * float(np.median(np.abs(far))))
    apart = pl.Series(change - 1) >= APART * pl.max_horizontal("reach", "reach_there")
    slow = both.filter(pl.Series(far > limit) & apart & (pl.col("least") > pl.col("most_there")))
    rest = both.join(slow, on="rank", how="anti")
    others = float(np.median(rest["ns"])), float(np.median(rest["ns_there"]))
    return {
        rank: _SlowRank(ns, before, others) for rank, ns, before in slow.select("rank", "ns", "ns_there").iter_rows()
    }


def _step_lengths(side: _Side) -> pl.DataFrame:
    """rank, ns, least, most, reach: median, shortest and longest step of each rank, and their range by the median.

    A rank with few steps is left out, and one that communicates: its steps are as long as those that it waits for.
    """
    ns = pl.col("end_ns") - pl.col("start_ns")
    steps = (
        side.steps.drop_nulls("rank")
        .group_by("rank")
        .agg(ns=ns.median(), least=ns.min(), most=ns.max(), count=pl.len(), alone=pl.col("communication_ns").max() == 0)
    )
    enough = steps.filter("alone", pl.col("count") >= LEAST_APART, pl.col("ns") > 0).sort("rank")
    return enough.select("rank", "ns", "least", "most", reach=(pl.col("most") - pl.col("least")) / pl.col("ns"))


COSTS: Columns = {
    "name": pl.String,
    "who": pl.Int64,  # the rank, -1 if unknown; of collectives that move data, the group
    "step": pl.Int64,
    "ns": pl.Int64,
    "count": pl.Int64,
}
"""One row for each thing, rank or group, and step."""
REST = "the rest of the step"
_PHASES = (
    ("data loading", re.compile(r"data_?load|next_data|(?:get|load|next|fetch)_batch", re.IGNORECASE)),
    ("optimizer", re.compile(r"^Optimizer\.|\boptimizer(?:[-_]step)?\b")),
    ("backward", re.compile(r"^autograd::engine::evaluate_function|\bbackward(?:[-_](?:step|compute))?\b")),
    ("forward", re.compile(r"\bforward(?:[-_](?:step|compute))?\b")),
)
"""Phases by the names of their marks; of those that enclose each other the first counts."""
_OPERATOR_MARK = "autograd::engine"
_PARTS = {
    "compute_ns": "computing",
    "exposed_ns": "communication exposed",
    "overlap_ns": "communication behind computing",
    "memory_ns": "copies",
    "idle_ns": "idle",
}
"""Parts of a step, and their columns of STEPS."""


@dataclass(frozen=True)
class StepCosts:
    """The costs of a run; all tables but `steps` have the columns COSTS."""

    steps: pl.DataFrame
    """Rows of STEPS; without the first step of a window that has more than enough."""
    parts: pl.DataFrame
    phases: pl.DataFrame
    kernels: pl.DataFrame
    moving: pl.DataFrame
    """Collectives from the last arrival to the end."""
    waiting: pl.DataFrame
    """Ranks in collectives before the last arrival; to the end where no other member was traced."""
    noun: str
    """"kernel", or "operator" of a host that computes itself."""

    @property
    def turns(self) -> pl.DataFrame:
        """who, turns: the number of steps of each rank."""
        return self.steps.group_by(pl.col("rank").fill_null(-1).cast(pl.Int64).alias("who")).agg(turns=pl.len())


def step_costs(dataset: Dataset, traces: TraceAnalysis) -> StepCosts | None:
    """The costs of the traces of a run; None if no step is marked."""
    marks = step_spans(dataset).with_columns(
        many=pl.len().over("file") > LEAST_APART, first=pl.col("begin_ns") == pl.col("begin_ns").min().over("file")
    )
    marks = marks.filter(~(pl.col("many") & pl.col("first"))).drop("many", "first")
    steps = traces.steps.join(marks, on=["file", "step"], how="semi").filter(pl.col("end_ns") > pl.col("start_ns"))
    if steps.is_empty():
        return None
    spans = SpanIndex(dataset)
    files = [_of_file(spans, file, part) for (file,), part in marks.partition_by("file", as_dict=True).items()]
    ranks = dataset.traces.select("file", who=pl.col("rank").fill_null(-1).cast(pl.Int64))
    kernels, phases = (_summed(pl.concat([tables[at] for tables in files]).join(ranks, on="file")) for at in (0, 1))
    known = [pl.col(column).alias(name) for column, name in _PARTS.items()]
    parts = steps.select("step", *known, who=pl.col("rank").fill_null(-1))
    parts = parts.unpivot(index=["who", "step"], variable_name="name", value_name="ns").drop_nulls("ns")
    moving, waiting = _collective_costs(dataset, traces, marks)
    noun = "operator" if spans.on_host else "kernel"
    return StepCosts(steps, _summed(parts), phases, kernels, moving, waiting, noun)


def _summed(rows: pl.DataFrame) -> pl.DataFrame:
    """COSTS of rows with name, who, step and ns."""
    name = pl.col("name").cast(pl.String)
    table = rows.group_by(name, "who", "step").agg(pl.col("ns").sum(), count=pl.len())
    return table.select([pl.col(name).cast(kind) for name, kind in COSTS.items()])


def _of_file(spans: SpanIndex, file: int, marks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """file, name, step, ns: of kernels, and of phases."""
    none = pl.DataFrame(schema={"file": pl.UInt32, "name": pl.Categorical, "step": pl.Int64, "ns": pl.Int64})
    host = spans.host(file)
    if file not in spans.whole or spans.device(file) is None or host is None:
        return none, none.cast({"name": pl.String})
    work = spans.launched(file).filter(pl.col("what") != "communication")
    if spans.on_host:
        reach = pl.col("end_ns").cum_max().over("track").shift().over("track")
        work = work.filter(reach.is_null() | (pl.col("start_ns") >= reach))
    launch, length = pl.coalesce("call_ns", "start_ns"), pl.col("end_ns") - pl.col("start_ns")
    work = work.select("file", "name", created_ns=launch, started_ns="start_ns", offset_ns=pl.lit(0), ns=length)
    work = with_steps(work, marks).drop_nulls("step")
    phases = _marked_phases(host)
    # the time of the host in each phase, and in none
    begin, end = marks["begin_ns"].to_numpy(), marks["end_ns"].to_numpy()
    reached = [busy.within(begin, end) for busy in accumulate(phases.values(), BusyIntervals.joined)] + [end - begin]
    added = [after - before for before, after in zip([0 * begin, *reached], reached, strict=False)]
    timed = pl.concat(
        marks.select("file", name=pl.lit(f"{name}, on the host"), step="step", ns=pl.Series(ns, dtype=pl.Int64))
        for name, ns in zip([*phases, REST], added, strict=True)
    )
    if spans.on_host:
        return work.select(none.columns), timed
    # the phase in which the host launched each
    at, phase_name = work["created_ns"].to_numpy(), pl.lit(REST)
    for phase, busy in reversed(phases.items()):
        inside = pl.lit(pl.Series(busy.within(at, at + 1) > 0))
        phase_name = pl.when(inside).then(pl.lit(phase)).otherwise(phase_name)
    launched = work.with_columns(name=phase_name + ", on the device").select(none.columns)
    loading = timed.filter(pl.col("name") == f"{_PHASES[0][0]}, on the host")
    return work.select(none.columns), pl.concat([loading, launched])


def _marked_phases(host: pl.DataFrame) -> dict[str, BusyIntervals]:
    """The stretches of each phase that the host marks, by its clock; each without those of earlier phases counts."""
    marked = host.filter(is_among("category", ["user_annotation", "cpu_op"]))
    annotated = marked["category"].cast(pl.String) == "user_annotation"
    names = marked.filter(annotated | marked["name"].cast(pl.String).str.starts_with(_OPERATOR_MARK))
    labels = names["name"].unique().cast(pl.String).drop_nulls().to_list()
    phases = {}
    for phase, pattern in _PHASES:
        matching = names.filter(is_among("name", [name for name in labels if pattern.search(name)]))
        if matching.height:
            phases[phase] = BusyIntervals.of(matching["start_ns"].to_numpy(), matching["end_ns"].to_numpy())
    return phases


_SITE = ["group", "op", "is_p2p", "in_sizes", "in_dtypes"]


def _collective_costs(
    dataset: Dataset, traces: TraceAnalysis, marks: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """COSTS of moving, by group, and of waiting, by rank."""
    calls = dataset.traced.with_row_index("row").select(
        "row", "file", "rank", *_SITE, "created_ns", "started_ns", "completed_ns", offset_ns=pl.lit(0)
    )
    distinct = calls.select(_SITE).unique().join(group_labels(dataset), on="group", how="left")
    names = []
    for _, op, p2p, sizes, dtypes, label in distinct.iter_rows():
        call = f"{'send, recv' if p2p else op or '?'} {tensors(sizes, dtypes)}".rstrip()
        names.append(f"{call} in {label or 'an unnamed group'}")
    named = (
        with_steps(calls, marks)
        .drop_nulls("step")
        .join(distinct.select(*_SITE, name=pl.Series(names, dtype=pl.String)), on=_SITE, nulls_equal=True)
    )
    if traces.matched.is_empty():
        ns = pl.col("completed_ns") - pl.coalesce("started_ns", "created_ns")
        whole = named.select(pl.col("name") + ", with the wait", "step", who=pl.col("rank").fill_null(-1), ns=ns)
        return pl.DataFrame(schema=COSTS), _summed(whole.drop_nulls())
    times = traces.matched.select("match", "row", "arrived_ns", "ended_ns", "blocking")
    rows = named.select("row", "name", "step", "rank", "group").join(times, on="row").sort("match", "name")
    last = pl.col("arrived_ns").max()
    moved = rows.group_by("match").agg(
        pl.col("name").last(), pl.col("step").min(), who=pl.col("group").first(), ns=pl.col("ended_ns").min() - last
    )
    waits = rows.filter("blocking").with_columns(ns=last.over("match") - pl.col("arrived_ns"), who="rank")
    return _summed(moved.filter(pl.col("ns") > 0)), _summed(waits.with_columns(pl.col("name") + ", waiting"))


_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[a-f]*\d)[0-9a-f]{6,}(?![A-Za-z0-9])|0x[0-9a-fA-F]+|\d+")
"""Hashes and numbers; a word such as "facade" has no digit and stays."""
_NAMESPACES = re.compile(r"\b(?:at|native|detail|c10|cutlass|std)::|\(anonymous namespace\)::")
_ENGINE = "autograd::engine::evaluate_function: "
_LONGEST = 60
_MOST_BRACKETS = 2_000
"""Longest name whose brackets are counted."""


def kernel_labels(a: Collection[str], b: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels of the kernels of both runs by name; matched kernels share one, and no others do."""
    keys: tuple[dict[str, str], dict[str, str]] = {}, {}
    renamed = set[str]()
    spellings: tuple[Callable[[str], str], ...] = (str, _without_numbers, _without_templates)
    for number, key in enumerate(spellings):
        ours, theirs = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for names, known, by_key in zip((a, b), keys, (ours, theirs), strict=True):
            for name in names:
                if name not in known:
                    by_key[key(name)].append(name)
        for shared in sorted(ours.keys() & theirs.keys()):
            first = min(ours[shared])
            keys[0].update(dict.fromkeys(ours[shared], first))
            keys[1].update(dict.fromkeys(theirs[shared], first))
            if number:
                renamed.add(first)
    for known, names in zip(keys, (a, b), strict=True):
        known.update({name: name for name in names if name not in known})
    shown = _shown(sorted({*keys[0].values(), *keys[1].values()}))
    shown |= {name: f"{shown[name]} (other names in B)" for name in renamed}
    return {name: shown[key] for name, key in keys[0].items()}, {name: shown[key] for name, key in keys[1].items()}


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
    """Names for people by key: short where that tells them apart, else with the start of what differs.

    That is the first parameters of a template, "elementwise_kernel<4, CUDAFunctor_add<float>...", else both ends.
    """
    shown = {key: clipped(short_name(key.removeprefix(_ENGINE)), _LONGEST) for key in keys}
    often = Counter(shown.values())
    for key, text in shown.items():
        if often[text] > 1:
            _, bracket, parameters = plain(key, 400).removeprefix("void ").partition("<")
            shown[key] = clipped(f"{short_name(key)}{bracket}{_NAMESPACES.sub('', parameters)}", _LONGEST)
    often = Counter(shown.values())
    for key, text in shown.items():
        if often[text] > 1:
            whole = plain(key, 400)
            is_short = len(whole) <= _LONGEST
            shown[key] = whole if is_short else f"{whole[: _LONGEST // 2 - 1]}..{whole[1 - _LONGEST // 2 :]}"
    often, counts = Counter(shown.values()), Counter[str]()
    for key, text in shown.items():
        if often[text] > 1:
            counts[text] += 1
            shown[key] = f"{text} #{counts[text]}"
    return shown


LEAST_SHARE = 0.01
"""Smaller parts of a step are counted together."""
MOST_LISTED = 40
"""Most things of a kind that are compared one by one, the costliest first."""
MOST_APART = 10
"""Most things of a kind that are listed for ranks or groups apart from the others."""
MOST_GROUPS = 3
_PYTHON = "python_function"
_LONGEST_SITE_RANKS = 30
Frames = tuple[pl.DataFrame, pl.DataFrame]
"""A table of A and one of B."""


def with_traced_times(times: TimeComparison | None, a: ComparedRun, b: ComparedRun) -> TimeComparison | None:
    """The times with those of the traces of both runs; as they are if a run has none."""
    traces = TRACE_RESULTS.find(a.analysis), TRACE_RESULTS.find(b.analysis)
    if traces[0] is None or traces[1] is None:
        return times
    found = (times or TimeComparison((), ()))._replace(
        stragglers=tuple(own_stragglers(a, b)), notes=tuple(_notes(a.dataset, b.dataset))
    )
    costs = step_costs(a.dataset, traces[0]), step_costs(b.dataset, traces[1])
    if costs[0] is None or costs[1] is None:
        return found._replace(kernels=tuple(_calls(traces[0], traces[1])))
    # lengths of steps, of each the median over ranks
    length = (pl.col("end_ns") - pl.col("start_ns")).median()
    series = [
        cost.steps.group_by("step").agg(ns=length).sort("step")["ns"].to_numpy() / 1e9 for cost in (costs[0], costs[1])
    ]
    step = time_ratio("profiled step", *series)._replace(apart=stand_apart(*series))
    pair = _Pair((costs[0].turns, costs[1].turns), LEAST_SHARE * min(step.median_a, step.median_b))
    # a turn of the loop that traces show is the same step, less exactly
    known = () if a.dataset.ops.is_empty() and a.series.is_empty() else found.steps
    same_size = a.dataset.world_size == b.dataset.world_size
    return found._replace(
        steps=(*known, step),
        phases=tuple(_phases(pair, costs[0], costs[1], by_rank=same_size)),
        kernels=tuple(_kernels(pair, costs[0], costs[1], by_rank=same_size)),
        collectives=tuple(_collectives(pair, costs[0], costs[1], a, b)) or found.collectives,
    )


def _notes(a: Dataset, b: Dataset) -> Iterator[str]:
    """Words for traces that could not be read whole, and for a profiler that recorded Python functions in one run."""
    for label, dataset in (("A", a), ("B", b)):
        damaged = dataset.files.filter(pl.col("problem").is_not_null()).join(dataset.traces, on="file", how="semi")
        if damaged.height:
            ranks = damaged["rank"].drop_nulls().unique().sort().to_list()
            whose = f" of {ranks_text(ranks, _LONGEST_SITE_RANKS)}" if ranks else ""
            yield f"{label}: traces{whose} are damaged, so times of kernels and phases may be too short there"
    with_stack = [bool(run.spans.select(is_among("category", [_PYTHON]).any()).item()) for run in (a, b)]
    if with_stack[0] != with_stack[1]:
        label = "A" if with_stack[0] else "B"
        yield f"only {label} was profiled with_stack: to record Python functions makes its host slower"


def _ranks_text(ranks: Sequence[int]) -> str:
    return ranks_text(ranks, _LONGEST_SITE_RANKS)


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
        times.moving.with_columns(pl.col("who").replace(dict(enumerate(numbers.tolist()))))
        for times, numbers in ((a, groups.of_a), (b, groups.of_b))
    )
    by_group = pair.of_groups()
    yield from by_group.ratios((moving[0], moving[1]), "collective")
    yield from pair.ratios((a.waiting, b.waiting))
    members = {int(groups.of_a[group.id]): group.ranks for group in run_a.dataset.group_list}
    yield from by_group.apart(
        (moving[0], moving[1]),
        lambda groups_found: "; ".join(_ranks_text(members.get(member, ())) for member in groups_found[:MOST_GROUPS]),
    )


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
        each = [_each(cost, turns) for cost, turns in zip(costs, self.turns, strict=True)]
        both = each[0].join(each[1], on=["name", "who"], suffix="_b").filter(pl.col("who") >= 0)
        change = pl.col("cost_b") - pl.col("cost")
        both = both.with_columns(change=change, far=(change - change.median().over("name")))
        far, spread = pl.col("far").abs(), pl.col("far").abs().median().over("name")
        some = both.filter(
            (pl.len().over("name") >= LEAST_RANKS)
            & (far >= self.least)
            & (far > SPREADS * spread)
            & (pl.col("change").abs() >= self.least)
        )
        changes = some.group_by("name", up=pl.col("change") > 0).agg(
            pl.col("who").sort(), pl.col("cost", "cost_b").median()
        )
        order = [-(pl.col("cost_b") - pl.col("cost")).abs(), pl.col("name")]
        for name, _, who, before, after in changes.sort(order).head(MOST_APART).iter_rows():
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
        # how often it comes: "3 a step", "3 -> 4 a step"
        counts = [digits(count) for count in (row["per_step"], row["per_step_b"]) if count is not None]
        name = f"{name} ({' -> '.join(dict.fromkeys(counts))} a step)"
    if len(a) and len(b):
        return time_ratio(name, a, b)._replace(cost_a=costs[0], cost_b=costs[1])
    who, ranks = (row["who"], traced[0]) if len(a) else (row["who_b"], traced[1])
    if counted and 0 < len(who) < ranks:
        name = f"{name}, on {_ranks_text(who)}"
    return TimeRatio(name, *costs, len(a), len(b), None, None, *costs)


def _calls(a: TraceAnalysis, b: TraceAnalysis) -> Iterator[TimeRatio]:
    """The mean time of a call of the costliest kernels; without steps nothing is known of their number."""
    tables = [
        one.kernels.filter(pl.col("kind") != "communication", pl.col("total_ns") > 0).cast({"name": pl.String})
        for one in (a, b)
    ]
    labels = kernel_labels(*(set(one["name"].unique()) for one in tables))
    pooled = [
        table.group_by(pl.col("name").replace(label), "rank")
        .agg(pl.col("total_ns", "count").sum())
        .group_by("name")
        .agg(pl.col("count", "total_ns").sum(), ns=(pl.col("total_ns") / pl.col("count")).median())
        for table, label in zip(tables, labels, strict=True)
    ]
    both = pooled[0].join(pooled[1], on="name", suffix="_b").sort("total_ns", "name", descending=[True, False])
    for name, count, _, ns, count_b, _, ns_b in both.head(MOST_LISTED).iter_rows():
        yield TimeRatio(f"kernel {name}", ns / 1e9, ns_b / 1e9, count, count_b, None, None)
