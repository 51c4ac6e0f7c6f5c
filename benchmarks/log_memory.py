"""How much memory reading a very long log takes: the peak of each process of `rankscope report`, by size and kind.

Run from the root of the repository: `python -m benchmarks.log_memory [--gb 1 10] [--kinds mixed] [--write]`. The log is
written to the temporary directory and taken away again; it needs as much room there as the largest size asked for.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.child_processes import process_tree, run_program
from benchmarks.results import machine, program_parser, publish, table

RANKS = 64
PER_HOST = 8
STEPS = 200
"""Steps of training in one block of the log; each block has other numbers."""
BLOCK = b"@@@@@"
"""Stands for the number of the block."""
OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
Lines = Iterator[str]


def _head(rank: int) -> str:
    host, pid = f"worker-{rank // PER_HOST:02d}", 41_000 + rank
    return f"{rank}: {host}:{pid}:{pid} [{rank % PER_HOST}] NCCL INFO "


def collective(called: str, rng: random.Random, step: int, datatype: int, comm: str) -> str:
    """The message of a COLL line; `called` is its operation and opCount, `comm` its communicator with the size."""
    return (
        f"{called} sendbuff 0x7f{rng.getrandbits(40):010x} recvbuff 0x7f{rng.getrandbits(40):010x} "
        f"count {step * 7919 % 30_000_000} datatype {datatype} op 0 root 0 comm {comm} stream 0x55bef0208bd0"
    )


def fingerprint(rank: int, moment: str, seq: str) -> str:
    """What the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL prints of a collective of the group of all."""
    return (
        f"[rank{rank}]:[I1120 {moment}.789012345 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: "
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType=ALLREDUCE, TensorShape=[64, 64], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), "
        "requires_grad=false (default)))"
    )


def operations(rng: random.Random, steps: int = STEPS) -> Lines:
    """COLL lines of 64 ranks in three communicators each, interleaved as srun writes them."""
    for step in range(steps):
        for of, size in enumerate((RANKS, 8, 8)):
            for rank in rng.sample(range(RANKS), RANKS):
                comm = f"0x55be{of:02x}{rank:06x} [nranks={size}]"
                called = f"{OPS[(step + of) % 4]}: opCount {BLOCK.decode()}{step:03x}"
                yield _head(rank) + collective(called, rng, step, step % 10, comm)


def chatter(rng: random.Random) -> Lines:
    """What is printed while communicators are made, used once and destroyed, over and over."""
    for rank in rng.sample(range(RANKS), RANKS):
        comm = f"comm 0x7a{BLOCK.decode()}{rank:02x} rank {rank} nranks {RANKS} cudaDev {rank % 8}"
        begun = f"{comm} nvmlDev {rank % 8} busId 1b000 commId 0x{BLOCK.decode()}"
        yield f"{_head(rank)}ncclCommInitRank {begun} - Init START"
        yield f"{_head(rank)}NCCL_IB_TIMEOUT set by environment to {22 + rank % 2}."
        for channel in range(24):
            yield f"{_head(rank)}Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {(rank + 1) % 64}[0] via P2P/CUMEM"
        yield f"{_head(rank)}ncclCommInitRank {begun} - Init COMPLETE"
        yield f"{_head(rank)}{comm} busId 1b000 - Destroy COMPLETE"


def words(rng: random.Random) -> Lines:
    """What a program prints itself: losses, bars of progress, warnings of libraries, settings tried again."""
    for rank in rng.sample(range(RANKS), RANKS):
        yield f"{rank}: step {BLOCK.decode()} loss {rng.random():.4f} lr 3.0e-04 grad norm {rng.random():.3f}"
        yield f"{rank}: \repoch 1:  {rank}%|####      | {rank}/100 [00:0{rank % 10}<00:10, 1.37it/s]"
        yield f"{rank}: UserWarning: the given buffer is not writable, block {BLOCK.decode()}"


def errors(rng: random.Random) -> Lines:
    """Warnings of NCCL, known errors and timeouts of c10d that a program goes on after."""
    for rank in rng.sample(range(RANKS), RANKS):
        host, pid = f"worker-{rank // PER_HOST:02d}", 41_000 + rank
        yield (
            f"{rank}: {host}:{pid}:{pid} [{rank % 8}] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to "
            f"10.0.0.{rank}<{BLOCK.decode()}> failed : Software caused connection abort"
        )
        yield f"{_head(rank)}misc/socket.cc:567 -> 6"
        yield (
            f"{rank}: [rank{rank}]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
            f"collective operation timeout: WorkNCCL(SeqNum={int(rng.random() * 1e9)}, OpType=ALLREDUCE, NumelIn=1, "
            f"NumelOut=1, Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
        )


def prints(rng: random.Random) -> Lines:
    """Every collective, as TORCH_DISTRIBUTED_DEBUG=DETAIL has it."""
    for step in range(20):
        for rank in rng.sample(range(RANKS), RANKS):
            yield f"{rank}: {fingerprint(rank, '12:34:56', f'{BLOCK.decode()}{step:02d}')}"


def mixed(rng: random.Random) -> Lines:
    """A training job that was asked for everything: mostly operations, and a little of all other kinds."""
    yield from operations(rng, 8 * STEPS)
    for kind in (chatter, words, errors, prints):
        yield from kind(rng)


KINDS: dict[str, Callable[[random.Random], Lines]] = {
    "mixed": mixed, "operations": operations, "chatter": chatter, "words": words, "errors": errors, "prints": prints,
}  # fmt: skip


def write_log(path: Path, kind: str, size: int) -> None:
    """At least `size` bytes: one block after the other, each with its number in hexadecimal or decimal digits."""
    block = "".join(f"{line}\n" for line in KINDS[kind](random.Random(0))).encode()
    with path.open("wb") as file:
        number = 0
        while file.tell() < size:
            number += 1
            file.write(block.replace(BLOCK, b"%05d" % number))


def peaks(path: Path) -> tuple[int, list[int], float, float]:
    """Peak of `rankscope report` and of each of its workers in bytes, and seconds it took by clock and processors."""
    found: dict[int, int] = {}
    begin, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "rankscope", "report", str(path), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in process_tree(process.pid):
                found[pid] = max(found.get(pid, 0), _peak(pid))
            time.sleep(0.05)
    after = os.times()
    took = after.children_user + after.children_system - before.children_user - before.children_system
    workers = [peak for pid, peak in found.items() if pid != process.pid]
    return found[process.pid], workers, time.perf_counter() - begin, took


def _peak(pid: int) -> int:
    """The most memory a process ever had, as the kernel keeps it; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kib = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kib[0]) << 10 if kib else 0


