"""Simulated training jobs with one planted cause of longer steps, written as traces of torch's profiler.

Semantics. Ranks of a job are the cells of a grid: pipeline stages, data parallel replicas, tensor parallel members. A
host runs a program: it loads data, launches kernels of the compute stream and collectives of one stream for each
process group, and waits for its device at the end of the step. A kernel begins when it was launched and what stands
before it on its stream has ended. A collective begins on each member like a kernel, behind the compute kernels that
were launched before, and ends on all members at once: a transfer after the last of them began. Kernels behind a
tensor parallel collective or a receive wait for it; gradients are reduced while backward computes, or behind it, and
the optimizer waits for all of them. Stages run their micro batches in the order of GPipe or 1F1B.

Everything varies: each kernel and transfer by noise, each rank by its speed, each stage a little, each host by its
clock and drift; hosts pause now and then.

- `worker`: all kernels of one rank take longer, or its host does before each step.
- `stage`: each kernel of one stage takes longer, or the last has one kernel more for each micro batch (a loss layer).
- `sequence`: computing of a micro batch follows a + b L + c L^2 of its length L, which is its own in each step,
  replica and micro batch, and shared by the ranks of the replica; a step has as much work as without it; sizes of
  messages follow L or, where sequences are packed, do not.
- `link`: transfers of one group of tensor or data parallel ranks, or between two stages of a replica, take longer.
- `healthy`: none of these.

How strong a fault is follows from what it shall cost: a simulation with the same noise and without it is the truth of
what would be gained.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

CAUSES = ("worker", "stage", "sequence", "link", "healthy")
MS, US = 1_000_000, 1_000
BASE_NS = 1_790_857_026_000_000_000
COMPUTE_STREAM, FIRST_STREAM = 7, 20
SMALLEST_COST, LARGEST_COST = 0.08, 0.45
"""Parts of a step that a fault costs."""
LAUNCH_NS = 6 * US
Lengths = TypeVar("Lengths", float, npt.NDArray[np.float64])


@dataclass(frozen=True)
class Layout:
    """Sizes and order of a job."""

    stages: int
    replicas: int
    members: int
    micros: int
    layers: int
    steps: int
    interleaved: bool
    """1F1B, else GPipe."""
    overlapped: bool
    """Gradients of a layer are reduced while the next ones compute, else in one collective behind backward."""
    stages_outside: bool
    """Ranks of a stage are consecutive, else those of a replica."""
    meets: bool
    """All ranks reduce the loss at the end of each step."""
    numbered: bool
    """The profiler records sequence numbers."""
    kernel_ns: int
    transfer: float
    """Time of a transfer of tensor parallel ranks as part of a kernel."""
    noise: float

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.stages * self.replicas * self.members

    def rank(self, stage: int, replica: int, member: int) -> int:
        """The rank at a place of the grid."""
        if self.stages_outside:
            return (stage * self.replicas + replica) * self.members + member
        return (replica * self.stages + stage) * self.members + member

    @cached_property
    def places(self) -> dict[int, tuple[int, int, int]]:
        """By rank its stage, replica and member."""
        return {
            self.rank(s, d, t): (s, d, t)
            for s in range(self.stages) for d in range(self.replicas) for t in range(self.members)
        }  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A layout, what is wrong with it, and how strongly."""

    layout: Layout
    cause: str
    kind: str
    """The way in which it is wrong."""
    ranks: tuple[int, ...]
    """The slow rank, those of the slow link, or those of the long stage."""
    stage: int | None
    strength: float
    seed: int


@dataclass
class Event:
    """One span of a trace."""

    rank: int
    category: str
    name: str
    start_ns: float
    length_ns: float
    stream: int | None = None
    number: int = 0
    call: dict[str, object] = field(default_factory=dict)


@dataclass
class Timeline:
    """What a job did: its events in true time, and how long a step took."""

    events: list[Event]
    step_ns: float


def planned(cause: str, seed: int) -> Job:
    """A job whose fault costs 8 to 45 % of its step."""
    random = np.random.default_rng([seed, CAUSES.index(cause)])
    while True:
        layout = _layout(random)
        job = _faulty(layout, cause, seed, random)
        if job is None:
            continue
        cost = random.uniform(SMALLEST_COST, LARGEST_COST)
        job = _strong_enough(job, cost)
        if job is not None:
            return job


