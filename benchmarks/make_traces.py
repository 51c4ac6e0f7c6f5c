"""Writes the traces the speed is measured on: `python -m benchmarks.make_traces FOLDER RANKS MEGABYTES`.

A training step of a transformer as torch 2.13 records it with shapes and stacks: for each operator its Python frame, an
inner operator, the launch, the kernel and the two ends of the flow between them, and a collective every so often.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser

BASE_NS = 1_790_857_026_000_000_000
START_US = 4_479_654_969_561.300
PID = 493
STEP = 400
"""Operators of a step; every 40th is followed by a collective."""
OPERATORS = ("linear", "addmm", "view", "native_layer_norm", "_scaled_dot_product_flash_attention", "copy_", "empty")
SHAPES = (
    '"Record function id": 0, "Concrete Inputs": ["", "[256, 1024]", "False"], "Input type": ["float", "ScalarList", '
    '"Scalar"], "Input Strides": [[], [], []], "Input Dims": [[256, 1024], [], []]'
)
LAUNCHED = (
    '"queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {number}, "registers per thread": 96, '
    '"shared memory": 103808, "blocks per SM": 0.015152, "warps per SM": 0.136364, "grid": [2, 1, 1], '
    '"block": [288, 1, 1], "est. achieved occupancy %": 0'
)


def make(folder: Path, ranks: int, megabytes: float) -> list[Path]:
    """One trace for each rank, of so many MB each."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{rank}.pt.trace.json" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        _write(path, rank, ranks, megabytes * 1e6)
    return paths


def _write(path: Path, rank: int, ranks: int, size: float) -> None:
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}
    info = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1, "pg_config": [group]}
    head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "baseTimeNanoseconds": BASE_NS}
    rng, written, step = random.Random(rank), 0, 0
    with path.open("w") as file:
        written += file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        while written < size:
            text = ",\n".join(_step(rng, step, ranks))
            written += file.write((",\n" if step else "") + text)
            step += 1
        file.write('\n  ],\n  "traceName": "rank.json"\n}')


def _step(rng: random.Random, step: int, ranks: int) -> Iterator[str]:
    begin = START_US + step * STEP * 40.123
    for k in range(STEP):
        number = (step * STEP + k) * 4
        yield from _operator(rng, begin + k * 40.123, k, number)
        if k % 40 == 0:
            yield from _collective(begin + k * 40.123 + 22, (step * STEP + k) // 40 + 1, number + 2, ranks)
    yield _event("user_annotation", f"ProfilerStep#{step}", begin, STEP * 40.0, '"External id": 1')


def _operator(rng: random.Random, at: float, k: int, number: int) -> Iterator[str]:
    frame = f"torch/nn/modules/module.py({1700 + k % 90}): _call_impl_{k % 300}"
    kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::op_{k % 60}(float)>(int, float, char*)"
    yield _event("python_function", frame, at - 1, 30.1, f'"Python id": {number}, "Python parent id": 1, "Ev Idx": {k}')
    name = f"aten::{OPERATORS[k % len(OPERATORS)]}"
    yield _event("cpu_op", name, at, 20 + rng.random(), f'"External id": {number}, {SHAPES}, "Ev Idx": {k}')
    yield _event("cpu_op", "aten::as_strided", at + 1, 2.1, f'"External id": {number + 1}, "Ev Idx": {k}')
    yield from _launch(at + 5, number, "cudaLaunchKernel")
    args = f'"External id": {number + 1}, {LAUNCHED.format(stream=7, number=number)}'
    yield _event("kernel", kernel, at + 12, 18.3, args, 0, 7)
    yield _flow("f", number, at + 12, 0, 7)


def _collective(at: float, seq: int, number: int, ranks: int) -> Iterator[str]:
    comms = (
        f'"Collective name": "allreduce", "In msg nelems": 262144, "Out msg nelems": 262144, "Group size": {ranks}, '
        '"dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
        f'"Process Group Description": "default_pg", "Process Group Ranks": "{list(range(ranks))}", "Seq": {seq}'
    )
    yield _event("cpu_op", "record_param_comms", at, 7.1, f'"External id": {number}, {comms}')
    yield _event("user_annotation", "nccl:all_reduce", at + 1, 4.1, f'"External id": {number + 1}')
    yield from _launch(at + 2, number, "cudaLaunchKernelExC")
    args = f'"External id": {number}, {LAUNCHED.format(stream=13, number=number)}, {comms}'
    yield _event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(4096ul)", at + 10, 118.3, args, 0, 13)


def _launch(at: float, number: int, name: str) -> Iterator[str]:
    yield _event("cuda_runtime", name, at, 5.1, f'"External id": {number}, "cbid": 211, "correlation": {number}')
    yield _flow("s", number, at, PID, PID)


def _event(category: str, name: str, at: float, duration: float, args: str, pid: int = PID, tid: int = PID) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {at:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(phase: str, number: int, at: float, pid: int, tid: int) -> str:
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {at:.3f},\n'
        '    "cat": "ac2g", "name": "ac2g"\n  }'
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the traces of a job."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("megabytes", type=float, help="of each rank")
    given = parser.parse_args(arguments)
    make(given.folder, given.ranks, given.megabytes)


if __name__ == "__main__":
    run_program(main)
