"""Operations that a schedule is made of (of dumps, logs or matched traces), its pairs of transfers, and its part.

Only dumps, and some lines of logs, tell what has not ended. Of other operations in logs those count as pending that a
member has not issued, or has issued differently. A trace is a window in the middle of a run: nothing in it is pending.

A recorder may not tell the end of a send, and a receive from any source does not tell the sender. Both are worked out
from what the ranks issued: a transfer of unknown end that both sides have issued has ended, unless one of them issued
it behind something that has not.

Whatever the part, what is pending belongs to it, and with it what its members have not all completed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.analysis.logical_time import p2p_pairs, whole_ranks
from rankscope.analysis.signatures import element_count
from rankscope.assemble.op_names import COALESCED_OP
from rankscope.kinds.event_kinds import LEFT_OUT
from rankscope.schema import Dataset
from rankscope.schema.tables import OPS
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text

LOGS = ("nccl-log", "c10d-log")
_DERIVED = "logs tell no end: what a member did not issue, or issued differently, counts as pending"
_NUMBERED = "traces hold no numbers: they are counted from the first operation in them, as in the report"
_MOST_REASONS = 3
"""Most traces and lines whose loss is told with the reason."""


@dataclass(frozen=True)
class ReplaySource:
    """The operations of a job as one kind of input has them."""

    dataset: Dataset
    """The job, with these operations alone in `ops`."""
    noun: str
    """`dumps`, `logs` or `traces`."""
    told: frozenset[int]
    """Ranks whose operations are known."""
    remarks: tuple[str, ...] = ()
    """Sentences on what is guessed, or left out."""

    @property
    def is_window(self) -> bool:
        """Whether the operations are of the middle of a run, so that none is pending and none is missing."""
        return self.noun == "traces"


def replay_source(dataset: Dataset) -> ReplaySource:
    """The best source of operations; ValueError if none has any, or if it knows too few ranks."""
    of = dataset.ops["source"].cast(pl.String)
    if (of == "flight-recorder").any():
        kept = replace(dataset, ops=dataset.ops.filter(of == "flight-recorder"))
        return ReplaySource(kept, "dumps", frozenset(dataset.seen_ranks))
    if of.is_in(LOGS).any():
        return _checked(_of_logs(dataset, dataset.ops.filter(of.is_in(LOGS))))
    if not dataset.traced.is_empty():
        return _checked(_of_traces(dataset))
    raise ValueError("no dump, log or trace holds an operation of a known group: there is nothing to replay")


def _checked(source: ReplaySource) -> ReplaySource:
    """The source; ValueError if it knows one rank, or fewer than half of the members of its groups."""
    used = set(source.dataset.ops["group"].drop_nulls().to_list())
    groups = [group for group in source.dataset.group_list if group.id in used]
    members = {rank for group in groups for rank in group.ranks}
    guessed = [plain(g.description or g.name or f"g{g.id}", 40) for g in groups if g.membership == "inferred"]
    known = len(members & source.told)
    # members of a guessed group are those that tell of it
    whole = max(len(members), source.dataset.world_size) if guessed else len(members)
    if known < 2 or 2 * known < whole:
        problem = f"the {source.noun} tell the operations of {known} of {plural(whole, 'rank')}"
        raise ValueError(f"{problem}: a replay would mislead")
    remarks = [f"members are those that have operations, in group {', '.join(guessed)}"] if guessed else []
    return replace(source, remarks=(*source.remarks, *remarks))


def _of_logs(dataset: Dataset, ops: pl.DataFrame) -> ReplaySource:
    """Operations of logs, without ranks that have one that cannot be placed among those of their peers."""
    alone = ~pl.col("is_p2p")
    lost = ops.filter(alone & (pl.col("seq").is_null() | pl.col("group").is_null()))["rank"].drop_nulls().unique()
    ops = ops.filter(~pl.col("rank").is_in(lost.implode()))
    ranks = frozenset((*ops["rank"].drop_nulls(), *dataset.frontiers["rank"].drop_nulls())) - frozenset(lost)
    remarks = [_DERIVED] if (ops["state"] == "unknown").any() else []
    if len(lost):
        remarks.append(f"left out: {ranks_text(sorted(lost))}, with collectives that the logs give no number")
    begins = ops.filter(alone).group_by("rank", "group").agg(pl.col("seq").min()).filter(pl.col("seq") > 1)["rank"]
    if len(begins):
        remarks.append(f"the first collectives of a group are not in the logs of {ranks_text(sorted(set(begins)))}")
    if ops["is_p2p"].any():
        remarks.append("sends and receives are paired in the order of the logs")
    lines = dataset.messages.filter(pl.col("kind").is_in(LEFT_OUT))["text"]
    remarks += [f"not known: {plain(text, 90)}" for text in lines.unique(maintain_order=True)[:_MOST_REASONS]]
    return ReplaySource(replace(dataset, ops=ops), "logs", ranks, tuple(remarks))


def _of_traces(dataset: Dataset) -> ReplaySource:
    """Operations that all members have in the last window of the profilers, with numbers."""
    # most jobs have no traces
    from rankscope.features.traces.rules.trace_story import TraceStory

    story = TraceStory(dataset)
    matching = story.matching
    rows = matching.rows.filter(pl.col("op").cast(pl.String) != COALESCED_OP)
    ranks = dataset.files.join(dataset.traces.select("file"), on="file", how="semi")["rank"].drop_nulls()
    due = {group.id: len(set(ranks) & set(group.ranks)) for group in dataset.group_list}
    members = pl.col("rank").n_unique().over("group", "channel", "window", "place")
    wanted = pl.when("is_p2p").then(2).otherwise(pl.col("group").replace_strict(due, default=0, return_dtype=pl.Int64))
    rows = rows.filter(members == wanted)
    windows = rows["window"].n_unique()
    rows = rows.filter(pl.col("window") == pl.col("window").max())
    counted = pl.col("place") - pl.min_horizontal(pl.col("place").min().over("channel"), 0)
    numbered = rows.select(
        "row", number=pl.when(pl.col("seq").is_null().any().over("group")).then(counted).otherwise("seq")
    )
    ops = dataset.traced.with_row_index("row").join(numbered, on="row", how="inner", maintain_order="left")
    remarks = [_NUMBERED] if ops.filter(~pl.col("is_p2p"))["seq"].is_null().any() else []
    remarks += [f"of {plural(windows, 'window')} of the profilers the last is taken"] if windows > 1 else []
    refused = [f"{plain(story.paths.get(file, ''), 60)}: {reason}" for _, file, reason in matching.refused]
    remarks += [f"not matched: {text}" for text in refused[:_MOST_REASONS]]
    ops = ops.with_columns(seq=pl.when(~pl.col("is_p2p")).then("number")).sort("rank", "created_ns", "row")
    return ReplaySource(replace(dataset, ops=ops.select(list(OPS))), "traces", frozenset(ranks), tuple(remarks))


_NEVER = 2**62
_TRANSFER = ("group", "low", "high", "k")
MOST_ROUNDS = 1_000
"""Rounds in which ends that are not told are worked out; each passes on what holds up one rank to those after it."""


def paired_transfers(source: ReplaySource, rows: pl.DataFrame) -> pl.DataFrame:
    """Sends and receives with the k-th of their pair, without those that one side alone has completed.

    `rows` are those of ops, in program order. The state stays unknown where both sides have issued it and none tells
    the end. Those of a window are kept: they are matched.
    """
    rows = _with_senders(rows)
    keyed = rows.lazy().select("rank", "group", "seq", "is_p2p", "op", "peer", "coalesced", "state")
    keys = p2p_pairs(keyed.with_row_index("at"), whole_ranks(source.dataset)).select("at", "low", "high", "k").collect()
    took = pl.col("completed_ns") - pl.col("created_ns")
    aborted = (took >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
    done = (pl.col("state") == "completed") & ~aborted
    batch = pl.when(pl.col("coalesced") == "inner").then(pl.col("op_id")).otherwise(-1).fill_null(-1)
    named = rows.select(
        "row",
        "rank",
        "group",
        "state",
        pl.lit(None, pl.Int64).alias("seq"),
        pl.col("op").cast(pl.String),
        _carried("sizes").map_elements(element_count, pl.Int64).alias("elements"),
        _carried("dtypes").alias("dtype"),
        done.alias("done"),
        batch.alias("batch"),
    ).with_row_index("at")
    known = named.join(keys, on="at", how="inner", maintain_order="left")
    if source.is_window:
        return known.with_columns(k=pl.col("k") - pl.col("k").min().over(_TRANSFER[:3]))
    over = known.group_by(_TRANSFER).agg(
        ended=pl.col("done").any(), open=(pl.col("state") == "unknown").any(), both=pl.col("rank").n_unique() > 1
    )
    left = known.join(over, on=_TRANSFER, how="left", maintain_order="left").filter(~pl.col("ended") | pl.col("both"))
    untold = pl.when(pl.col("open") & pl.col("both")).then(pl.lit("unknown")).otherwise(pl.lit("scheduled"))
    state = pl.when("ended").then(pl.lit("completed")).otherwise(untold)
    return left.with_columns(state=state.cast(source.dataset.ops.schema["state"]))


def _carried(what: str) -> pl.Expr:
    """Sizes or types of the tensor of a send or receive: the hook notes that of a receive as its output alone."""
    mine, other = (pl.col(f"{side}_{what}").cast(pl.String) for side in ("in", "out"))
    text = pl.when(mine.is_in(["", "[]"]) | mine.is_null()).then(other).otherwise(mine)
    return pl.when(text != "[]").then(text)


# Ends that are not told.


def with_held_transfers(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a schedule, where transfers of unknown end are pending if something before them is.

    Not if one of their ranks has completed anything behind them. `rows` are sorted by rank and row.
    """
    untold = rows.filter(pl.col("low").is_not_null() & (pl.col("state") == "unknown") & ~pl.col("pending"))
    if untold.is_empty() or not rows["pending"].any():
        return rows
    last = rows.filter(~pl.col("pending") & (pl.col("state") == "completed")).group_by("rank").agg(pl.col("row").max())
    open_ = (
        untold.join(last, on="rank", how="left", suffix="_last")
        .with_columns(passed=(pl.col("row") < pl.col("row_last")).fill_null(False).any().over(_TRANSFER))
        .filter(~pl.col("passed"))
    )
    first = np.full(int(rows["rank"].max() or 0) + 1, _NEVER, np.int64)  # type: ignore[arg-type]
    pending = rows.filter("pending")
    np.minimum.at(first, pending["rank"].to_numpy(), pending["row"].to_numpy())
    number = open_.select(pl.struct(_TRANSFER).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    rank, row = open_["rank"].to_numpy(), open_["row"].to_numpy()
    is_held = np.zeros(int(number.max(initial=0)) + 1, np.bool_)
    for _ in range(MOST_ROUNDS):
        behind = row > first[rank]
        if is_held[number[behind]].all():
            break
        is_held[number[behind]] = True
        np.minimum.at(first, rank[is_held[number]], row[is_held[number]])
    held_rows = open_.select("row").filter(pl.Series(is_held[number]))["row"]
    return rows.with_columns(pending=pl.col("pending") | pl.col("row").is_in(held_rows.implode()))


# Receives from any source.


def _with_senders(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows in which receives from any source name a sender, as far as the counts of sends tell one."""
    is_open = (pl.col("op") == "recv") & pl.col("peer").is_null() & pl.col("group").is_not_null()
    anyone = rows.filter(is_open)
    if anyone.is_empty():
        return rows
    receivers = anyone.select("group", "rank").unique()
    sends = rows.filter((pl.col("op") == "send") & pl.col("peer").is_not_null())
    sends = sends.join(receivers, left_on=["group", "peer"], right_on=["group", "rank"], how="semi")
    sent: defaultdict[tuple[int, int], dict[int, Counter[int]]] = defaultdict(dict)
    for group, receiver, sender, seq in sends.select("group", "peer", "rank", "seq").iter_rows():
        sent[group, receiver].setdefault(sender, Counter())[seq] += 1
    named: dict[int, int] = {}
    grouped = anyone.group_by("group", "rank", "seq", maintain_order=True).agg("row")
    for group, receiver, seq, places in grouped.iter_rows():
        counts = {sender: of[seq] for sender, of in sorted(sent[group, receiver].items())}
        named.update(zip(places, senders_by_turns(counts, len(places)), strict=False))
    sender = pl.col("row").replace_strict(named, default=None, return_dtype=pl.Int32)
    return rows.with_columns(peer=pl.when(is_open).then(sender).otherwise("peer"))


def senders_by_turns(counts: dict[int, int], receives: int) -> Iterator[int]:
    """Senders of the receives of a rank between two collectives: those that sent, by turns, then those that did not.

    These are told only if each of them lacks as many sends as make it equal to the others. `counts` are sends.
    """
    most = max(counts.values(), default=0)
    yield from (sender for turn in range(most) for sender, count in counts.items() if count > turn)
    lack = {sender: most - count for sender, count in counts.items()}
    if sum(lack.values()) == receives - sum(counts.values()):
        yield from (sender for sender, count in lack.items() for _ in range(count))


TAIL = 2
"""Completed collectives of each group that are kept before the first pending one: who is past them shows who is not."""
LAST = 8
"""Collectives of each group that are kept of a job that moves, and transfers of each pair."""

_COLLECTIVE = pl.col("seq").is_not_null()
_NUMBER = pl.coalesce("seq", "k")
_LINE = ("group", "low", "high")


@dataclass(frozen=True)
class SchedulePart:
    """The operations that a schedule takes; without any field, those around the failure."""

    last: int = 0
    """So many of the last collectives of each group that all members agree on."""
    begin: tuple[int, int] | None = None
    """The first operation: (group, seq). What follows it on any rank is taken."""
    context: int = 0
    """Logical columns of completed operations that are kept before what is pending."""
    around: tuple[int, ...] = ()
    """A collective, as (group, seq), that is kept with all after it in its group."""

    def rows(self, rows: pl.DataFrame, source: ReplaySource, *, stuck: bool) -> pl.DataFrame:
        """The rows of the part, of `schedule.ReplayOperations`; if not `stuck`, none of them is pending.

        ValueError if a member does not hold the first operation.
        """
        asked = self.last or self.begin
        if stuck and not asked and self.around and not rows["pending"].any():
            group, seq = self.around
            at = pl.col("col").filter((pl.col("group") == group) & (pl.col("seq") == seq))
            return rows.filter(pl.col("col").is_between(at.min() - TAIL - self.context, at.max() + TAIL))
        stuck = stuck and bool(rows["pending"].any())
        if not stuck:
            shared = pl.col("agreed") | (~_COLLECTIVE if source.is_window else False)
            rows = rows.filter(shared).with_columns(pending=pl.lit(value=False))
        rows = _with_order(rows)
        if self.begin is not None:
            kept = pl.col("early") & self._from(rows, source)
        elif asked or not stuck:
            kept = _last(self.last or LAST, pairs=source.is_window)
        else:
            kept = self._around()
        return rows.filter(pl.col("unended") | kept).drop("unended", "early")

    def _around(self) -> pl.Expr:
        """Whether a row is among the few before the first pending one of its group, or in the columns before any."""
        first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
        kept = (pl.col("seq") >= first - TAIL).fill_null(False)
        if self.around:
            group, seq = self.around
            kept |= ((pl.col("group") == group) & (pl.col("seq") >= seq - TAIL)).fill_null(False)
        if not self.context:
            return kept
        return kept | (pl.col("early") & (pl.col("col") >= pl.col("col").filter("pending").min() - self.context))

    def _from(self, rows: pl.DataFrame, source: ReplaySource) -> pl.Expr:
        """Whether a row is not before the first operation; ValueError if a member does not hold that."""
        assert self.begin is not None
        group_id, seq = self.begin
        group = source.dataset.group_list[group_id]
        issued = rows.filter((pl.col("group") == group_id) & _COLLECTIVE)
        there = issued.filter(pl.col("seq") == seq)
        lacking = sorted(set(group.ranks) & source.told - set(there["rank"].to_list()))
        if lacking or there.is_empty():
            lacking = lacking or sorted(group.ranks)
            every = issued["rank"].n_unique()
            shared = issued.group_by("seq").agg(pl.len()).filter(pl.col("len") == every)["seq"].sort().to_list()
            span = f"all hold #{shared[0]} to #{shared[-1]}" if shared else "have none in common"
            noun = source.noun if len(lacking) > 1 else source.noun[:-1]
            name = plain(group.description or group.name, 40)
            members = plural(len(group.ranks), "member")
            raise ValueError(f"#{seq} of {name} is not in the {noun} of {ranks_text(lacking)}; its {members} {span}")
        # in a circle of waits members of one operation have several columns
        column = pl.when(_COLLECTIVE).then(pl.col("col").max().over("group", "seq")).otherwise("col")
        return column >= there["col"].max()


def _with_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `unended`: pending, or not before the first pending one of the group; and with `early`.

    `early`: all its ranks issued it before they came to something that is pending.
    """
    first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
    unended = pl.col("pending") | (pl.col("seq") >= first).fill_null(False)
    first_pending = pl.col("row").filter("pending").min().over("rank").fill_null(_NEVER)
    # not in one expression: polars would look for the first pending one within each operation
    rows = rows.with_columns(unended=unended, early=pl.col("row") < first_pending)
    key = ["group", "seq", "low", "high", "k"]
    late = rows.filter(~pl.col("early")).select(key).unique().with_columns(late=True)
    marked = rows.join(late, on=key, how="left", nulls_equal=True, maintain_order="left")
    return marked.with_columns(early=pl.col("late").is_null()).drop("late")


def _last(count: int, *, pairs: bool) -> pl.Expr:
    """Whether a row is among the last of its group that all members have issued, or with `pairs` of its pair."""
    usual = pl.col("early") & ~pl.col("unended") & (pl.col("agreed") | (~_COLLECTIVE if pairs else False))
    last = _NUMBER.filter(usual).max().over(_LINE)
    return (usual & (last - count < _NUMBER)).fill_null(False)