def _layout(random: np.random.Generator) -> Layout:
    while True:
        stages, replicas, members = (
            int(random.choice(sizes)) for sizes in ((1, 1, 2, 3, 4), (1, 2, 2, 4, 8), (1, 2, 4))
        )
        if 4 <= stages * replicas * members <= 16:
            break
    return Layout(
        stages, replicas, members,
        micros=int(random.integers(2 * stages, 2 * stages + 5)) if stages > 1 else int(random.integers(1, 5)),
        layers=int(random.integers(2, 5)), steps=int(random.integers(5, 14)), interleaved=bool(random.random() < 0.6),
        overlapped=bool(random.random() < 0.5), stages_outside=bool(random.random() < 0.6),
        meets=bool(random.random() < 0.5), numbered=bool(random.random() < 0.5),
        kernel_ns=int(np.exp(random.uniform(np.log(0.4), np.log(6))) * MS), transfer=float(random.uniform(0.05, 0.3)),
        noise=float(random.uniform(0.005, 0.03)),
    )  # fmt: skip


def _faulty(layout: Layout, cause: str, seed: int, random: np.random.Generator) -> Job | None:
    """The job with a fault of strength 0 at a random place; None if the layout does not allow it."""
    ranks: tuple[int, ...] = ()
    stage, kind = None, ""
    if cause == "worker":
        if layout.replicas * layout.members == 1:
            return None  # a rank that is alone in its stage is the stage
        ranks, kind = (int(random.integers(layout.world)),), str(random.choice(["compute", "host"]))
    elif cause == "stage":
        if layout.stages == 1:
            return None
        kind = str(random.choice(["all", "last"]))
        stage = layout.stages - 1 if kind == "last" else int(random.integers(layout.stages))
        ranks = tuple(sorted(rank for rank, place in layout.places.items() if place[0] == stage))
    elif cause == "sequence":
        if layout.replicas * layout.stages == 1:
            return None  # nobody waits for another micro batch
        kind = str(random.choice(["packed", "sized"]))
    elif cause == "link":
        sides = [name for name, size in (("tensor", layout.members), ("data", layout.replicas)) if size > 1]
        groups = {"tensor": layout.stages * layout.replicas, "data": layout.stages * layout.members}
        sides = [name for name in sides if groups[name] > 1]
        sides += (
            ["pipeline"] if layout.stages > 1 and layout.replicas * layout.members * (layout.stages - 1) > 1 else []
        )
        if not sides:
            return None
        kind = str(random.choice(sides))
        stage_of, replica, member = layout.places[int(random.integers(layout.world))]
        if kind == "tensor":
            ranks = tuple(layout.rank(stage_of, replica, t) for t in range(layout.members))
        elif kind == "data":
            ranks = tuple(layout.rank(stage_of, d, member) for d in range(layout.replicas))
        else:
            stage_of = min(stage_of, layout.stages - 2)
            ranks = tuple(layout.rank(stage_of + k, replica, member) for k in range(2))
        ranks = tuple(sorted(ranks))
    return Job(layout, cause, kind, ranks, stage, 0.0, seed)


def _strong_enough(job: Job, cost: float) -> Job | None:
    """The job with the strength at which its fault costs that part of a step; None if none does."""
    if job.cause == "healthy":
        return job
    usual = simulated(job).step_ns
    low, high = 0.0, {"sequence": 1.2, "link": 40.0, "stage": 3.0}.get(job.cause, 2.0)
    for _ in range(7):
        middle = (low + high) / 2
        if 1 - usual / simulated(replace(job, strength=middle)).step_ns < cost:
            low = middle
        else:
            high = middle
    job = replace(job, strength=high)
    return job if gain(job) >= SMALLEST_COST else None


def gain(job: Job) -> float:
    """The part of a step that the fault costs."""
    return 1 - simulated(replace(job, strength=0.0)).step_ns / simulated(job).step_ns


