"""How fast the lines are read that NCCL prints while a job starts: rings, trees, network cards, communicators.

Run from the root of the repository: `python -m benchmarks.init_speed [--ranks 64]`. Processor time, printed only.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator, Sequence

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser
from rankscope.features.logs.read.decode import decode_log

COMMS = (64, 8, 8, 2)
CHANNELS = 16


def started(rank: int, rng: random.Random) -> Iterator[str]:
    """The messages of one process."""
    yield f"Bootstrap : Using eth0:10.0.{rank // 8}.{rank % 8}<0>"
    yield "NCCL_IB_HCA set by environment to mlx5_0,mlx5_1"
    yield "Using network IB"
    for number, size in enumerate(COMMS):
        own = f"0x{rng.getrandbits(44):x} rank {rank % size} nranks {size} cudaDev {rank % 8} nvmlDev {rank % 8} "
        told = f"ncclCommInitRank comm {own}busId {rank % 8}b000 commId 0x{number * 977 + rank // size:x} - Init "
        yield f"{told}START"
        yield "Trees " + " ".join(f"[{i}] {rank + 1}/-1/-1->{rank}->{rank - 1}" for i in range(CHANNELS))
        for channel in range(CHANNELS):
            yield f"Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {rank + 1}[{(rank + 1) % 8}] via P2P/CUMEM/read"
            yield f"Connected to proxy localRank {rank % 8} -> connection 0x7f{rng.getrandbits(40):x}"
            yield f"NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn {rng.randrange(99_999)} mtu 5 LID {channel}"
        yield "Connected all rings, use ring PXN 0 GDR 1"
        yield f"{told}COMPLETE"


def text(ranks: int) -> bytes:
    """The log of a job, with the lines of its processes between each other."""
    rng = random.Random(0)
    waiting = {rank: list(started(rank, rng))[::-1] for rank in range(ranks)}
    lines = []
    while waiting:
        rank = rng.choice(list(waiting))
        lines.append(f"node-{rank // 8}:{4100 + rank}:{4200 + rank} [{rank % 8}] NCCL INFO {waiting[rank].pop()}\n")
        if not waiting[rank]:
            del waiting[rank]
    return "".join(lines).encode()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args(arguments)
    log, took = text(args.ranks), []
    for _ in range(args.times):
        begin = time.process_time()
        decode_log(io.BytesIO(log))
        took.append(time.process_time() - begin)
    megabytes, lines = len(log) / 1e6, log.count(b"\n")
    print(f"{megabytes:.1f} MB, {lines:,} lines: {megabytes / min(took):.0f} MB/s")


if __name__ == "__main__":
    run_program(main)
