"""Explanation of failed requests for memory: what the rank held, what its peers held, and what was lost to gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.memory.memory_messages import HostKill, OutOfMemory, read_host_kill, read_out_of_memory
from rankscope.features.memory.memory_rows import SUMMARY, summary_values
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
TORN_SHARE = 0.2
"""Share of the reserved memory in pieces that cannot be released, above which a summary shows fragmentation."""
OWN_BYTES = 4 << 30
"""Most bytes that a process holds on a device beside what torch reserves: context, NCCL, libraries."""
FREE_FACTOR = 2
"""Times the request that the device has free, from which on holes in what torch reserved do not explain its failure."""
BEHIND_LINES = 2_000
"""Most lines between the head of a failure and the message of its allocator, where no line tells the rank."""
NO_SAMPLES = "Run with rankscope.capture in the job: it samples the memory of all ranks."


class MemoryAccount(NamedTuple):
    """Facts on the memory of one failure, by logs; None for those that they do not tell."""

    request: OutOfMemory | None
    """The message of its allocator."""
    summary: Mapping[str, Any] | None
    """The values of its last `torch.cuda.memory_summary()`."""
    kill: HostKill | None
    """The line of the kernel that killed it."""
    on_host: bool
    """Its memory of the host ran out."""

    @property
    def device(self) -> str:
        """The device whose memory ran out, "cuda:3", or `HOST`."""
        if self.request is not None:
            return self.request.device
        return HOST if self.summary is None or self.on_host else str(self.summary.get("device") or "cuda")


def explained_failures(
    dataset: Dataset, findings: tuple[Finding, ...], held: pl.DataFrame, growths: Mapping[int, MemoryGrowth]
) -> tuple[Finding, ...]:
    """The findings; those of processes that ran out of memory say why."""
    return tuple(
        _explained(dataset, finding, held, growths) if FINDINGS[finding.kind].ended else finding for finding in findings
    )


def _explained(dataset: Dataset, finding: Finding, held: pl.DataFrame, growths: Mapping[int, MemoryGrowth]) -> Finding:
    account = memory_account(dataset, finding)
    if account is None:
        return finding
    rank, device = next(iter(finding.culprit_ranks), None), account.device
    told = [*_of_request(account), *_of_summary(account), *_of_kill(account)]
    steps = [*_settings(dataset, account), *_other_processes(account)]
    if rank is not None:
        told += _of_peers(rank, device, account.request, held)
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


def memory_account(dataset: Dataset, finding: Finding) -> MemoryAccount | None:
    """The facts that logs tell of the memory of a failed process; None where they tell nothing.

    Of a rank the last request counts; where no line tells the rank, the first one behind the lines of the finding.
    """
    rank = next(iter(finding.culprit_ranks), None)
    lines = _of_process(dataset, finding)
    if lines.is_empty():
        return None
    requests = [read_out_of_memory(text) for text in lines["text"]]
    found = [request for request in requests if request is not None]
    request = None if not found else found[-1] if rank is not None else found[0]
    values = [summary_values(text) for text in lines.filter(pl.col("kind") == SUMMARY)["values"]]
    summaries = [one for one in values if request is None or one.get("device") == request.device]
    kills = [kill for text in lines["text"] if (kill := read_host_kill(text)) is not None]
    kill = max(kills, key=lambda one: (one.anonymous or 0, one.of_cgroup), default=None)
    if kill is not None and any(one.of_cgroup for one in kills):
        name = next((one.cgroup for one in kills if one.cgroup), "")
        kill = kill._replace(of_cgroup=True, cgroup=name)
    on_host = bool(lines["pattern"].is_in(ON_HOST).any()) and request is None
    if request is None and not summaries and not on_host:
        return None
    return MemoryAccount(request, summaries[-1] if summaries else None, kill, on_host)


def _of_process(dataset: Dataset, finding: Finding) -> pl.DataFrame:
    """The messages of the process of a finding: of its rank, else those without a rank at and behind its lines."""
    messages = dataset.messages
    if finding.culprit_ranks:
        return messages.filter(pl.col("rank") == finding.culprit_ranks[0])
    place = next(((one.file, one.line) for one in finding.evidence if one.file and one.line), None)
    if place is None:
        return messages.clear()
    files = dataset.files.filter(pl.col("path") == place[0])["file"].to_list()
    near = pl.col("line").is_between(place[1], place[1] + BEHIND_LINES)
    return messages.filter(pl.col("rank").is_null() & pl.col("file").is_in(files) & near).sort("file", "offset")


def gap_of(request: OutOfMemory) -> int | None:
    """The reserved and unused bytes, if they would be enough for the request; else None."""
    if request.reserved is None or request.allocated is None or kind_of(request.device) == "xpu":
        return None
    unused = request.reserved - request.allocated
    # where the driver had enough, or refuses more, the pieces are not the reason
    had_enough = request.free is not None and request.free >= FREE_FACTOR * request.asked
    return unused if unused >= request.asked and not (had_enough and request.limit is None) else None


def torn_of(summary: Mapping[str, Any] | None) -> int | None:
    """The bytes of a summary that lie in pieces which cannot be released, if they are much of what is reserved."""
    if summary is None or "torn" not in summary or "reserved" not in summary:
        return None
    torn = int(summary["torn"])
    return torn if torn >= max(1, TORN_SHARE * summary["reserved"]) else None


def rate_text(growth: MemoryGrowth) -> str:
    """The slope in words: "4 MiB a step (3.9 to 4.1 MiB)"."""
    low, high = byte_count(round(growth.low)), byte_count(round(growth.high))
    between = f"{low} to {high}" if low != high else low
    return f"{byte_count(round(growth.slope))} a {growth.unit} (95 %: {between})"


def _of_request(account: MemoryAccount) -> Iterator[str]:
    """Sentences on the sizes in the message."""
    request = account.request
    if account.on_host or (request is not None and request.device == HOST):
        asked = f"It asked for {byte_count(request.asked)}. " if request is not None else ""
        yield f"{asked}It is memory of the host that ran out, not that of a device."
        return
    if request is None:
        return
    whole, free, used = request.capacity, request.free, request.used
    parts = [f"{byte_count(free)} free"] if free is not None and request.limit is None else []
    if request.allocated is not None:
        parts.append(f"{byte_count(request.allocated)} in tensors")
    if request.allocated is not None and request.reserved is not None:
        parts.append(f"{byte_count(request.reserved - request.allocated)} reserved by torch and unused")
    limit = "limit of " if request.limit is not None else ""
    of = f"Its {limit}{byte_count(whole)}" if whole is not None else "Its memory"
    sizes = f" {of}: {', '.join(parts)}." if parts else ""
    yield f"It asked {request.device} for {byte_count(request.asked)}.{sizes}"
    others = _others_of(request)
    if others:
        listed = ", ".join(f"process {pid} {byte_count(size)}" for pid, size in others)
        own = "" if used is not None else "; in a container one of them may be this process"
        yield f"Other processes hold memory of this device: {listed}{own}."
    elif (rest := _rest_of(request)) and used is not None:
        yield f"Other processes hold {byte_count(rest)} of this device."
    elif rest:
        yield f"{byte_count(rest)} are held outside of torch: by other processes, or by other libraries of this one."
    if request.limit is not None:
        yield "torch.cuda.set_per_process_memory_fraction limits this process."
    elif whole is not None and request.asked > whole:
        yield "It asked for more than the whole device has: look for a shape that is wrong."
    elif free is not None and free >= FREE_FACTOR * request.asked:
        yield "More was free than it asked for: by the driver's limits, or because another process freed it since."
    gap = gap_of(request)
    if gap is not None:
        yield f"The {byte_count(gap)} that torch has reserved would be enough, but they lie in pieces: fragmentation."


def _rest_of(request: OutOfMemory) -> int:
    """The bytes of the device that are neither free nor this process's, by sizes alone; 0 where they are few.

    Where the message does not tell all that this process holds, libraries beside torch are left out.
    """
    whole, free, used = request.capacity, request.free, request.used
    own = used if used is not None else request.reserved
    if whole is None or free is None or own is None or request.limit is not None:
        return 0
    least = max(OTHERS_BYTES, OTHERS_SHARE * whole, 0 if used is not None else OWN_BYTES)
    rest = whole - free - own
    return rest if rest > least else 0


def _others_of(request: OutOfMemory) -> list[tuple[int, int]]:
    """The other processes on the device that hold much; where the message does not tell which is its own, without the
    one that holds what torch reserves.
    """
    others = list(request.others)
    if request.used is None and request.reserved is not None:
        own = [one for one in others if 0 <= one[1] - request.reserved <= OWN_BYTES]
        if own:
            others.remove(min(own, key=lambda one: one[1]))
    least = max(OTHERS_BYTES, OTHERS_SHARE * (request.capacity or 0))
    return [one for one in others if one[1] >= least]


def _of_summary(account: MemoryAccount) -> Iterator[str]:
    """Sentences on the summary of the device."""
    summary = account.summary
    if summary is None or "allocated" not in summary or "reserved" not in summary:
        return
    held, most = byte_count(summary["allocated"]), byte_count(summary["peak_allocated"])
    yield f"By its memory summary {held} of {byte_count(summary['reserved'])} reserved are in tensors, at most {most}."
    if (torn := torn_of(summary)) is not None:
        yield f"{byte_count(torn)} lie in pieces that cannot be released: fragmentation."
    if summary.get("retries"):
        yield f"The allocator gave its cache back and tried again {plural(summary['retries'], 'time')}."


def _of_kill(account: MemoryAccount) -> Iterator[str]:
    """Sentences on what the kernel says of the killed process."""
    kill = account.kill
    if kill is None:
        return
    if kill.anonymous is not None:
        shared = f", and {byte_count(kill.shared)} shared" if kill.shared else ""
        yield f"It held {byte_count(kill.anonymous)} of its own{shared}."
    if kill.of_cgroup:
        name = f" {kill.cgroup}" if kill.cgroup else ""
        yield f"It reached the limit of its control group{name}, of its container or job; the host may have more."


def _settings(dataset: Dataset, account: MemoryAccount) -> Iterator[str]:
    """The setting of the allocator that helps against fragmentation, for the torch that printed the message."""
    request = account.request
    torn = gap_of(request) if request is not None else torn_of(account.summary)
    if torn is None:
        return
    setting = request.setting if request is not None else "PYTORCH_CUDA_ALLOC_CONF"
    told = dataset.settings.filter(pl.col("name").str.ends_with("ALLOC_CONF"))["value"]
    if told.str.contains("expandable_segments:True", literal=True).any():
        yield "expandable_segments is set already: keep the sizes of batches the same, so that freed blocks fit again."
    elif request is not None and request.is_old:
        yield (
            f"Set {setting}=max_split_size_mb:128: larger blocks are not split. From torch 2.1 on "
            f"{setting}=expandable_segments:True does more."
        )
    else:
        yield f"Set {setting}=expandable_segments:True."


def _other_processes(account: MemoryAccount) -> Iterator[str]:
    """The command that shows whose the other processes on the device are."""
    others = _others_of(account.request) if account.request is not None else []
    if not others and account.request is not None and _rest_of(account.request):
        yield "See whose they are, on its host: nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv"
    elif others:
        pids = ",".join(str(pid) for pid, _ in others)
        yield f"See whose process they are, on its host: ps -o pid,user,lstart,cmd -p {pids}"


def _of_peers(
    rank: int, device: str, request: OutOfMemory | None, held: pl.DataFrame
) -> Iterator[str]:  # fmt: skip
    """A sentence on what the other ranks held."""
    alike = held.filter(pl.col("device").str.starts_with(kind_of(device)))
    peers = alike.filter(pl.col("rank") != rank)["peak"]
    own = [value for value in alike.filter(pl.col("rank") == rank)["peak"] if value is not None]
    own += [request.allocated] if request is not None and request.allocated is not None else []
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


def _samples(rank: int | None, device: str, held: pl.DataFrame) -> Iterator[Evidence]:
    """The fullest others and the rank itself, by samples; none of an unknown rank."""
    if rank is None:
        return
    alike = held.filter(pl.col("device").str.starts_with(kind_of(device)))
    own, others = (alike.filter((pl.col("rank") == rank) == is_own) for is_own in (True, False))
    for row in pl.concat([own, others.sort("peak", descending=True).head(2)]).iter_rows(named=True):
        text = f"{row['device']}: at the most {byte_count(row['peak'])}, last {byte_count(row['last'])}"
        yield Evidence(f"{text}, in {plural(row['samples'], 'sample')}", rank=row["rank"], time_ns=row["last_ns"])


def fragmented(dataset: Dataset, findings: Sequence[Finding], after: int) -> list[Finding]:
    """A finding on failures whose request would have fitted into what was reserved; numbered `after` others."""
    torn = [
        (finding, account, gap)
        for finding in findings
        if FINDINGS[finding.kind].ended
        and (account := memory_account(dataset, finding)) is not None
        and account.request is not None
        and (gap := gap_of(account.request)) is not None
    ]
    if not torn:
        return []
    ranks = tuple(dict.fromkeys(rank for finding, _, _ in torn for rank in finding.culprit_ranks))
    first, account, _ = torn[0]
    assert account.request is not None
    whose = ranks_text(ranks) if ranks else f"a process on {account.device}"
    most, asked = byte_count(max(gap for _, _, gap in torn)), byte_count(account.request.asked)
    return [Finding(
        kind="memory-fragmented", severity="warning", id=f"f{after}",
        title=f"memory of {whose} is fragmented: {most} reserved and unused, and {asked} could not be had",
        explanation="The allocator keeps freed memory in segments of the sizes that it once took. A request that fits "
        "into none of them fails, though their sum is larger. Expandable segments grow.",
        culprit_ranks=ranks, caused_by=first.id or None,
        next_steps=(*_settings(dataset, account), "Keep the sizes of batches the same."),
    )]  # fmt: skip
