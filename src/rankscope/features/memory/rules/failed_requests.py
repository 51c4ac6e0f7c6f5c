"""Explanation of failed requests for memory: what the rank held, what its peers held, and what was lost to gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.memory.rules.memory_peers import kind_of
from rankscope.features.memory.rules.model import MemoryGrowth
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.schema.tables import HOST
from rankscope.text.wording import byte_count, plural, ranks_text

ON_HOST = ("host-out-of-memory", "host-allocation")
"""Known errors of the memory of the host."""
FULLER = 1.15
"""A rank is fuller than its peers if it holds so many times their median, and more than each."""
EDGE = 0.9
"""Share of a device above which it is nearly full."""
OTHERS_BYTES, OTHERS_SHARE = 1 << 30, 0.02
"""Least memory of other processes that is told."""
NO_SAMPLES = "Run with rankscope.capture in the job: it samples the memory of all ranks."


def explained_failures(
    dataset: Dataset, findings: tuple[Finding, ...], held: pl.DataFrame, growths: Mapping[int, MemoryGrowth]
) -> tuple[Finding, ...]:
    """The findings; those of ranks that ran out of memory say why."""
    return tuple(
        _explained(dataset, finding, held, growths)
        if FINDINGS[finding.kind].ended and finding.culprit_ranks
        else finding
        for finding in findings
    )


def _explained(dataset: Dataset, finding: Finding, held: pl.DataFrame, growths: Mapping[int, MemoryGrowth]) -> Finding:
    rank = finding.culprit_ranks[0]
    request = failed_request(dataset, rank)
    patterns = dataset.messages.filter(pl.col("rank") == rank)["pattern"]
    if request is None and not patterns.is_in(ON_HOST).any():
        return finding
    device = HOST if request is None else request["device"]
    told = [*_of_request(request), *_of_peers(rank, device, request, held)]
    steps = [f"Set {request['setting']}=expandable_segments:True."] if request and gap_of(request) else []
    growth = growths.get(rank)
    if growth is not None and kind_of(growth.device) == kind_of(device):
        told.append(f"Its memory had grown by {rate_text(growth)}.")
    others = held.filter((pl.col("rank") != rank) & pl.col("device").str.starts_with(kind_of(device)))
    if others.is_empty():
        steps.append(NO_SAMPLES)
    return replace(
        finding, explanation=" ".join([finding.explanation, *told]).strip(),
        evidence=(*finding.evidence, *_samples(rank, device, held)), next_steps=(*steps, *finding.next_steps),
    )  # fmt: skip


def failed_request(dataset: Dataset, rank: int) -> dict[str, Any] | None:
    """The last failed request of a rank: its row of `memory`, with `setting` of the allocator; None without one."""
    rows = dataset.memory.filter((pl.col("source") == "log") & (pl.col("rank") == rank))
    if rows.is_empty():
        return None
    row = rows.row(-1, named=True)
    kind = kind_of(row["device"])
    return {**row, "setting": "PYTORCH_NPU_ALLOC_CONF" if kind == "npu" else "PYTORCH_CUDA_ALLOC_CONF"}


def gap_of(request: Mapping[str, Any]) -> int | None:
    """The reserved and unused bytes, if they would be enough for the request; else None."""
    if request["reserved"] is None or request["allocated"] is None or kind_of(request["device"]) == "xpu":
        return None
    unused: int = request["reserved"] - request["allocated"]
    return unused if unused >= request["asked"] else None


def rate_text(growth: MemoryGrowth) -> str:
    """The slope in words: "4 MiB a step (3.9 to 4.1 MiB)"."""
    low, high = byte_count(round(growth.low)), byte_count(round(growth.high))
    between = f"{low} to {high}" if low != high else low
    return f"{byte_count(round(growth.slope))} a {growth.unit} (95 %: {between})"


def _of_request(request: Mapping[str, Any] | None) -> Iterator[str]:
    """Sentences on the sizes in the message."""
    if request is None or request["device"] == HOST:
        asked = f"It asked for {byte_count(request['asked'])}. " if request is not None else ""
        yield f"{asked}The memory of the host ran out, not that of a device."
        return
    whole, free, used = request["capacity"], request["free"], request["used"]
    parts = [f"{byte_count(free)} free"] if free is not None else []
    if request["allocated"] is not None:
        parts.append(f"{byte_count(request['allocated'])} in tensors")
    if request["allocated"] is not None and request["reserved"] is not None:
        parts.append(f"{byte_count(request['reserved'] - request['allocated'])} reserved by torch and unused")
    of = f"Its {byte_count(whole)}" if whole is not None else "Its memory"
    yield f"It asked {request['device']} for {byte_count(request['asked'])}. {of}: {', '.join(parts)}."
    if None not in (whole, free, used) and (others := whole - free - used) > max(OTHERS_BYTES, OTHERS_SHARE * whole):
        yield f"Other processes hold {byte_count(others)} of this device."
    gap = gap_of(request)
    if gap is not None:
        yield f"The {byte_count(gap)} that torch has reserved would be enough, but they lie in pieces: fragmentation."


def _of_peers(
    rank: int, device: str, request: Mapping[str, Any] | None, held: pl.DataFrame
) -> Iterator[str]:  # fmt: skip
    """A sentence on what the other ranks held."""
    alike = held.filter(pl.col("device").str.starts_with(kind_of(device)))
    peers = alike.filter(pl.col("rank") != rank)["peak"]
    own = [value for value in alike.filter(pl.col("rank") == rank)["peak"] if value is not None]
    own += [request["allocated"]] if request is not None and request["allocated"] is not None else []
    if peers.is_empty() or not own:
        return
    mine, low, most = max(own), int(peers.min()), int(peers.max())  # type: ignore[arg-type]
    median = float(peers.median())  # type: ignore[arg-type]
    span = byte_count(low) if byte_count(low) == byte_count(most) else f"{byte_count(low)} to {byte_count(most)}"
    noun = f"{plural(peers.len(), 'other rank')} held {span} at the most"
    whole = alike["capacity"].max()
    if mine > FULLER * median and mine > most:
        yield f"The {noun}, this rank {byte_count(mine)}: it is fuller than its peers."
    elif isinstance(whole, int) and median > EDGE * whole:
        yield f"The {noun}, this rank {byte_count(mine)}: all are at the edge, and any may fail first."
    else:
        yield f"The {noun}, this rank {byte_count(mine)}: it does not stand out."


def _samples(rank: int, device: str, held: pl.DataFrame) -> Iterator[Evidence]:
    """The fullest others and the rank itself, by samples."""
    alike = held.filter(pl.col("device").str.starts_with(kind_of(device)))
    own, others = (alike.filter((pl.col("rank") == rank) == is_own) for is_own in (True, False))
    for row in pl.concat([own, others.sort("peak", descending=True).head(2)]).iter_rows(named=True):
        text = f"{row['device']}: at the most {byte_count(row['peak'])}, last {byte_count(row['last'])}"
        yield Evidence(f"{text}, in {plural(row['samples'], 'sample')}", rank=row["rank"], time_ns=row["last_ns"])


def fragmented(dataset: Dataset, after: int, cause: Mapping[int, str]) -> list[Finding]:
    """A finding on ranks whose failed request would have fitted into what was reserved; numbered `after` others."""
    ranks = sorted(set(dataset.memory.filter(pl.col("source") == "log")["rank"].drop_nulls()))
    requests = {rank: request for rank in ranks if (request := failed_request(dataset, rank)) and gap_of(request)}
    if not requests:
        return []
    first = min(requests)
    gaps = [gap for request in requests.values() if (gap := gap_of(request)) is not None]
    setting, asked = requests[first]["setting"], byte_count(requests[first]["asked"])
    return [Finding(
        kind="memory-fragmented", severity="warning", id=f"f{after}",
        title=f"memory of {ranks_text(tuple(requests))} is fragmented: {byte_count(max(gaps))} reserved and unused, "
        f"and {asked} could not be had",
        explanation="The allocator keeps freed memory in segments of the sizes that it once took. A request that fits "
        f"into none of them fails, though their sum is larger. {setting}=expandable_segments:True lets segments grow.",
        culprit_ranks=tuple(requests), caused_by=cause.get(first),
        next_steps=(f"Set {setting}=expandable_segments:True, or keep the sizes of batches the same.",),
    )]  # fmt: skip
