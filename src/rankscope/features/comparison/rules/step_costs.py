"""Costs of each marked step in traces, by kernel, phase and collective, and the ranks that are slow in one run only.

A step is what `torch.profiler.profile.step` marks. Work belongs to the step and to the phase in which the host launched
it: a device runs behind its host. Without a device the operators of the host are the work.

A rank is late by itself by the test of one run (`late_ranks`), and in the other run much less. Of ranks that do not
communicate, and so wait for nobody, it is the one whose steps became longer while those of the others did not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.places import Places
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.time_comparison import APART, LEAST_APART, OwnStraggler, group_labels
from rankscope.features.traces.rules.device_spans import BusyIntervals, SpanIndex, is_among
from rankscope.features.traces.rules.lateness import step_spans, with_steps
from rankscope.features.traces.rules.model import STEPS, TRACE_RESULTS, Columns, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.schema.tables import empty
from rankscope.text.tensors import tensors
from rankscope.text.wording import duration, ranks_text

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
        found = [one for one in self.run.analysis.findings if one.kind == "straggler"]
        return {rank: one.title for one in found for rank in one.culprit_ranks}

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
    """The stragglers of B that are none in A, then those of A that are none in B; only of runs of equal size."""
    if a.dataset.world_size != b.dataset.world_size:
        return
    one, other = (
        _Side(label, run, TRACE_RESULTS.of(run.analysis).steps if TRACE_RESULTS.find(run.analysis) else empty(STEPS))
        for label, run in (("A", a), ("B", b))
    )
    for here, there in ((other, one), (one, other)):
        found = {**_slow_steps(here, there), **_late(here, there)}
        yield from _by_host(found, here, there)


def _late(here: _Side, there: _Side) -> dict[int, _SlowRank]:
    """The ranks that are late by themselves here only."""
    parts, other, innocent = here.late, there.late, there.accused
    return {
        rank: _SlowRank(parts[rank], other[rank], title=title)
        for rank, title in here.accused.items()
        if rank not in innocent and rank in parts and rank in other and parts[rank] > LEAST_RATIO * other[rank]
    }


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
    steps = side.steps.drop_nulls("rank").group_by("rank").agg(
        ns=ns.median(), least=ns.min(), most=ns.max(), count=pl.len(), alone=pl.col("communication_ns").max() == 0
    )  # fmt: skip
    enough = steps.filter("alone", pl.col("count") >= LEAST_APART, pl.col("ns") > 0).sort("rank")
    return enough.select("rank", "ns", "least", "most", reach=(pl.col("most") - pl.col("least")) / pl.col("ns"))


# Words.


def _by_host(found: dict[int, _SlowRank], here: _Side, there: _Side) -> Iterator[OwnStraggler]:
    """One straggler for each host of which all traced ranks are slow, and for each other rank."""
    hosts, before = Places(here.run.dataset).hosts, Places(there.run.dataset).hosts
    traced = defaultdict[str, list[int]](list)
    for rank in here.steps["rank"].drop_nulls().unique().sort():
        traced[hosts.get(rank, "")].append(rank)
    for host, ranks in traced.items():
        slow = [rank for rank in ranks if rank in found]
        if host and len(slow) == len(ranks) > 1 and len(traced) > 1:
            yield _straggler(f"host {host} ({ranks_text(ranks, _LONGEST_RANKS)})", slow, found, here, there)
            continue
        for rank in slow:
            moved = f" ({before[rank]} in {there.label})" if before.get(rank, host) != host else ""
            place = f"rank {rank}{f' on {host}' if host else ''}{moved}"
            yield _straggler(place, [rank], found, here, there)


def _straggler(
    place: str, ranks: Sequence[int], found: dict[int, _SlowRank], here: _Side, there: _Side
) -> OwnStraggler:
    slow = [found[rank] for rank in ranks]
    after, before = (float(np.median([getattr(one, side) for one in slow])) for side in ("here", "there"))
    if (others := slow[0].others) is not None:
        told = [duration(round(ns)) for ns in (after, before, *others)]
        how = f"its steps take {told[0]}, in {there.label} {told[1]}; those of the other ranks {told[2]} and {told[3]}"
    else:
        how = f"late by itself for {after:.1%} of the time, in {there.label} for {before:.1%}"
    title = f"{place} is a straggler of {here.label} only: {how}".replace("%", " %")
    return OwnStraggler(here.label, tuple(ranks), title, tuple(one.title for one in slow if one.title))


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
    "compute_ns": "computing", "exposed_ns": "communication exposed", "overlap_ns": "communication behind computing",
    "memory_ns": "copies", "idle_ns": "idle",
}  # fmt: skip
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
    found = [_of_file(spans, file, own) for (file,), own in marks.partition_by("file", as_dict=True).items()]
    ranks = dataset.traces.select("file", who=pl.col("rank").fill_null(-1).cast(pl.Int64))
    kernels, phases = (pl.concat([pair[at] for pair in found]).join(ranks, on="file") for at in (0, 1))
    moving, waiting = _collectives(dataset, traces, marks)
    noun = "operator" if spans.on_host else "kernel"
    return StepCosts(steps, _parts(steps), _summed(phases), _summed(kernels), moving, waiting, noun)


def _summed(rows: pl.DataFrame) -> pl.DataFrame:
    """COSTS of rows with name, who, step and ns."""
    name = pl.col("name").cast(pl.String)
    table = rows.group_by(name, "who", "step").agg(pl.col("ns").sum(), count=pl.len())
    return table.select([pl.col(name).cast(kind) for name, kind in COSTS.items()])


def _parts(steps: pl.DataFrame) -> pl.DataFrame:
    """COSTS of the parts of steps that are known."""
    who = pl.col("rank").fill_null(-1)
    table = steps.select("step", *(pl.col(column).alias(name) for column, name in _PARTS.items()), who=who)
    return _summed(table.unpivot(index=["who", "step"], variable_name="name", value_name="ns").drop_nulls("ns"))


# Kernels and phases of one file.

_Rows = pl.DataFrame
"""file, name, step, ns."""


def _of_file(spans: SpanIndex, file: int, marks: pl.DataFrame) -> tuple[_Rows, _Rows]:
    """Rows of kernels and of phases."""
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
    timed = _phases_on_host(phases, marks)
    if spans.on_host:
        return work.select(none.columns), timed.with_columns(name=pl.col("name") + ", on the host")
    loading = timed.filter(pl.col("name") == _PHASES[0][0]).with_columns(name=pl.col("name") + ", on the host")
    launched = work.with_columns(name=_phase_names(work, phases) + ", on the device").select(none.columns)
    return work.select(none.columns), pl.concat([loading, launched])


def _marked_phases(host: pl.DataFrame) -> dict[str, BusyIntervals]:
    """The stretches of each phase that the host marks, by its clock; each without those of earlier phases counts."""
    marked = host.filter(is_among("category", ["user_annotation", "cpu_op"]))
    annotated = marked["category"].cast(pl.String) == "user_annotation"
    names = marked.filter(annotated | marked["name"].cast(pl.String).str.starts_with(_OPERATOR_MARK))
    told = names["name"].unique().cast(pl.String).drop_nulls().to_list()
    found = {}
    for phase, pattern in _PHASES:
        own = names.filter(is_among("name", [name for name in told if pattern.search(name)]))
        if own.height:
            found[phase] = BusyIntervals.of(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
    return found


def _phases_on_host(phases: dict[str, BusyIntervals], marks: pl.DataFrame) -> _Rows:
    """The time of the host in each phase, and in none."""
    begin, end = marks["begin_ns"].to_numpy(), marks["end_ns"].to_numpy()
    reached = [one.within(begin, end) for one in accumulate(phases.values(), BusyIntervals.joined)] + [end - begin]
    own = [after - before for before, after in zip([0 * begin, *reached], reached, strict=False)]
    return pl.concat([
        marks.select("file", name=pl.lit(name), step="step", ns=pl.Series(ns, dtype=pl.Int64))
        for name, ns in zip([*phases, REST], own, strict=True)
    ])  # fmt: skip


def _phase_names(work: pl.DataFrame, phases: dict[str, BusyIntervals]) -> pl.Expr:
    """The phase in which the host launched each."""
    at = work["created_ns"].to_numpy()
    name = pl.lit(REST)
    for phase, one in reversed(phases.items()):
        inside = pl.lit(pl.Series(one.within(at, at + 1) > 0))
        name = pl.when(inside).then(pl.lit(phase)).otherwise(name)
    return name


# Collectives.

_SITE = ["group", "op", "is_p2p", "in_sizes", "in_dtypes"]


def _collectives(dataset: Dataset, traces: TraceAnalysis, marks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """COSTS of moving, by group, and of waiting, by rank."""
    own = dataset.traced.with_row_index("row").select(
        "row", "file", "rank", *_SITE, "created_ns", "started_ns", "completed_ns", offset_ns=pl.lit(0)
    )
    named = with_steps(own, marks).drop_nulls("step").join(_sites(own, dataset), on=_SITE, nulls_equal=True)
    if traces.matched.is_empty():
        ns = pl.col("completed_ns") - pl.coalesce("started_ns", "created_ns")
        whole = named.select(pl.col("name") + ", with the wait", "step", who=pl.col("rank").fill_null(-1), ns=ns)
        return empty(COSTS), _summed(whole.drop_nulls())
    times = traces.matched.select("match", "row", "arrived_ns", "ended_ns", "blocking")
    rows = named.select("row", "name", "step", "rank", "group").join(times, on="row").sort("match", "name")
    last = pl.col("arrived_ns").max()
    moved = rows.group_by("match").agg(
        pl.col("name").last(), pl.col("step").min(), who=pl.col("group").first(), ns=pl.col("ended_ns").min() - last
    )
    waits = rows.filter("blocking").with_columns(ns=last.over("match") - pl.col("arrived_ns"), who="rank")
    return _summed(moved.filter(pl.col("ns") > 0)), _summed(waits.with_columns(pl.col("name") + ", waiting"))


def _sites(rows: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    """_SITE, name: "all_reduce [64] f32 in dp" for each operation, group and size."""
    distinct = rows.select(_SITE).unique().join(group_labels(dataset), on="group", how="left")
    names = []
    for _, op, p2p, sizes, dtypes, label in distinct.iter_rows():
        call = f"{'send, recv' if p2p else op or '?'} {tensors(sizes, dtypes)}".rstrip()
        names.append(f"{call} in {label or 'an unnamed group'}")
    return distinct.select(*_SITE, name=pl.Series(names, dtype=pl.String))
