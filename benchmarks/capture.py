"""What the capture costs a training loop: steps with it and without it, in turn, in the same processes.

Run from the root of the repository: `python -m benchmarks.capture [--rounds 12] [--interval 10]`. Two gloo ranks train
a small model on one core each; the ring of the recorder is full from the first round on. Time on the clock is what
counts, but other work on the machine moves it by more than the capture does; what its threads take of the processor is
measured by themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope import capture

RANKS = 2
FILL = 2000
"""Operations that fill the ring."""
NOISE = """Two ranks on two cores: rounds differ by several percent also where nothing is dumped, so that the first two
ratios can show a large cost only; the others are what the capture takes."""


Pace = tuple[float, float]
"""Seconds per step: on the clock, and on the processor."""
Round = tuple[float, float, float, float, float, float]
"""Pace without the capture and with it, and the shares that its threads, and the one of the clock for standstills, took
of the processor time of the process."""
CLOCK = "rankscope-stall"


def train(model: torch.nn.Module, seconds: float) -> Pace:
    """Trains for about so long, as rank 0 counts it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin, busy, steps, going = time.perf_counter(), time.process_time(), 0, torch.ones(1)
    while going.item():
        model(torch.randn(16, 256)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        going.fill_(time.perf_counter() - begin < seconds)
        dist.broadcast(going, src=0)
    return (time.perf_counter() - begin) / steps, (time.process_time() - busy) / steps


def threads_used(name: str = "rankscope-") -> float:
    """Processor time of the threads of the capture whose names begin so, in seconds."""
    mine = [thread.ident for thread in threading.enumerate() if thread.name.startswith(name)]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in mine if ident is not None)


def rank(number: int, scratch: Path, rounds: int, interval: float, seconds: float) -> None:
    """One rank; the first leaves what it measured in each round."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=number, world_size=RANKS)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    for _ in range(FILL):
        dist.all_reduce(torch.ones(1))
    train(model, min(seconds, 2.0))
    rounds_told: list[Round] = []
    for place in range(rounds):
        found: dict[bool, Pace] = {}
        used = watched = 0.0
        for on in (place % 2 == 0, place % 2 == 1):
            if on:
                capture.start(scratch / "dumps", interval=interval)
            busy = time.process_time()
            found[on] = train(model, seconds)
            if on:
                busy = time.process_time() - busy
                used, watched = threads_used() / busy, threads_used(CLOCK) / busy
                capture.stop()
        rounds_told.append((*found[False], *found[True], used, watched))
    if number == 0:
        (scratch / "rounds").write_text(json.dumps(rounds_told))
    dist.barrier()
    dist.destroy_process_group()


def measure(rounds: int, interval: float, seconds: float) -> list[Round]:
    """What rank 0 measured in each round."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [(number, Path(scratch), rounds, interval, seconds) for number in range(RANKS)]
        ranks = [context.Process(target=rank, args=each, daemon=True) for each in arguments]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        told: list[Round] = json.loads((Path(scratch) / "rounds").read_text())
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section of benchmarks/results.md."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between dumps")
    parser.add_argument("--seconds", type=float, default=21.0, help="seconds of training with it, and without")
    options = parser.parse_args(arguments)
    told = measure(options.rounds, options.interval, options.seconds)
    rows = [
        _row("with / without, on the clock", [r[2] / r[0] for r in told]),
        _row("with / without, on the processor", [r[3] / r[1] for r in told]),
        _row("threads of the capture / process, on the processor", [r[4] for r in told]),
        _row("thread that sees standstills / process, on the processor", [r[5] for r in told]),
    ]
    head = ["ratio", "median", "middle half of the rounds"]
    command = f"`python -m benchmarks.capture --rounds {options.rounds} --interval {options.interval:g}`"
    text = f"{machine()}; {command}. {NOISE}\n\n{table(head, rows)}"
    publish("The capture in a training loop", text, write=options.write)


def _row(name: str, ratios: list[float]) -> list[str]:
    ordered, quarter = sorted(ratios), len(ratios) // 4
    return [name, f"{median(ordered):.5f}", f"{ordered[quarter]:.5f} to {ordered[-1 - quarter]:.5f}"]


if __name__ == "__main__":
    run_program(main)
