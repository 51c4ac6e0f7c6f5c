"""The schedule of matched collectives, sends and receives, with the work of each rank between them.

Of each rank only its own clock counts. A transfer takes as long as for the member that waited least in it, its last
one. Where kernels are known, a call waits for those that were launched before it and for the call before it on its
stream, and a kernel waits for a call that ended while the device idled before it. Else a piece of work lasts from the
last event of the rank, a call that it began or one that ended, to its next call.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.features.whatif.step_graph import StepGraph
from rankscope.features.whatif.step_schedule import SCHEDULE, StepSchedule, part_of

CALLS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "meeting": pl.Int64,  # the same on all members of one operation
    "what": pl.String,
    "alike": pl.String,  # transfers of one text should take equally long
    "form": pl.String,  # the same without sizes, which may differ from micro batch to micro batch
    "route": pl.Int64,  # the ranks that take part
    "peer": pl.Int64,  # at the other end of a send or receive that leads from stage to stage; null else
    "sends": pl.Boolean,
    "blocks": pl.Boolean,  # no member can end before the last has come
    "step": pl.Int64,  # null outside of the steps
    "stream": pl.Int64,  # calls of one stream of a rank run one behind the other; null where that is not known
    "begin_ns": pl.Int64,  # of the first step of the rank, on its own clock
    "issued_ns": pl.Int64,
    "arrived_ns": pl.Int64,
    "ended_ns": pl.Int64,
}
"""One row for each member of each operation."""
KERNELS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "step": pl.Int64,
    "issued_ns": pl.Int64,  # null where no launch was recorded
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
"""One row for each kernel that computes or copies."""
FEWEST_CALLS = 4
"""Fewest operations of a job that can be simulated."""
IDLE_NS = 2_000
"""Shortest time between two kernels in which the device waits for something."""
_WORK: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64,
    "behind_call": pl.Int64,  # the last call that was issued before; its number in the table, -1 for none
    "order": pl.Int64,  # of its begin
    "holds": pl.Boolean,  # it is time of the host before a call, else of kernels
    "work_ns": pl.Int64,
    "even_ns": pl.Int64,  # computing in its kernels of even and of odd number
    "odd_ns": pl.Int64,
    "step": pl.Int64,
}


@dataclass
class _Nodes:
    """Pieces of work, and the waits between them (2 * piece) and calls (2 * call + 1)."""

    rows: list[pl.DataFrame] = field(default_factory=list)
    before: list[Ints] = field(default_factory=list)
    after: list[Ints] = field(default_factory=list)
    count: int = 0

    def wait(self, before: Ints, after: Ints) -> None:
        """Adds waits; a negative number is none."""
        known = before >= 0
        self.before.append(before[known])
        self.after.append(after[known])

    def add(self, **columns: npt.ArrayLike) -> Ints:
        """Adds pieces of work; returns their numbers as nodes."""
        table = pl.DataFrame({name: pl.Series(name, np.atleast_1d(np.asarray(columns[name]))) for name in _WORK})
        self.rows.append(table.select(pl.col(name).cast(kind) for name, kind in _WORK.items()))
        first, self.count = self.count, self.count + table.height
        return 2 * np.arange(first, self.count, dtype=np.int64)


def matched_schedule(
    calls: pl.DataFrame, kernels: pl.DataFrame | None = None, *, steps_known: bool
) -> StepSchedule | None:
    """The schedule of CALLS, with KERNELS of all ranks where they are known; None if calls are too few, or of one rank.

    Raises CircleError if ranks did not come to them in one order.
    """
    calls = calls.filter(pl.col("ended_ns") >= pl.col("arrived_ns"))
    if steps_known:
        calls = calls.drop_nulls("step")
    if calls["meeting"].n_unique() < FEWEST_CALLS or calls["rank"].n_unique() < 2:
        return None
    order = ("rank", "arrived_ns", "ended_ns") if kernels is None else ("rank", "issued_ns", "arrived_ns")
    calls = calls.sort(*order).with_row_index("call").with_columns(
        pl.col("call").cast(pl.Int64), pl.col("step").fill_null(0), last_ns=pl.col("arrived_ns").max().over("meeting"),
        lasted_ns=pl.col("ended_ns") - pl.col("arrived_ns"),
    )  # fmt: skip
    # a small message is sent before anybody receives it
    meets = pl.col("blocks") | (pl.col("ended_ns") >= pl.col("last_ns"))
    calls = calls.with_columns(
        meets=meets, moved_ns=pl.when(meets).then(pl.col("lasted_ns").min().over("meeting")).otherwise("lasted_ns")
    )
    calls = _with_slots(_with_micros(_with_stages(calls)))
    nodes = _Nodes()
    sorted_kernels = None if kernels is None else kernels.sort("start_ns", maintain_order=True)
    of_ranks = {} if sorted_kernels is None else sorted_kernels.partition_by("rank", as_dict=True)
    for rank, own in calls.group_by("rank", maintain_order=True):
        if sorted_kernels is None:
            _between(nodes, own)
        else:
            _kernels(nodes, own, of_ranks.get(rank, sorted_kernels[:0]))
    work = pl.concat(nodes.rows)
    before, after = np.concatenate(nodes.before), np.concatenate(nodes.after)
    # all pieces of work come first, then all calls
    before, after = (np.where(n % 2 == 0, n // 2, nodes.count + n // 2) for n in (before, after))
    dense = (calls["meeting"].rank("dense").cast(pl.Int64) - 1).to_numpy()
    met = np.where(calls["meets"].to_numpy(), dense, -1)
    meetings = np.concatenate([np.full(nodes.count, -1, np.int64), met])
    graph = StepGraph.of(before, after, meetings, np.zeros(nodes.count + calls.height, np.int64))
    ranks = calls.group_by("rank").agg(
        pl.col("ended_ns").max() - pl.min_horizontal(pl.col("arrived_ns").min(), pl.col("begin_ns").min())
    )
    measured = np.array([float(ranks["ended_ns"].max())])  # type: ignore[arg-type]
    repeats = calls["step"].n_unique() if steps_known else 1
    ops = _shaped(calls, work, steps_known, kernels is not None)
    if kernels is not None:
        # kernels behind the last call count as well
        measured = np.maximum(measured, graph.step_times(ops["took_ns"].to_numpy()[:, None])[:, 0])
    return StepSchedule(ops, graph, measured, repeats=repeats)


def _with_stages(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `stage` and `replica`: ranks that send to each other are the stages of one replica, by rank."""
    lead = {int(rank): int(rank) for rank in calls["rank"].unique().to_list()}

    def root(rank: int) -> int:
        while lead[rank] != rank:
            lead[rank] = rank = lead[lead[rank]]
        return rank

    pairs = calls.select("rank", "peer").drop_nulls().unique().sort("rank", "peer")
    for one, other in pairs.iter_rows():
        if other in lead:
            first, second = sorted((root(one), root(other)))
            lead[second] = first
    ranks = sorted(lead)
    table = pl.DataFrame({"rank": ranks, "replica": [root(rank) for rank in ranks]}).with_columns(
        stage=pl.int_range(pl.len(), dtype=pl.Int64).over("replica")
    )
    return calls.join(table, on="rank", maintain_order="left")


