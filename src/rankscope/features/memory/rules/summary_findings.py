"""Findings on tables of `torch.cuda.memory_summary()` that count no failed request: what is held, and what is torn."""

from __future__ import annotations

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.memory.memory_rows import SUMMARY, summary_values
from rankscope.features.memory.rules.failed_requests import torn_of
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count, plural

MOST_SUMMARIES = 4
"""Most devices with a finding of their own, those with the most in pieces first."""


def find_summaries(dataset: Dataset, after: int) -> list[Finding]:
    """A finding on the last table of each process and device that counts no failed request; numbered `after` others."""
    rows = dataset.messages.filter(pl.col("kind") == SUMMARY).sort("file", "offset")
    paths = dict(dataset.files.select("file", "path").iter_rows())
    last = {}
    for row in rows.iter_rows(named=True):
        values = summary_values(row["values"])
        if not values.get("ooms") and "allocated" in values:
            last[row["rank"], row["file"], values["device"]] = row, values
    order = sorted(last.values(), key=lambda one: -(torn_of(one[1]) or 0))
    out = []
    for at, (row, values) in enumerate(order[:MOST_SUMMARIES], after):
        rank, torn = row["rank"], torn_of(values)
        who = f"a process on {values['device']}" if rank is None else f"rank {rank}"
        held = byte_count(values["allocated"])
        reserved = f", of {byte_count(values['reserved'])} reserved" if "reserved" in values else ""
        title = f"{who} has {held} in tensors{reserved}, by its memory summary"
        retries = values.get("retries") or 0
        again = f" The allocator gave its cache back and tried again {plural(retries, 'time')}." if retries else ""
        pieces = f"; {byte_count(torn)} lie in pieces that cannot be released" if torn is not None else ""
        out.append(Finding(
            kind="memory-summary", severity="info" if torn is None else "warning", id=f"f{at}", title=title + pieces,
            explanation=f"At most {byte_count(values['peak_allocated'])} were in tensors. It counts no failed request."
            + again,
            about=() if rank is None else (rank,),
            evidence=(Evidence(row["text"], file=paths.get(row["file"]), rank=rank, line=row["line"]),),
            next_steps=()
            if torn is None
            else ("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: segments grow, and gaps become few.",),
        ))  # fmt: skip
    return out


def only_summaries(dataset: Dataset) -> bool:
    """Whether memory summaries are all that the logs hold."""
    return not dataset.messages.is_empty() and bool((dataset.messages["kind"] == SUMMARY).all())
