"""Builds a Dataset of profiler traces: a small job with hosts, devices and clocks, run in simulated time.

A rank's host issues launches, its device runs them in order, a collective begins on a device when that reaches it and
ends on all of them when the last has come. Each rank writes times of its own clock, `clock_ns` ahead of true time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.schema import Dataset
from tests.trace_tables import COMM, COMPUTE, COPY, HOST, Job, build_tables

START_NS = 1_700_000_000_000_000_000
MS, US = 1_000_000, 1_000
LAUNCH_NS = 6 * US
"""How long a launch takes on the host."""
KERNELS = {
    "all_reduce": "AllReduce_Sum_f32_RING_LL", "_all_gather_base": "AllGather_RING_LL", "send": "SendRecv",
    "_reduce_scatter_base": "ReduceScatter_Sum_f32_RING_LL", "all_to_all": "SendRecv", "recv": "SendRecv",
    "coalesced": "SendRecv", "reduce": "Reduce_Sum_f32_RING_LL", "broadcast": "Broadcast_RING_LL",
}  # fmt: skip


@dataclass
class _Rank:
    """Cursors of one rank, in true time since the start."""

    host: int = 0
    device: dict[int, int] = field(default_factory=lambda: {COMPUTE: 0, COPY: 0, COMM: 0})


class TraceBuilder(Job):
    """Collects spans and collectives of ranks and makes the tables of a Dataset of them.

    >>> job = TraceBuilder(world_size=2, clock_ns={1: 400_000})
    >>> for step in range(3):
    ...     job.begin_step(step)
    ...     job.host(1, "DataLoader", 40 * MS)
    ...     job.launch(0, "gemm", 2 * MS)
    ...     job.collective()
    ...     job.end_step()
    >>> dataset = job.build()
    """

    def __init__(
        self, world_size: int, groups: Mapping[str, Sequence[int]] | None = None, *, backend: str = "nccl",
        clock_ns: Mapping[int, int] | None = None, hosts: int = 8, seqs: bool = False, jitter_ns: int = 1500,
        seed: int = 0,
    ) -> None:  # fmt: skip
        """`hosts`: ranks on each; `seqs`: whether traces tell sequence numbers; `jitter_ns`: of ends and starts."""
        self.world_size, self.hosts, self.backend, self.seqs, self.jitter_ns = (
            world_size,
            hosts,
            backend,
            seqs,
            jitter_ns,
        )
        self.group_ranks = {"0": list(range(world_size)), **{n: list(r) for n, r in (groups or {}).items()}}
        self.descriptions = {"0": "default_pg"}
        self.clock_ns = dict(clock_ns or {})
        self.random = np.random.default_rng(seed)
        self.ranks = [_Rank() for _ in range(world_size)]
        self.rows: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.counts: dict[tuple[int, str, bool], int] = {}
        self.steps: dict[int, tuple[int, int]] = {}
        self.correlations = 0
        self.lost: dict[int, int] = {}

    # what ranks do

    def begin_step(self, number: int, ranks: Sequence[int] | None = None) -> None:
        """Begins ProfilerStep#number on each rank where its host is."""
        for rank in self._all(ranks):
            self.steps[rank] = number, self.ranks[rank].host

    def end_step(self, ranks: Sequence[int] | None = None, sync: bool = True) -> None:
        """Ends the step, after waiting for the device unless told not to."""
        for rank in self._all(ranks):
            if sync:
                self.sync(rank)
            number, start = self.steps.pop(rank)
            self.span(rank, HOST, "user_annotation", f"ProfilerStep#{number}", start, self.ranks[rank].host - start)

    def host(self, rank: int, name: str, length_ns: int, category: str = "cpu_op", within: Sequence[str] = ()) -> None:
        """The host is busy, in an operation of that name, inside Python functions `within`, outermost first."""
        start = self.ranks[rank].host
        for function in within:
            self.span(rank, HOST, "python_function", function, start, length_ns)
        self.span(rank, HOST, category, name, start, length_ns)
        self.ranks[rank].host += length_ns

    def idle(self, rank: int, length_ns: int) -> None:
        """The host does what no span shows."""
        self.ranks[rank].host += length_ns

    def launch(
        self, rank: int, kernel: str, length_ns: int, track: int = COMPUTE, category: str = "kernel", delay_ns: int = 0,
    ) -> None:  # fmt: skip
        """The host launches a kernel; it starts `delay_ns` after its stream could have."""
        at, state = self._launched(rank), self.ranks[rank]
        start = max(at, state.device[track]) + delay_ns + self._noise()
        state.device[track] = start + length_ns
        self.span(rank, track, category, kernel, start, length_ns, correlation=self.correlations)

    def sync(self, rank: int) -> None:
        """The host waits for its device."""
        state = self.ranks[rank]
        start, end = state.host, max(state.host + 2 * US, *state.device.values())
        self.span(rank, HOST, "cuda_runtime", "cudaDeviceSynchronize", start, end - start)
        state.host = end

    def collective(
        self, group: str = "0", op: str = "all_reduce", nelems: int = 1 << 20, length_ns: int = MS, blocks: bool = True,
        ranks: Sequence[int] | None = None, unseen: Sequence[int] = (), **more: Any,
    ) -> None:  # fmt: skip
        """Every member issues it; it ends on all `length_ns` after the last came. `blocks`: computing waits for it.

        `unseen` ranks take part, but their profilers do not tell.
        """
        members = list(ranks if ranks is not None else self.group_ranks[group])
        issued = {r: self._issue(r, op) for r in members}
        starts = {r: max(issued[r][1], *self._ready(r)) + self._noise() for r in members}
        end = max(starts.values()) + length_ns
        for rank in members:
            ended = end + self._noise()
            self._seen(rank, group, op, nelems, issued[rank], starts[rank], ended, rank in unseen, more)
            self.ranks[rank].device[COMM] = ended
            if blocks:
                self.ranks[rank].device[COMPUTE] = ended

    def p2p(self, group: str, sender: int, receiver: int, nelems: int = 1 << 16, length_ns: int = MS) -> None:
        """A send and its receive; both end when the data is there."""
        issued = {r: self._issue(r, op) for r, op in ((sender, "send"), (receiver, "recv"))}
        starts = {r: max(issued[r][1], *self._ready(r)) + self._noise() for r in issued}
        end = max(starts.values()) + length_ns
        for rank, op, peer in ((sender, "send", receiver), (receiver, "recv", sender)):
            self._seen(rank, group, op, nelems, issued[rank], starts[rank], end, False, {"is_p2p": True, "peer": peer})
            self.ranks[rank].device[COMM] = self.ranks[rank].device[COMPUTE] = end + self._noise()

    def span(
        self, rank: int, track: int, category: str, name: str, start: int, length: int, correlation: int | None = None,
        op: int | None = None,
    ) -> None:  # fmt: skip
        """Adds a span in true time since the start."""
        self.spans.append({
            "track": rank * 4 + track, "category": category, "name": name, "start_ns": self._clock(rank, start),
            "duration_ns": length, "depth": 0, "correlation": correlation, "op": op,
        })  # fmt: skip

    # how it is written down

    def _all(self, ranks: Sequence[int] | None) -> Sequence[int]:
        return range(self.world_size) if ranks is None else ranks

    def _noise(self) -> int:
        return int(self.random.integers(0, self.jitter_ns + 1))

    def _clock(self, rank: int, true_ns: int) -> int:
        return START_NS + true_ns + self.clock_ns.get(rank, 0)

    def _launched(self, rank: int) -> int:
        state = self.ranks[rank]
        self.correlations += 1
        self.span(rank, HOST, "cuda_runtime", "cudaLaunchKernel", state.host, LAUNCH_NS, correlation=self.correlations)
        state.host += LAUNCH_NS
        return state.host + 2 * US

    def _issue(self, rank: int, op: str) -> tuple[int, int, int]:
        """(when the host issued it, when it can start, correlation)."""
        start = self.ranks[rank].host
        if self.backend == "gloo":
            self.host(rank, "c10d::allreduce_" if op == "all_reduce" else f"c10d::{op}_", 30 * US)
            return start, start + 20 * US, 0
        # its stream waits for the computing before it, and computing for it
        self.span(rank, HOST, "cuda_runtime", "cudaStreamWaitEvent", start + 2 * US, US)
        self.ranks[rank].host += 5 * US
        at = self._launched(rank)
        self.span(rank, HOST, "cuda_runtime", "cudaStreamWaitEvent", self.ranks[rank].host + US, US)
        self.ranks[rank].host += 4 * US
        self.span(rank, HOST, "user_annotation", f"nccl:{op}", start, self.ranks[rank].host - start)
        self.span(rank, HOST, "cpu_op", "record_param_comms", start + US, self.ranks[rank].host - start - 2 * US)
        return start, at, self.correlations

    def _ready(self, rank: int) -> tuple[int, int]:
        state = self.ranks[rank]
        return (0, state.device[COMM]) if self.backend == "gloo" else (state.device[COMPUTE], state.device[COMM])

    def _seen(
        self, rank: int, group: str, op: str, nelems: int, issued: tuple[int, int, int], start: int, end: int,
        unseen: bool, more: Mapping[str, Any],
    ) -> None:  # fmt: skip
        key = (rank, group, bool(more.get("is_p2p")))
        self.counts[key] = self.counts.get(key, 0) + 1
        if unseen:
            return
        row = {
            "source": "profiler", "file": rank, "attempt": 0, "rank": rank, "host": self.host_of(rank), "group": group,
            "seq": self.counts[key] if self.seqs else None, "p2p_seq": None, "is_p2p": key[2], "library": self.backend,
            "op": op, "peer": None, "coalesced": "none", "state": "completed", "retired": True,
            "created_ns": self._clock(rank, issued[0]), "started_ns": self._clock(rank, start),
            "completed_ns": self._clock(rank, end), "duration_ns": end - start, "in_sizes": f"[[{nelems}]]",
            "out_sizes": f"[[{nelems}]]", "in_dtypes": '["Float"]', "out_dtypes": '["Float"]',
            "record_id": len(self.rows), "number": len(self.rows),
        }  # fmt: skip
        self.rows.append({**row, **more})
        gloo = self.backend == "gloo"
        name = f"gloo:{op}" if gloo else f"ncclDevKernel_{KERNELS[op]}(ncclDevKernelArgsStorage<4096ul>)"
        category = "user_annotation" if gloo else "kernel"
        self.span(rank, COMM, category, name, start, end - start, correlation=issued[2] or None, op=len(self.rows) - 1)

    def host_of(self, rank: int) -> str:
        """The name of its host."""
        return f"node{rank // self.hosts:02d}"

    def build(self) -> Dataset:
        """The Dataset of what was added."""
        return build_tables(self)