def _with_micros(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `way` ("f" forward, "b" backward, "fb" both) and `micro` of the work behind each, and `moved_micro`.

    Of stages the sends and receives tell it: what is sent was computed before, and what is received is computed next.
    Both are null where they are not known.
    """
    by = ["rank", "step"]
    upward = pl.col("sends") == (pl.col("peer") > pl.col("rank"))
    way = pl.when(pl.col("peer").is_not_null()).then(pl.when(upward).then(pl.lit("f")).otherwise(pl.lit("b")))
    calls = calls.with_columns(way=way)
    turn = pl.int_range(pl.len(), dtype=pl.Int64).over([*by, "sends", "way"])
    mark = pl.when(pl.col("way").is_not_null()).then(pl.struct("way", "sends", turn.alias("turn")))
    calls = calls.with_columns(last=mark.forward_fill().over(by), next=mark.shift(-1).backward_fill().over(by))
    last, coming = pl.col("last").struct, pl.col("next").struct
    received = (~last.field("sends")).fill_null(False)
    sent = coming.field("sends").fill_null(False)
    same = last.field("turn") == coming.field("turn")
    both = received & sent & (last.field("way") != coming.field("way"))
    ways = pl.when(both).then(pl.lit("fb")).when(sent).then(coming.field("way")).when(received).then(last.field("way"))
    micro = (
        pl.when(sent & (~received | same)).then(coming.field("turn")).when(received & ~sent).then(last.field("turn"))
    )
    return calls.with_columns(
        way=ways, micro=micro, moved_micro=pl.when(pl.col("way").is_not_null()).then(turn).otherwise(micro)
    ).drop("last", "next")


def _with_slots(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `slot` and `work_slot`: the same call, and the work behind it, in each step and on each rank of a
    stage; of stages in each micro batch too. In the order of the step."""
    by = ["rank", "step"]
    turn = pl.int_range(pl.len(), dtype=pl.Int64)
    leads = pl.when(pl.col("peer").is_not_null()).then(pl.col("peer") > pl.col("rank"))
    calls = calls.with_columns(leads=leads, place=turn.over(by))
    staged = pl.col("micro").is_not_null()
    numbered = pl.when(~staged).then(turn.over([*by, "form", "leads"]))
    within = pl.when(staged).then(turn.over([*by, "way", "micro"]))
    calls = calls.with_columns(
        key=pl.struct("form", "leads", turn.over([*by, "form", "leads"]).alias("turn")).rank("dense"),
        work_key=pl.struct("form", "leads", "way", numbered.alias("turn"), within.alias("within")).rank("dense"),
    )
    for name, key, first in (("slot", "key", 1), ("work_slot", "work_key", 1)):
        order = calls.group_by(key).agg(pl.col("place").mean()).sort("place", key).with_row_index(name, first)
        calls = calls.join(order.select(key, pl.col(name).cast(pl.Int64)), on=key, maintain_order="left")
    return calls.drop("key", "work_key", "place", "leads")


def _between(nodes: _Nodes, own: pl.DataFrame) -> None:
    """The work of a rank of which only calls are known: before each call, since the last event."""
    arrived, ended, call = (own[name].to_numpy() for name in ("arrived_ns", "ended_ns", "call"))
    order = np.argsort(ended, kind="stable")
    at = np.searchsorted(ended[order], arrived, side="right") - 1
    last = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    earlier = np.concatenate([[min(int(own["begin_ns"][0] or arrived[0]), int(arrived[0]))], arrived[:-1]])
    # a call without length ends when it begins: it must not wait for itself
    behind = (last >= 0) & (last < np.arange(len(call))) & (ended[last] >= earlier)
    work = arrived - np.where(behind, ended[last], earlier)
    step = own["step"].to_numpy()
    previous = np.concatenate([[-1], call[:-1]])
    none = np.full(len(call), -1)
    node = nodes.add(
        rank=own["rank"].to_numpy(), behind_call=previous, order=arrived, holds=np.zeros(len(call), np.bool_),
        work_ns=work, even_ns=none, odd_ns=none, step=step,
    )  # fmt: skip
    nodes.wait(node, 2 * call + 1)
    nodes.wait(np.where(behind, 2 * call[last] + 1, np.concatenate([[-1], node[:-1]])), node)


def _kernels(nodes: _Nodes, own: pl.DataFrame, kernels: pl.DataFrame) -> None:
    """The work of a rank whose kernels are known: cut where a call was issued, and where the device waited for one."""
    call, issued, arrived, ended, stream = (
        own[name].to_numpy() for name in ("call", "issued_ns", "arrived_ns", "ended_ns", "stream")
    )
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    launched = kernels["issued_ns"].to_numpy() if not kernels["issued_ns"].has_nulls() else None
    begin = int(own["begin_ns"][0]) if own["begin_ns"][0] is not None else int(arrived[0])
    begin = min([begin, *arrived[:1].tolist(), *start[:1].tolist()])
    reach = np.maximum.accumulate(end) if len(end) else end
    # kernels that were launched before each call: what was launched first starts first
    until = (
        np.searchsorted(np.maximum.accumulate(launched), issued)
        if launched is not None
        else np.searchsorted(start, arrived)
    )
    previous = np.concatenate([[begin], reach[:-1]]) if len(reach) else reach
    by_end = np.argsort(ended, kind="stable")
    sorted_ends = ended[by_end]

    def waited(times: Ints, since: Ints, issues: Ints) -> Ints:
        """The last call that ended between `since` and each time, and was issued before; -1 for none."""
        at = np.searchsorted(sorted_ends, times + IDLE_NS, side="right") - 1
        which = by_end[np.maximum(at, 0)]
        return np.where((at >= 0) & (ended[which] > since) & (issued[which] < issues), which, -1)

    idle = start - previous > IDLE_NS if len(start) else np.zeros(0, np.bool_)
    on = waited(start, previous, start if launched is None else launched) if len(start) else np.zeros(0, np.int64)
    on = np.where(idle, on, -1)
    cuts = np.unique(np.concatenate([[0], until, np.flatnonzero(on >= 0)])).astype(np.int64)
    cuts = cuts[cuts < len(start)]
    bounds = np.append(cuts, len(start))
    piece = np.full(len(call), -1, np.int64)
    piece_end = np.full(len(call), begin, np.int64)
    if len(cuts):
        since = np.where(
            on[cuts] >= 0, np.clip(ended[np.maximum(on[cuts], 0)], previous[cuts], start[cuts]), previous[cuts]
        )
        length = end - start
        # counted anew in each step, so that the same kernels are odd in all of them
        step, number = kernels["step"].fill_null(-1).to_numpy(), np.arange(len(start))
        odd = (number - np.maximum.accumulate(np.where(np.diff(step, prepend=step[0]) != 0, number, 0))) % 2 == 1
        sums = [np.add.reduceat(np.where(odd == side, length, 0), cuts) for side in (False, True)]
        behind = np.searchsorted(until, cuts, side="right") - 1
        node = nodes.add(
            rank=np.full(len(cuts), own["rank"][0]), behind_call=np.where(behind >= 0, call[np.maximum(behind, 0)], -1),
            order=start[cuts], holds=np.zeros(len(cuts), np.bool_),
            work_ns=np.maximum(reach[bounds[1:] - 1] - since, 0),
            even_ns=sums[0], odd_ns=sums[1], step=kernels["step"].to_numpy()[cuts],
        )  # fmt: skip
        nodes.wait(np.concatenate([[-1], node[:-1]]), node)
        nodes.wait(np.where(on[cuts] >= 0, 2 * call[np.maximum(on[cuts], 0)] + 1, -1), node)
        at = np.searchsorted(bounds, until) - 1
        piece = np.where(at >= 0, node[np.maximum(at, 0)], -1)
        piece_end = np.where(at >= 0, reach[np.maximum(until - 1, 0)], begin)
    lane = np.full(len(call), -1, np.int64)
    latest: dict[int, int] = {}
    for place, number in enumerate(stream.tolist()):
        lane[place] = latest.get(number, -1)
        latest[number] = place
    free = np.maximum(piece_end, np.where(lane >= 0, ended[np.maximum(lane, 0)], begin))
    host = waited(arrived, free, issued)
    ready = np.where(host >= 0, np.clip(ended[np.maximum(host, 0)], free, np.maximum(free, arrived)), free)
    none = np.full(len(call), -1)
    hold = nodes.add(
        rank=own["rank"].to_numpy(), behind_call=call, order=arrived, holds=np.ones(len(call), np.bool_),
        work_ns=np.maximum(arrived - ready, 0), even_ns=none, odd_ns=none, step=own["step"].to_numpy(),
    )  # fmt: skip
    nodes.wait(piece, hold)
    for other in (lane, host):
        nodes.wait(np.where(other >= 0, 2 * call[np.maximum(other, 0)] + 1, -1), hold)
    nodes.wait(hold, 2 * call + 1)


def _shaped(calls: pl.DataFrame, work: pl.DataFrame, steps_known: bool, timed: bool) -> pl.DataFrame:
    """SCHEDULE: the pieces of work, then the transfers of the calls."""
    null = pl.lit(None, pl.Int64)
    places = calls.select("rank", "stage", "replica").unique("rank")
    labels = calls.select(behind_call="call", held="slot", slot="work_slot", way="way", micro="micro")
    slots = 2 + calls.select(pl.max_horizontal(pl.col("slot").max(), pl.col("work_slot").max())).item()
    table = work.join(places, on="rank", maintain_order="left").join(
        labels, on="behind_call", how="left", maintain_order="left"
    )
    slot = pl.when("holds").then(pl.col("held") + slots).otherwise(pl.col("slot").fill_null(0))
    staged = calls["peer"].is_not_null().any()
    micro = pl.col("micro") if staged else pl.lit(0, pl.Int64) if steps_known else null
    table = table.with_columns(slot=slot, micro=pl.when(~pl.col("holds")).then(micro))
    if timed:
        first, second = pl.col("even_ns"), pl.col("odd_ns")
    else:
        late = pl.col("slot") > (pl.col("slot").min() + pl.col("slot").max()).over("rank") / 2
        if staged:
            late = pl.col("way") == "b"
        first, second = pl.when(~late).then("work_ns").otherwise(0), pl.when(late).then("work_ns").otherwise(0)
    pieces = table.select(
        "step", "rank", "stage", "replica", "slot", "micro", what=pl.lit("work"), transfer=pl.lit(False),
        took_ns="work_ns", route=null, typical_ns=null, first_ns=pl.when(~pl.col("holds")).then(first),
        second_ns=pl.when(~pl.col("holds")).then(second),
    )  # fmt: skip
    # messages whose sizes differ from micro batch to micro batch go by its length
    differs = pl.col("alike").n_unique().over("stage", "slot") > 1
    moved = calls.select(
        "step", "rank", "stage", "replica", "slot", "what", "route", micro=pl.when(differs).then("moved_micro"),
        transfer=pl.lit(True), took_ns="moved_ns", typical_ns=pl.col("moved_ns").median().over("alike"),
        first_ns=null, second_ns=null,
    )  # fmt: skip
    both = pl.concat([t.select(pl.col(n).cast(k) for n, k in SCHEDULE.items()) for t in (pieces, moved)])
    # pieces of one slot may be cut differently: all of them together are compared
    whole = ["rank", "step", "slot", "micro", "transfer"]
    usual = (
        both.filter(~pl.col("transfer")).group_by(*whole, "stage").agg(total=pl.col("took_ns").sum())
        .with_columns(typical=pl.col("total").median().over("stage", "slot"))
    )  # fmt: skip
    joined = both.join(usual.drop("stage"), on=whole, how="left", nulls_equal=True, maintain_order="left")
    typical = pl.when(~pl.col("transfer")).then(part_of("total") * pl.col("typical")).otherwise("typical_ns")
    return joined.with_columns(typical_ns=typical).select(list(SCHEDULE))
