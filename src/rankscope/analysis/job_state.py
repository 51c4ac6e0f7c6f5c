"""In which state a job is: one rule for reports, the screen, `rankscope watch` and its toasts.

`state_of` compares facts that others gathered, and looks at no clock and no file: times of files come with the dataset,
and the time of the update from the watcher. docs/verdicts.md has the same table ("In which state the job is").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from rankscope.schema import Dataset
from rankscope.text.wording import duration

JobState = Literal["waiting", "progressing", "still", "frozen", "silent", "idle"]


@dataclass(frozen=True)
class StateEvidence:
    """Known facts about the movement of a job. All times in nanoseconds."""

    pending: bool
    """Whether an operation is not finished."""
    usual_ns: int
    """Longest standstill that says nothing."""
    frozen_ns: int | None
    """Standstill from which the job is frozen; None if this evidence cannot prove one by its length."""
    proof: str = ""
    """A proof that needs no time: a watchdog gave up."""
    ends: frozenset[str] = frozenset()
    """How the processes of all ranks ended, as they noted it; empty unless all have ended."""
    still_ns: int | None = None
    """Time without an event on any rank before the newest dump; None if the files cannot tell it."""
    still_reason: str = ""
    """How `still_ns` is known."""
    pause_ns: int = 0
    """Standstill from which it is said of a job that goes on."""
    idle_ns: int | None = None
    """Standstill between equal dumps of ranks of which none is in a collective."""
    idle_reason: str = ""
    over: tuple[JobState, str] | None = None
    """JobState and reason of a job that writes nothing any more."""
    chatter_ns: int = 0
    """Time by which the last line of the logs is newer than the newest operation, if longer than a pause."""
    moves: bool = False
    """Whether operations were seen to go on."""


def state_of(evidence: StateEvidence) -> tuple[JobState, str]:
    """The state of the job and its reason, by the first rule that holds; the reason is "" where nothing shows one."""
    e = evidence
    if e.ends == {"exit"} and not e.pending:
        return "idle", "every process came to the end of its program"
    if e.proof:
        return "frozen", e.proof
    long, why = (e.still_ns, e.still_reason) if e.pending else (e.idle_ns, e.idle_reason)
    if e.frozen_ns is not None and long is not None and long >= e.frozen_ns:
        return "frozen", why if e.pending else f"{why}, and no rank is in a collective"
    if e.ends:
        return "idle", "every process has ended"
    if e.over is not None:
        return e.over
    if e.chatter_ns:
        return "waiting", f"the newest operation is {duration(e.chatter_ns)} older than the last line of the logs"
    if e.still_ns is not None and e.still_ns > e.usual_ns:
        return "still" if e.pending else "idle", e.still_reason
    if e.moves:
        return "progressing", e.still_reason if (e.still_ns or 0) > e.pause_ns else "operations go on"
    return "waiting", "it is not known yet whether operations go on"


def noted_ends(dataset: Dataset) -> frozenset[str]:
    """How the processes of all ranks ended, by their sidecars; empty if not all are known to have ended."""
    ends = dataset.messages.filter(pl.col("kind") == "process-end")
    if ends.is_empty() or set(ends["rank"]) != set(dataset.every_rank):
        return frozenset()
    return frozenset(ends["values"].str.json_path_match("$.reason").fill_null("").to_list())