def training(
    world_size: int = 4, steps: int = 8, *, slow_host: Mapping[int, int] | None = None,
    slow_kernel: Mapping[int, int] | None = None, slow_launch: Mapping[int, int] | None = None,
    layers: int = 3, jitter_ns: int = 200 * US, seed: int = 0, **more: Any,
) -> TraceBuilder:  # fmt: skip
    """A data-parallel job of `steps`, each with `layers` all-reduces; planted delays in ns for each step, by rank.

    `slow_host`: its host sleeps in data loading; `slow_kernel`: its device computes longer; `slow_launch`: its kernels
    start late. `jitter_ns` is the spread of everybody's computing.
    """
    job = TraceBuilder(world_size, seed=seed, **more)
    random = np.random.default_rng(seed + 1)
    for step in range(steps):
        job.begin_step(step + 3)
        for rank in range(world_size):
            job.host(
                rank, "aten::randn", 300 * US + int(random.integers(0, jitter_ns + 1)), within=("train.py(20): step",)
            )
            late = (slow_host or {}).get(rank, 0)
            if late:
                within = ("train.py(20): step", "data.py(12): load")
                job.host(rank, "<built-in function sleep>", late, "python_function", within)
        for layer in range(layers):
            for rank in range(world_size):
                extra = (slow_kernel or {}).get(rank, 0) // layers
                job.launch(rank, "gemm_128x64", 2 * MS + int(random.integers(0, jitter_ns + 1)))
                if extra:
                    job.launch(rank, "extra_gemm", extra)
                if layer == 0:
                    job.launch(rank, "relu", 50 * US, delay_ns=(slow_launch or {}).get(rank, 0))
            job.collective(nelems=1 << (20 + layer))
        job.end_step()
    return job


def paused_once(rank: int, step: int, *, steps: int, kernel_ns: int) -> TraceBuilder:
    """Four ranks of which one pauses for 300 ms in one step."""
    job = TraceBuilder(4)
    for number in range(steps):
        job.begin_step(number)
        job.idle(rank, 300 * MS if number == step else 0)
        for one in range(4):
            job.launch(one, "gemm", kernel_ns)
        job.collective()
        job.end_step()
    return job
