"""The operations that a schedule is made of: those of dumps, else those of logs, else those of matched traces.

Only dumps, and some lines of logs, tell what has not ended. Of other operations in logs those count as pending that a
member has not issued, or has issued differently. A trace is a window in the middle of a run: nothing in it is pending.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from rankscope.analysis.traces.matching import COALESCED_OP
from rankscope.kinds.event_kinds import LEFT_OUT
from rankscope.schema import OPS, Dataset
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
        told = f"the {source.noun} tell the operations of {known} of {plural(whole, 'rank')}"
        raise ValueError(f"{told}: a replay would mislead")
    remarks = [f"members are those that have operations, in group {', '.join(guessed)}"] if guessed else []
    return replace(source, remarks=(*source.remarks, *remarks))


def _of_logs(dataset: Dataset, ops: pl.DataFrame) -> ReplaySource:
    """Operations of logs, without ranks that have one that cannot be placed among those of their peers."""
    alone = ~pl.col("is_p2p")
    lost = ops.filter(alone & (pl.col("seq").is_null() | pl.col("group").is_null()))["rank"].drop_nulls().unique()
    ops = ops.filter(~pl.col("rank").is_in(lost.implode()))
    told = frozenset((*ops["rank"].drop_nulls(), *dataset.frontiers["rank"].drop_nulls())) - frozenset(lost)
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
    return ReplaySource(replace(dataset, ops=ops), "logs", told, tuple(remarks))


def _of_traces(dataset: Dataset) -> ReplaySource:
    """Operations that all members have in the last window of the profilers, with numbers."""
    # most jobs have no traces
    from rankscope.analysis.traces.trace_story import TraceStory

    story = TraceStory(dataset)
    matching = story.matching
    rows = matching.rows.filter(pl.col("op").cast(pl.String) != COALESCED_OP)
    told = dataset.files.join(dataset.traces.select("file"), on="file", how="semi")["rank"].drop_nulls()
    due = {group.id: len(set(told) & set(group.ranks)) for group in dataset.group_list}
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
    return ReplaySource(replace(dataset, ops=ops.select(list(OPS))), "traces", frozenset(told), tuple(remarks))