class _Meeting:
    """A collective: the times at which its members began."""

    def __init__(self, members: tuple[int, ...], length_ns: float) -> None:
        self.members, self.length_ns = members, length_ns
        self.began: dict[int, float] = {}
        self.ended: float | None = None

    def begin(self, rank: int, at: float) -> None:
        self.began[rank] = at
        if len(self.began) == len(self.members):
            self.ended = max(self.began.values()) + self.length_ns

    def ended_on(self, rank: int) -> float | None:
        """The end on a rank: members leave a few microseconds apart."""
        return None if self.ended is None else self.ended + (rank * 7919 % 5) * US


@dataclass
class _Call:
    """One instruction of a program."""

    do: str
    length_ns: float = 0.0
    name: str = ""
    meeting: _Meeting | None = None
    group: str = ""
    info: dict[str, object] = field(default_factory=dict)
    waits: bool = True


class _Rank:
    """The state of a rank that runs its program."""

    def __init__(self) -> None:
        self.host, self.at = 0.0, 0
        self.compute: float | _Meeting = 0.0
        self.streams: dict[str, float | _Meeting] = defaultdict(float)


def simulated(job: Job) -> Timeline:
    """The timeline of a job."""
    programs = _Programs(job)
    events: list[Event] = []
    ranks = [_Rank() for _ in range(job.layout.world)]
    number = 0
    progress = True
    while progress:
        progress = False
        for rank, state in enumerate(ranks):
            program = programs.of[rank]
            while state.at < len(program) and _advance(rank, state, program[state.at], events, number):
                state.at, number, progress = state.at + 1, number + 1, True
    if any(state.at < len(programs.of[rank]) for rank, state in enumerate(ranks)):
        raise RuntimeError("ranks of the simulation wait for each other")
    return Timeline(events, max(state.host for state in ranks) / job.layout.steps)


def _time(value: float | _Meeting, rank: int) -> float | None:
    return value.ended_on(rank) if isinstance(value, _Meeting) else value


def _advance(rank: int, state: _Rank, call: _Call, events: list[Event], number: int) -> bool:
    """Runs one instruction; false if it has to wait for what others did not do yet."""
    if call.do == "host":
        events.append(Event(rank, "user_annotation", call.name, state.host, call.length_ns))
        state.host += call.length_ns
        return True
    if call.do == "begin-step":
        call.info["at"] = state.host
        return True
    compute = _time(state.compute, rank)
    if call.do in ("join", "sync"):
        ends = [compute, *(_time(value, rank) for value in state.streams.values())]
        if any(end is None for end in ends):
            return False
        latest = max(end for end in ends if end is not None)
        if call.do == "join":
            state.compute = latest
        else:
            end = max(latest, state.host) + 5 * US
            events.append(Event(rank, "cuda_runtime", "cudaDeviceSynchronize", state.host, end - state.host))
            begin = float(call.info["begin"].info["at"])  # type: ignore[attr-defined]
            events.append(Event(rank, "user_annotation", call.name, begin, end + US - begin))
            state.host = end + 2 * US
        return True
    if compute is None:
        return False
    if call.do == "kernel":
        start = max(compute, state.host + LAUNCH_NS + 2 * US)
        events.append(Event(rank, "launch", call.name, state.host, LAUNCH_NS, None, number))
        events.append(Event(rank, "kernel", call.name, start, call.length_ns, COMPUTE_STREAM, number))
        state.compute, state.host = start + call.length_ns, state.host + LAUNCH_NS
        return True
    assert call.meeting is not None
    free = _time(state.streams[call.group], rank)
    if free is None:
        return False
    start = max(compute, free, state.host + LAUNCH_NS + 4 * US)
    events.append(Event(rank, "call", call.name, state.host, LAUNCH_NS + 4 * US, None, number, call.info))
    state.host += LAUNCH_NS + 5 * US
    call.meeting.begin(rank, start)
    stream = FIRST_STREAM + (list(state.streams).index(call.group))
    events.append(
        Event(rank, "collective", call.name, start, 0.0, stream, number, {**call.info, "meeting": call.meeting})
    )
    state.streams[call.group] = call.meeting
    if call.waits:
        state.compute = call.meeting
    return True


def _work(length: Lengths) -> Lengths:
    """The work on a micro batch of a length: a part that is fixed, one of its tokens, and attention."""
    return 0.2 + 0.5 * length + 0.3 * length * length


