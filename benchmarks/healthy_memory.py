"""Whether healthy real jobs accuse anybody of their memory: `python -m benchmarks.healthy_memory [--only ddp tp]`.

Each is a job of two gloo ranks on this machine (`benchmarks.memory_job`) whose memory is sampled and whose model is
recorded. One more job leaks on rank 1, so that the samples are known to be enough to name a rank. Run it from the root
of the repository; it needs torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_processes import run_program, run_ranks
from benchmarks.results import machine, program_parser, publish, table

HEALTHY = {
    "ddp": "DistributedDataParallel",
    "fsdp2": "fully_shard of each block",
    "fsdp1": "FullyShardedDataParallel",
    "tp": "tensor parallel, columns then rows",
    "pp": "two stages of a pipeline, four microbatches",
    "accumulation": "gradients of four batches",
    "checkpointing": "activations computed again",
    "uneven-last-batch": "a quarter of a batch at the end of each epoch",
    "evaluation": "every 50 steps a batch 16 times as large",
    "cache": "rank 0 fills a cache of 120 MiB that then stays",
    "loader-workers": "two workers of a data loader",
}
LEAK = "leak"
LEAKED_MIB = 4
"""MiB that the leak keeps of each step."""
RANKS = 2
STEPS = 400
WIDTH = 256
"""Elements of a row of a batch: a model of 8 MiB."""
LONGEST_JOB_S = 600


class Judged(NamedTuple):
    """The answer of a report on one job."""

    variant: str
    status: str
    accused: tuple[int, ...]
    """Ranks that any finding names as culprits."""
    kinds: tuple[str, ...]
    samples: int
    """Samples of the rank with fewest."""
    growth: int
    """Bytes of the host between the first quarter of the samples and the last, of the rank that grows most."""


def run_job(variant: str, folder: Path, steps: int) -> Path:
    """Runs the ranks of a variant; returns the directory of their dumps. RuntimeError if one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    dumps = folder / "dumps"
    command = [sys.executable, "-m", "benchmarks.memory_job", variant, str(dumps), str(steps), "rarely", str(WIDTH)]
    same = {"STORE": str(folder / "store"), "GLOO_SOCKET_IFNAME": "lo"}
    run_ranks(command, RANKS, folder, same, LONGEST_JOB_S)
    return dumps


def report(dumps: Path) -> dict[str, Any]:
    """The report on the dumps of a job, as JSON."""
    command = [sys.executable, "-m", "rankscope", "report", str(dumps), "-f", "json"]
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_JOB_S).stdout
    )
    return answer


def judge(variant: str, dumps: Path, told: dict[str, Any]) -> Judged:
    """What a report says of the memory of a job."""
    # on a busy machine a rank may really come late again and again: that is told, and no matter of memory
    of_memory = [finding for finding in told["findings"] if finding["kind"].startswith("memory-")]
    accused = {rank for finding in of_memory for rank in finding["culprit_ranks"]}
    held = told["memory"]["ranks"]
    growth = max(_growth(dumps / f"memory_rank_{rank}.jsonl") for rank in range(RANKS))
    kinds = tuple(sorted({finding["kind"] for finding in told["findings"]}))
    return Judged(variant, told["status"], tuple(sorted(accused)), kinds, min(row["samples"] for row in held), growth)


def _growth(path: Path) -> int:
    """Bytes of the host that a rank gains behind the first quarter of its samples."""
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    held = [row["reserved"] for row in rows if row["device"] == "host"]
    return int(held[-1] - held[len(held) // 4])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the jobs one after the other, prints the table; 1 if a healthy one accuses or the leak is missed."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    every = [*HEALTHY, LEAK]
    parser.add_argument("--only", nargs="+", default=every, choices=every, metavar="VARIANT", help=", ".join(every))
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for variant in given.only:
            dumps = run_job(variant, Path(directory) / variant, given.steps)
            found.append(judge(variant, dumps, report(dumps)))
            print(found[-1], flush=True)
    rows = [
        (one.variant, HEALTHY.get(one.variant, f"rank 1 keeps {LEAKED_MIB} MiB of each step"), one.samples,
         f"{one.growth / (1 << 20):.0f} MiB", ", ".join(map(str, one.accused)) or "nobody")
        for one in found
    ]  # fmt: skip
    head = ("job", "its memory", "samples", "growth behind the first quarter", "accused")
    text = f"{table(head, rows)}\n\n{given.steps} steps, two ranks each. {machine()}"
    publish("Memory of healthy jobs", text, write=given.write)
    wrong = [one.variant for one in found if one.accused != ((1,) if one.variant == LEAK else ())]
    print(f"{len(found) - len(wrong)} of {len(found)} right{': wrong are ' + ', '.join(wrong) if wrong else ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_program(main)
