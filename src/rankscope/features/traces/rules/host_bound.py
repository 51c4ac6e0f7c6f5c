"""Jobs whose devices wait for their hosts: they idle most of each step, or the allocator gives memory back in each.

A device is idle while nothing runs on it, not even a collective that waits for another rank. Only steps that the
program marked are judged: a window without them holds start-up as well. What the hosts do meanwhile says what to do
about it: an activity that names of spans tell (data loading, checkpointing), the launch of many kernels, or something
else.

The caching allocator of torch calls `cudaFree` for its cached blocks when a request cannot be served, and then
`cudaMalloc` anew; both wait until the device is done. After the first steps a job needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.model import Evidence, Finding
from rankscope.features.traces.rules.device_spans import (
    LAUNCH_CATEGORIES,
    BusyIntervals,
    SpanIndex,
    is_among,
)
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.host_time import ACTIVITIES, DATA_LOADING, HostTime
from rankscope.features.traces.rules.trace_tables import device_windows
from rankscope.text.wording import duration, plural, ranks_text

FEWEST_STEPS = 2
IDLE_SHARE = 0.5
"""Smallest share of a step for which the devices of a job that waits for its host idle."""
ACTIVITY_SHARE = 0.5
"""Smallest share of that time that an activity explains."""
FEWEST_LAUNCHES = 50
"""Fewest kernels of a step whose launches take its time."""
FLUSH_SHARE = 0.05
"""Smallest share of a step that calls of the allocator cost."""
HEADLINE_SHARE = 0.1
"""Share from which that is the verdict of the traces."""
LAUNCHES, UNKNOWN = "launches", ""
_ALLOCATION = re.compile(r"^(?:cuda|hip)Malloc(?:Managed)?$|^(?:cu|hip)Mem(?:Create|Map|SetAccess|Alloc(?:_v2)?)$")
_RELEASE = re.compile(r"^(?:cuda|hip)Free$|^(?:cu|hip)Mem(?:Unmap|Release|Free(?:_v2)?)$")
_ADVICE = {
    DATA_LOADING: "Give the data loader more workers (num_workers, prefetch_factor, pin_memory), or cheaper work.",
    LAUNCHES: "Launch fewer kernels: torch.compile(mode='reduce-overhead') or CUDA graphs, fused optimizers "
    "(fused=True), larger batches.",
    UNKNOWN: "Record with_stack=True to see what the hosts do meanwhile.",
}
_ALLOCATOR_ADVICE = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and leave more memory free: a smaller batch, or padding to "
    "few lengths.",
    "Look for calls of torch.cuda.empty_cache() within steps.",
)


@dataclass(frozen=True)
class HostShare:
    """The median step of one rank, in nanoseconds."""

    rank: int
    step_ns: int
    idle_ns: int
    meanwhile: str
    """What the host does for most of the idle time: an activity, LAUNCHES, or UNKNOWN."""
    meanwhile_ns: int
    launches: int
    kernel_ns: int
    """The median kernel."""
    allocator_ns: int
    """In calls of the allocator, 0 unless it releases and takes memory in most steps."""
    releases: int
    """Calls that release memory in all steps."""


def host_shares(spans: SpanIndex, steps: pl.DataFrame) -> list[HostShare]:
    """The shares of all files with a device and marked steps that were read completely, by rank."""
    if spans.on_host:
        return []
    ranks = dict(spans.dataset.traces.select("file", "rank").iter_rows())
    parts = {int(file): part for (file,), part in steps.partition_by("file", as_dict=True).items()}
    cut = device_windows(spans, steps)
    made = (_of_file(spans, file, ranks[file], parts[file], cut[file]) for file in sorted(spans.whole & parts.keys()))
    return sorted((share for share in made if share is not None), key=lambda share: share.rank)


def _of_file(spans: SpanIndex, file: int, rank: int, marks: pl.DataFrame, steps: pl.DataFrame) -> HostShare | None:
    """The share of a file, whose steps the host goes through as `marks` and the device as `steps`."""
    ran, host = spans.device(file), spans.host(file)
    if ran is None or host is None or steps.height < FEWEST_STEPS:
        return None
    marked = marks["begin_ns"].to_numpy(), marks["end_ns"].to_numpy()
    since, until = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    start, end = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy()
    device = BusyIntervals.of(start, end)
    busy = device.within(since, until)

    def while_idle(intervals: BusyIntervals) -> int:
        return int(np.median(device.joined(intervals).within(since, until) - busy))

    main = HostTime.of(host).spans
    names = list(main["name"].unique().cast(pl.String).drop_nulls())
    times = {
        activity: while_idle(_intervals(main, [name for name in names if pattern.search(name)]))
        for pattern, activity in ACTIVITIES
        if any(map(pattern.search, names))
    }
    idle = int(np.median(until - since - busy))
    launches = int(np.median(np.searchsorted(start, until) - np.searchsorted(start, since)))
    if launches >= FEWEST_LAUNCHES:
        times.setdefault(LAUNCHES, while_idle(host_pieces(spans, file).work))
    # work of the host holds that of an activity
    meanwhile = next((what for what, ns in times.items() if ns >= max(1, ACTIVITY_SHARE * idle)), UNKNOWN)
    allocator, releases = _allocator(main, *marked)
    return HostShare(
        rank, int(np.median(until - since)), idle, meanwhile, times.get(meanwhile, 0), launches,
        int(np.median(end - start)), allocator, releases,
    )  # fmt: skip


def _intervals(host: pl.DataFrame, names: Sequence[str]) -> BusyIntervals:
    rows = host.filter(is_among("name", names))
    return BusyIntervals.of(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def _allocator(host: pl.DataFrame, since: Ints, until: Ints) -> tuple[int, int]:
    """The time of a median step in calls of the allocator, and how often it releases memory in all steps; 0 and 0
    unless it does both in most steps, and in several."""
    calls = host.filter(is_among("category", LAUNCH_CATEGORIES))
    names = calls["name"].unique().cast(pl.String).drop_nulls()
    of = {kind: [name for name in names if kind.search(name)] for kind in (_ALLOCATION, _RELEASE)}
    if not all(of.values()):
        return 0, 0
    both = np.ones(len(since), np.bool_)
    for kind in of.values():
        begins = np.sort(calls.filter(is_among("name", kind))["start_ns"].to_numpy())
        counts = np.searchsorted(begins, until) - np.searchsorted(begins, since)
        both &= counts > 0
    if both.sum() < max(FEWEST_STEPS, len(since) / 2):
        return 0, 0
    time = _intervals(calls, [name for kind in of.values() for name in kind]).within(since, until)
    return int(np.median(time)), int(counts.sum())


def host_findings(shares: Sequence[HostShare], *, nameless: bool = False) -> list[Finding]:
    """At most one finding for each of both kinds; a `nameless` process has no rank."""
    flushing = [s for s in shares if s.allocator_ns >= FLUSH_SHARE * s.step_ns and s.releases]
    idle = [s for s in shares if s.idle_ns >= IDLE_SHARE * s.step_ns]
    found = [_flush(flushing, _who(flushing, shares, nameless))] if flushing else []
    # devices of a few ranks may idle by design, as of stages of a pipeline
    if 2 * len(idle) > len(shares):
        found.append(_host_bound(idle, _who(idle, shares, nameless)))
    return found


def is_headline(shares: Sequence[HostShare]) -> bool:
    """Whether what is found costs so much that the job is slow."""
    costly = [s for s in shares if s.releases and s.allocator_ns >= HEADLINE_SHARE * s.step_ns]
    idle = [s for s in shares if s.idle_ns >= IDLE_SHARE * s.step_ns]
    return bool(shares) and 2 * max(len(costly), len(idle)) > len(shares)


def _who(these: Sequence[HostShare], shares: Sequence[HostShare], nameless: bool) -> str:
    if nameless:
        return "the process"
    ranks = {share.rank for share in these}
    every = {share.rank for share in shares}
    return f"all {len(every):,} traced ranks" if ranks == every and len(every) > 1 else ranks_text(ranks)


def _middle(values: Sequence[int]) -> int:
    return int(np.median(values))


def _host_bound(idle: Sequence[HostShare], who: str) -> Finding:
    step, lost = _middle([s.step_ns for s in idle]), _middle([s.idle_ns for s in idle])
    causes = [s.meanwhile for s in idle]
    cause = max(dict.fromkeys(causes), key=causes.count)
    same = [s for s in idle if s.meanwhile == cause]
    time, kernels = duration(_middle([s.meanwhile_ns for s in same])), _middle([s.launches for s in same])
    length = duration(_middle([s.kernel_ns for s in same]))
    if cause == LAUNCHES:
        why = f"their hosts launch {plural(kernels, 'kernel')} a step one by one, of {length} (median)"
    elif cause == UNKNOWN:
        why = "their hosts hand over no work, and the traces do not show why"
    else:
        why = f"their hosts spend {time} of it in {cause}"
    next_step = _ADVICE.get(cause, f"Do {cause} less often, or beside the training (another thread or process).")
    return Finding(
        kind="host-bound",
        severity="warning",
        title=f"devices of {who} idle for {duration(lost)} of each step of {duration(step)} "
        f"({100 * lost / max(step, 1):.0f} %): {why}",
        explanation="Nothing runs on these devices for most of each step, not even a collective that waits for another "
        "rank: the host sets the pace. The profiler slows hosts, too, most of all with stacks and shapes.",
        confidence="medium",
        confidence_reasons=("a profiler slows the host",),
        evidence=tuple(
            Evidence(
                f"idle {duration(s.idle_ns)} of {duration(s.step_ns)} a step, {plural(s.launches, 'kernel')} a step",
                rank=s.rank,
            )
            for s in sorted(idle, key=lambda s: -s.idle_ns)[:_MOST_QUOTED]
        ),
        next_steps=(next_step,),
    )


_MOST_QUOTED = 4


def _flush(flushing: Sequence[HostShare], who: str) -> Finding:
    step, lost = _middle([s.step_ns for s in flushing]), _middle([s.allocator_ns for s in flushing])
    return Finding(
        kind="allocator-flush",
        severity="warning",
        title=f"the allocator of {who} gives memory back and takes it again within steps: {duration(lost)} of each "
        f"step of {duration(step)} ({100 * lost / max(step, 1):.0f} %)",
        explanation="The cached memory did not serve a request, so that the allocator frees its cache and asks the "
        "driver again. Both wait until the device is done.",
        confidence="high",
        confidence_reasons=("the calls are in the traces",),
        evidence=tuple(
            Evidence(f"{duration(s.allocator_ns)} a step; {plural(s.releases, 'call')} release memory", rank=s.rank)
            for s in sorted(flushing, key=lambda s: -s.allocator_ns)[:_MOST_QUOTED]
        ),
        next_steps=_ALLOCATOR_ADVICE,
    )
