"""What the recording of numbers costs a training step, by level, with it and without it in turn in the same processes.

Run from the root of the repository: `python -m benchmarks.numbers_overhead [--rounds 8] [--steps 3]`. Two gloo ranks
train a transformer of 3.2 million parameters with DDP. Processor time of the whole process counts, with the threads
of gloo and of the writer: other work on the machine moves it little. The cost of hooks in a step that is not recorded
is too small for that; it is measured by many calls of one small operation.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.capture import numbers

RANKS = 2
BLOCKS, CALLS = 10, 100
EVERY = 50
LEVELS = ("collectives", "modules")
Costs = dict[str, list[float]]


class TransformerStep:
    """A model, and one step of its training."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        inner = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.model = torch.nn.parallel.DistributedDataParallel(inner)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def run(self) -> None:
        """One step."""
        self.model(torch.randn(4, 128, 256)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def seconds_of_steps(step: TransformerStep, count: int) -> float:
    """Processor time of a step, in seconds."""
    dist.barrier()
    begin = time.process_time()
    for _ in range(count):
        step.run()
    return (time.process_time() - begin) / count


def call_seconds() -> float:
    """Processor time of the calling thread for one small all_reduce, in seconds: the least of several times."""
    tensor, found = torch.ones(1), []
    for _ in range(BLOCKS):
        begin = time.thread_time()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        found.append((time.thread_time() - begin) / CALLS)
    return min(found)


def recorded(step: TransformerStep, scratch: Path, level: str, steps: int) -> tuple[float, int, int]:
    """Processor time of a recorded step with its part of the writing; rows and bytes of a step."""
    folder = scratch / level
    numbers.start(step.model, step.optimizer, every=1, dumps=folder, level=level)
    # the first recorded step makes tables, once in a job
    step.run()
    spent = seconds_of_steps(step, steps) * steps
    closing = time.process_time()
    numbers.stop()
    closed = time.process_time()
    path = folder / f"numbers_rank_{dist.get_rank()}.jsonl"
    rows = sum('"site"' in line for line in path.read_text().splitlines())
    written = path.stat().st_size
    return (spent + closed - closing) / steps, rows // (steps + 1), written // (steps + 1)


def rank(number: int, scratch: Path, rounds: int, steps: int) -> None:
    """One rank; the first leaves what it measured in each round."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=number, world_size=RANKS)
    step = TransformerStep()
    found: Costs = {name: [] for name in ("off", *LEVELS, "call", "hooked call")}
    sizes: dict[str, tuple[int, int]] = {}
    seconds_of_steps(step, 2)
    for place in range(rounds):
        for name in ("off", *LEVELS) if place % 2 else (*LEVELS, "off"):
            if name == "off":
                found[name].append(seconds_of_steps(step, steps))
                continue
            cost, *size = recorded(step, scratch, name, steps)
            found[name].append(cost)
            sizes[name] = (size[0], size[1])
        found["call"].append(call_seconds())
        numbers.start(every=0, dumps=scratch / "none")
        found["hooked call"].append(call_seconds())
        numbers.stop()
    if number == 0:
        (scratch / "found").write_text(json.dumps([found, sizes]))
    dist.barrier()
    dist.destroy_process_group()


def measure(rounds: int, steps: int) -> tuple[Costs, dict[str, tuple[int, int]]]:
    """What rank 0 measured: seconds of each round; rows and bytes of a step by level."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        given = [(number, Path(scratch), rounds, steps) for number in range(RANKS)]
        ranks = [context.Process(target=rank, args=each, daemon=True) for each in given]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found, sizes = json.loads((Path(scratch) / "found").read_text())
    return found, sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section of benchmarks/results.md."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3, help="steps of each round and level")
    options = parser.parse_args(arguments)
    found, sizes = measure(options.rounds, options.steps)
    off = median(found["off"])
    hook = min(found["hooked call"]) - min(found["call"])
    rows = [["off", f"{off * 1e3:.0f} ms", "", "", "", ""]]
    for level in LEVELS:
        share = median(cost / plain - 1 for cost, plain in zip(found[level], found["off"], strict=True))
        count, size = sizes[level]
        each = f"{share / EVERY:.2%}"
        rows.append(
            [level, f"{median(found[level]) * 1e3:.0f} ms", f"{share:.0%}", each, str(count), f"{size / 1e3:.0f} kB"]
        )
    head = ["level", "step, processor", "recorded step costs", f"at every={EVERY}", "rows", "file a step"]
    command = f"`python -m benchmarks.numbers_overhead --rounds {options.rounds} --steps {options.steps}`"
    note = f"A collective of a step that is not recorded costs {hook * 1e6:.0f} µs more, of {off * 1e3:.0f} ms a step."
    publish("Recording numbers", f"{machine()}; {command}. {note}\n\n{table(head, rows)}", write=options.write)


if __name__ == "__main__":
    run_program(main)
