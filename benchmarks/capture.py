"""What the capture costs a training loop: steps with it and without it, in turn, in the same processes.

Run from the root of the repository: `python -m benchmarks.capture [--rounds 12] [--interval 10]`. Two gloo ranks train
a small model on one core each; the ring of the recorder is full from the first round on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.results import machine, put, table
from rankscope import capture

RANKS = 2
FILL = 2000
"""Operations that fill the ring."""


def train(model: torch.nn.Module, seconds: float) -> float:
    """Trains for about so long, as rank 0 counts it; returns seconds per step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin, steps, going = time.perf_counter(), 0, torch.ones(1)
    while going.item():
        model(torch.randn(16, 256)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        going.fill_(time.perf_counter() - begin < seconds)
        dist.broadcast(going, src=0)
    return (time.perf_counter() - begin) / steps


def rank(number: int, scratch: Path, rounds: int, interval: float, seconds: float) -> None:
    """One rank; the first leaves (without, with) for each round, in seconds per step."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=number, world_size=RANKS)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    for _ in range(FILL):
        dist.all_reduce(torch.ones(1))
    train(model, 2.0)
    pairs = []
    for place in range(rounds):
        with_it, without = 0.0, 0.0
        for on in (place % 2 == 0, place % 2 == 1):
            if on:
                capture.start(scratch / "dumps", interval=interval)
            per_step = train(model, seconds)
            if on:
                capture.stop()
            with_it, without = (per_step, without) if on else (with_it, per_step)
        pairs.append((without, with_it))
    if number == 0:
        (scratch / "pairs").write_text(json.dumps(pairs))
    dist.barrier()
    dist.destroy_process_group()


def measure(rounds: int, interval: float, seconds: float) -> list[tuple[float, float]]:
    """(without, with) of each round, in seconds per step."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [(number, Path(scratch), rounds, interval, seconds) for number in range(RANKS)]
        ranks = [context.Process(target=rank, args=each) for each in arguments]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        pairs: list[tuple[float, float]] = json.loads((Path(scratch) / "pairs").read_text())
    return pairs


def main() -> None:
    """Measures and writes the section of benchmarks/results.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between dumps")
    parser.add_argument("--seconds", type=float, default=21.0, help="seconds of training with it, and without")
    options = parser.parse_args()
    pairs = measure(options.rounds, options.interval, options.seconds)
    ratios = sorted(with_it / without for without, with_it in pairs)
    rows = [[
        options.interval, len(pairs), f"{1e3 * median(without for without, _ in pairs):.2f} ms",
        f"{median(ratios):.4f}", f"{ratios[len(ratios) // 4]:.4f} to {ratios[-1 - len(ratios) // 4]:.4f}",
    ]]  # fmt: skip
    head = ["seconds between dumps", "rounds", "a step without", "with / without (median)", "middle half"]
    text = f"{machine()}; `python -m benchmarks.capture --rounds {options.rounds} --interval {options.interval:g}`.\n\n"
    put("The capture in a training loop", text + table(head, rows))
    print(*rows[0], sep="  ")


if __name__ == "__main__":
    main()