EXPLANATION = f"""Logs of {RANKS} ranks in one file, of several sizes and kinds: *mixed* is mostly COLL lines of
three communicators for each rank, and a little of all the others; *chatter*: communicators made and destroyed;
*words*: what programs print; *errors*: warnings, timeouts and known errors that never end the job; *prints*:
fingerprints of TORCH_DISTRIBUTED_DEBUG=DETAIL. Peak resident memory of `rankscope report --format json` and of its
largest worker
(VmHWM), and the time it took by the clock and by processors. Made by `python -m benchmarks.log_memory {{again}}`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--gb", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["mixed"])
    args = parser.parse_args(arguments)
    rows = [_row(kind, gb) for kind in args.kinds for gb in args.gb]
    shown = table(["kind", "GB", "report, MB", "worker, MB", "clock, s", "processors, s"], rows)
    again = f"--gb {' '.join(f'{gb:g}' for gb in args.gb)} --kinds {' '.join(args.kinds)}"
    text = f"{EXPLANATION.format(again=again)}\n\n{machine()}\n\n{shown}"
    publish("Memory of long logs", text, write=args.write)


def _row(kind: str, gb: float) -> list[str]:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "job.log"
        write_log(path, kind, int(gb * 1e9))
        parent, workers, clock, processors = peaks(path)
    row = [kind, f"{gb:g}", f"{parent / 1e6:.0f}", f"{max(workers) / 1e6:.0f}", f"{clock:.0f}", f"{processors:.0f}"]
    print("\t".join(row), flush=True)
    return row


if __name__ == "__main__":
    run_program(main)
