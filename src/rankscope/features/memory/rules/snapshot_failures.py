"""Findings on requests that found no memory, by the histories of memory snapshots: who asked, and who held it then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Evidence, Finding
from rankscope.analysis.places import Places
from rankscope.features.memory.memory_rows import MESSAGE_PATTERNS
from rankscope.features.memory.rules.snapshot_holders import (
    DeviceMemory,
    advice,
    holder_text,
    newest_files,
    snapshot_memory,
    went_on,
)
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, plural

MOST_HOLDERS = 3
"""Most places of the program that are told of a device."""
MOST_FAILURES = 8
"""Most devices with a finding of their own, those that failed first in the order of ranks."""


def failed_in_snapshots(facts: Facts, _: bool) -> list[Finding]:
    """A finding for each device whose history holds a failed request; of several snapshots of a rank for the last."""
    dataset = facts.dataset
    if dataset.snapshots["failures"].sum() == 0:
        return []
    memory = snapshot_memory(dataset)
    newest = newest_files(memory.devices)
    failed = [
        device
        for device in memory.devices
        if device.facts["failures"]
        and (device.facts["rank"] is None or newest[device.facts["rank"]] == device.facts["file"])
    ]
    messages = dataset.messages.filter(pl.col("pattern").is_in(MESSAGE_PATTERNS))
    in_logs = set(messages["rank"].to_list())
    places = Places(dataset)
    return [_finding(device, places, is_in_logs=device.facts["rank"] in in_logs) for device in failed[:MOST_FAILURES]]


def _finding(device: DeviceMemory, places: Places, is_in_logs: bool) -> Finding:
    """The finding on one device; a log that tells of the same failure keeps the verdict."""
    facts = device.facts
    rank = facts["rank"]
    who = f"rank {rank}" if rank is not None else f"a process ({plain(device.path)})"
    on = "the device" if facts["device"] < 0 else f"device {facts['device']}"
    by = f" in {holder_text(device.asked_by)}" if device.asked_by else ""
    goes_on = went_on(facts)
    title = f"{who} ran out of memory on {on}: a request for {byte_count(facts['asked'])}{by} failed"
    reasons = ("the name of its file does not tell its rank",) if rank is None else ()
    is_cause = not goes_on and not is_in_logs
    return Finding(
        kind="memory-request-failed", severity="warning" if goes_on or is_in_logs else "critical",
        title=f"{title}, and the program went on" if goes_on else title,
        explanation=" ".join(_sentences(facts)), root_cause=is_cause,
        culprit_ranks=() if rank is None else (rank,),
        culprits=() if rank is None else (places.culprit(rank),),
        confidence="medium" if rank is None else "high", confidence_reasons=reasons,
        stack=tuple(frame for frame in device.asked_by if frame.file),
        evidence=tuple(_evidence(device)),
        next_steps=(
            *advice(facts),
            f"Run rankscope report --only memory {plain(device.path)}: it lists who held the memory at that moment."
        ),
    )  # fmt: skip


def _sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on bytes that were held, free and lost to holes when the request failed."""
    if facts["failures"] > 1:
        yield f"{plural(facts['failures'], 'request')} failed in the history; this is the last."
    free, held = byte_count(facts["free"]), byte_count(facts["held_then"])
    yield f"At that moment the driver had {free} free, and {held} were in tensors."
    if facts["reserved_then"] is not None:
        unused = facts["gaps_then"] + facts["cached_then"]
        yield (
            f"It had reserved {byte_count(facts['reserved_then'])}; {byte_count(unused)} were unused, in pieces of at "
            f"most {byte_count(facts['largest_then'])}."
        )
        if unused >= facts["asked"]:
            yield "They would have been enough, but lay in pieces: fragmentation."
    if facts["free"] >= facts["asked"]:
        yield "The driver had enough free: the process has a limit of its own, or several threads asked at once."
    if went_on(facts):
        count, size = plural(facts["later"], "allocation"), byte_count(facts["later_bytes"])
        yield f"Behind it the history has {count} of {size}: the program caught the error."


def _evidence(device: DeviceMemory) -> Iterator[Evidence]:
    """The places that held most when the request failed."""
    rank = device.facts["rank"]
    held = sorted((one for one in device.holders if one.at_failure), key=lambda one: -one.at_failure)
    for one in held[:MOST_HOLDERS]:
        held_by = f"{byte_count(one.at_failure)} of {byte_count(device.facts['held_then'])} in tensors"
        yield Evidence(f"{held_by} by {holder_text(one.lines)}", rank=rank)