class _Programs:
    """The instructions of each rank."""

    def __init__(self, job: Job) -> None:
        self.job, self.layout = job, job.layout
        self.random = np.random.default_rng([job.seed, job.layout.world, 1])
        self.of: list[list[_Call]] = [[] for _ in range(self.layout.world)]
        self.groups = groups_of(self.layout)
        self.speed = self.random.normal(1, 0.005, self.layout.world)
        self.stage_work = self.random.normal(1, 0.006, self.layout.stages)
        self.meetings: dict[object, _Meeting] = {}
        for step in range(self.layout.steps):
            self._step(step)

    def _step(self, step: int) -> None:
        layout, begins = self.layout, {}
        lengths = self._lengths()
        for rank in range(layout.world):
            begins[rank] = _Call("begin-step")
            self.of[rank].append(begins[rank])
            loading = float(self.random.gamma(4, 60 * US))
            if self.random.random() < 0.01:
                loading += self.random.uniform(0.02, 0.1) * layout.kernel_ns * layout.layers * layout.micros * 3
            if self.job.kind == "host" and rank in self.job.ranks:
                loading += self.job.strength * layout.kernel_ns * layout.layers * layout.micros * 3
            self.of[rank].append(_Call("host", loading, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"))
        for rank, (stage, replica, _) in layout.places.items():
            for forward, micro in _order(layout, stage):
                self._micro(step, rank, forward, micro, lengths[replica, micro], float(_work(lengths).mean()))
        for rank, (stage, _, member) in layout.places.items():
            if layout.replicas > 1 and not layout.overlapped:
                self._collective(("reduce", step), rank, f"dp{stage}_{member}", "allreduce", 1 << 24, 4.0, waits=True)
            self.of[rank].append(_Call("join"))
            self._kernel(rank, "optimizer", 0.5 * layout.kernel_ns)
            if layout.meets:
                self._collective(("loss", step), rank, "0", "allreduce", 1, 0.01, waits=True)
            self.of[rank].append(_Call("sync", name=f"ProfilerStep#{step + 3}", info={"begin": begins[rank]}))

    def _lengths(self) -> npt.NDArray[np.float64]:
        """By replica and micro batch the length of its sequences, 1 on average."""
        normal = self.random.normal(0, 1, (self.layout.replicas, self.layout.micros))
        spread = self.job.strength if self.job.cause == "sequence" else 0.02
        lengths = np.exp(normal * max(spread, 1e-9) - spread * spread / 2)
        return np.asarray(lengths)

    def _micro(self, step: int, rank: int, forward: bool, micro: int, length: float, usual: float) -> None:
        layout, (stage, replica, member) = self.layout, self.layout.places[rank]
        work = _work(length) / usual
        sized = length if self.job.kind == "sized" else 1.0
        way = "f" if forward else "b"
        source = stage - 1 if forward else stage + 1
        target = stage + 1 if forward else stage - 1
        if 0 <= source < layout.stages:
            other = layout.rank(source, replica, member)
            self._pair((way, step, micro), other, rank, rank, sized)
        for layer in range(layout.layers):
            for part in ("gemm_attention", "gemm_mlp"):
                name = f"{part}_{'forward' if forward else 'backward'}"
                self._kernel(rank, name, layout.kernel_ns * (0.5 if forward else 1.0) * work)
            if layout.members > 1:
                size = int((1 << 20) * sized)
                self._collective((way, step, micro, layer), rank, f"tp{stage}_{replica}", "allreduce", size, sized)
            if layout.overlapped and layout.replicas > 1 and not forward and micro == layout.micros - 1:
                key = ("bucket", step, layer)
                self._collective(key, rank, f"dp{stage}_{member}", "allreduce", 1 << 22, 1.5, waits=False)
        if stage == layout.stages - 1:
            extra = self.job.strength * layout.layers if self.job.kind == "last" else 0.0
            self._kernel(rank, "loss", layout.kernel_ns * (0.05 + extra) * (0.5 if forward else 1.0) * work)
        if 0 <= target < layout.stages:
            other = layout.rank(target, replica, member)
            self._pair((way, step, micro), rank, other, rank, sized)

    def _kernel(self, rank: int, name: str, length: float) -> None:
        stage = self.layout.places[rank][0]
        slow = 1.0
        if self.job.kind == "compute" and rank in self.job.ranks:
            slow += self.job.strength
        if self.job.kind == "all" and stage == self.job.stage:
            slow += self.job.strength
        noise = float(self.random.lognormal(0, self.layout.noise))
        took = length * slow * noise * float(self.speed[rank]) * float(self.stage_work[stage])
        self.of[rank].append(_Call("kernel", took, name))

    def _collective(
        self, key: object, rank: int, group: str, op: str, size: int, units: float, *, waits: bool = True
    ) -> None:
        members = self.groups[group]
        meeting = self._meeting((key, group), members, units, slow=members == self.job.ranks and group[0] in "td")
        info = {"op": op, "group": group, "size": size}
        self.of[rank].append(
            _Call("collective", name=_KERNELS[op], meeting=meeting, group=group, info=info, waits=waits)
        )

    def _pair(self, key: tuple[str, int, int], sender: int, receiver: int, rank: int, units: float) -> None:
        both = (sender, receiver)
        slow = self.job.kind == "pipeline" and tuple(sorted(both)) == self.job.ranks
        meeting = self._meeting((key, both), both, units, slow=slow)
        _, replica, member = self.layout.places[rank]
        group = f"pp{replica}_{member}"
        members = self.groups[group]
        info: dict[str, object] = {
            "op": "send" if rank == sender else "recv", "group": group, "size": int((1 << 19) * units),
            "from": members.index(sender), "to": members.index(receiver),
        }  # fmt: skip
        way = f"{group} {key[0]} {'out' if rank == sender else 'in'}"
        call = _Call("p2p", name=_KERNELS["send"], meeting=meeting, group=way, info=info, waits=rank == receiver)
        self.of[rank].append(call)

    def _meeting(self, key: object, members: tuple[int, ...], units: float, *, slow: bool) -> _Meeting:
        if key not in self.meetings:
            length = self.layout.kernel_ns * self.layout.transfer * units * float(self.random.lognormal(0, 0.05))
            factor = 1 + self.job.strength if slow and self.job.cause == "link" else 1.0
            self.meetings[key] = _Meeting(members, max(15 * US, length) * factor)
        return self.meetings[key]


_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


def groups_of(layout: Layout) -> dict[str, tuple[int, ...]]:
    """The process groups by name."""
    s, d, t = range(layout.stages), range(layout.replicas), range(layout.members)
    groups = {"0": tuple(range(layout.world))}
    groups |= {f"tp{a}_{b}": tuple(layout.rank(a, b, c) for c in t) for a in s for b in d if layout.members > 1}
    groups |= {f"dp{a}_{c}": tuple(layout.rank(a, b, c) for b in d) for a in s for c in t if layout.replicas > 1}
    groups |= {f"pp{b}_{c}": tuple(layout.rank(a, b, c) for a in s) for b in d for c in t if layout.stages > 1}
    return groups


def _order(layout: Layout, stage: int) -> Iterator[tuple[bool, int]]:
    """The micro batches of a stage as (forward, number)."""
    ahead = min(layout.micros, layout.stages - 1 - stage) if layout.interleaved else layout.micros
    yield from ((True, micro) for micro in range(ahead))
    for micro in range(ahead, layout.micros):
        yield True, micro
        yield False, micro - ahead
    yield from ((False, micro) for micro in range(layout.micros - ahead, layout.micros))


def write(job: Job, folder: Path) -> None:
    """One trace for each rank, as torch's profiler writes it, each host on its own clock."""
    random = np.random.default_rng([job.seed, 2])
    layout = job.layout
    per_host = max(1, layout.world // 2)
    clocks = random.uniform(-2 * MS, 2 * MS, layout.world // per_host + 1)
    drifts = random.uniform(-5e-6, 5e-6, len(clocks))
    by_rank: dict[int, list[Event]] = defaultdict(list)
    for event in simulated(job).events:
        by_rank[event.rank].append(event)
    groups = groups_of(layout)
    config = [
        {"pg_name": str(k), "pg_desc": _about(name), "backend_config": "cuda:nccl", "pg_size": len(members),
         "ranks": members}
        for k, (name, members) in enumerate(groups.items())
    ]  # fmt: skip
    numbers = {name: str(k) for k, name in enumerate(groups)}
    for rank, events in by_rank.items():
        host = rank // per_host
        clock = _Clock(float(clocks[host]), float(drifts[host]))
        mine = [entry for entry in config if rank in entry["ranks"]]  # type: ignore[operator]
        about = {"backend": "nccl", "rank": rank, "world_size": layout.world, "pg_count": len(mine), "pg_config": mine}
        body = {
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "distributedInfo": about,
            "host_name": f"node{host}", "baseTimeNanoseconds": BASE_NS, "traceName": f"rank{rank}",
            "traceEvents": list(_kineto(rank, events, clock, groups, numbers, numbered=layout.numbered)),
        }  # fmt: skip
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(body))


@dataclass(frozen=True)
class _Clock:
    offset_ns: float
    drift: float

    def us(self, true_ns: float) -> float:
        """Microseconds since the base."""
        return round((5 * MS + true_ns * (1 + self.drift) + self.offset_ns) / 1e3, 3)


def _about(name: str) -> str:
    kinds = {"t": "TENSOR_MODEL_PARALLEL_GROUP", "d": "DATA_PARALLEL_GROUP", "p": "PIPELINE_MODEL_PARALLEL_GROUP"}
    return kinds.get(name[0], "default_pg")


def _kineto(
    rank: int, events: list[Event], clock: _Clock, groups: dict[str, tuple[int, ...]], numbers: dict[str, str], *,
    numbered: bool,
) -> Iterator[dict[str, object]]:  # fmt: skip
    seq: dict[tuple[str, bool], int] = defaultdict(int)
    process = 4000 + rank
    for event in events:
        begin, length = clock.us(event.start_ns), round(event.length_ns / 1e3, 3)
        span: dict[str, object] = {"ph": "X", "cat": event.category, "name": event.name, "pid": process, "tid": process}
        span |= {"ts": begin, "dur": length}
        external = {"External id": event.number}
        on_device = {"device": 0, "context": 1, "stream": event.stream, "correlation": event.number}
        if event.category == "launch":
            yield span | {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "args": {**external, "correlation": event.number},
            }
        elif event.category == "kernel":
            yield span | {"pid": 0, "tid": event.stream, "args": {**external, **on_device}}
        elif event.category == "call":
            group = str(event.call["group"])
            pair = "from" in event.call
            if numbered:
                seq[group, pair] += 1
            args = {
                **external,
                **_comms(event.call, groups[group], numbers[group], seq[group, pair] if numbered else None),
            }
            yield span | {"cat": "cpu_op", "name": "record_param_comms", "args": args}
            launch = {**external, "correlation": event.number}
            yield span | {
                "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": clock.us(event.start_ns + 3 * US),
                "dur": LAUNCH_NS / 1e3, "args": launch,
            }  # fmt: skip
        elif event.category == "collective":
            meeting = event.call["meeting"]
            assert isinstance(meeting, _Meeting)
            ended = meeting.ended_on(rank)
            assert ended is not None
            group = str(event.call["group"])
            args = {**external, **on_device, **_comms(event.call, groups[group], numbers[group], None)}
            length = round((ended - event.start_ns) / 1e3, 3)
            yield span | {"cat": "kernel", "pid": 0, "tid": event.stream, "dur": length, "args": args}
        else:
            yield span | {"args": external}


def _comms(call: dict[str, object], members: tuple[int, ...], number: str, seq: int | None) -> dict[str, object]:
    size, op, name = call["size"], call["op"], str(call["group"])
    args: dict[str, object] = {
        "Collective name": op, "In msg nelems": size, "Out msg nelems": size, "Group size": len(members),
        "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": number,
        "Process Group Description": _about(name), "Process Group Ranks": json.dumps(list(members)),
    }  # fmt: skip
    if seq is not None:
        args["Seq"] = seq
    if "from" in call:
        args["Src Rank" if op == "recv" else "Dst Rank"] = call["from" if op == "recv" else "to"]
    return args
