"""What the report says of eight real gloo jobs that go wrong: `python -m benchmarks.gloo_jobs [--only retry sigkill]`.

Each job of four ranks (`benchmarks/gloo_job.py`) runs under torchrun on this machine, once bare and once with
`rankscope.capture`, as docs/capture.md says. Reports are made of the log alone, of what the capture left alone, and of
both. `--python` takes an interpreter with another torch. Run it from the root of the repository; it takes ten minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table

KINDS: dict[str, tuple[int, ...]] = {
    "fsdp2_tp": (3,), "pipeline_1f1b": (2,), "uneven_all_to_all": (1, 2), "checkpoint_barrier": (0,),
    "short_loader": (3,), "sigkill": (2,), "retry": (1,), "elastic_restart": (),
}  # fmt: skip
"""The ranks that an answer may name. Of an all_to_all the two ends of the pair whose sizes do not fit."""
ROOT = Path(__file__).parents[1]
LONGEST_JOB_S, LONGEST_REPORT_S = 90.0, 60.0
RANKS = 4


class Answer(NamedTuple):
    """The answer of a report."""

    kind: str
    files: str
    """ "log", "capture" or "both"."""
    status: str
    culprits: tuple[int, ...]
    confidence: str
    headline: str

    @property
    def is_right(self) -> bool:
        """Whether it names nobody who is innocent, and calls nothing healthy."""
        return self.status not in ("healthy", "progressing") and set(self.culprits) <= set(KINDS[self.kind])


def run_job(kind: str, folder: Path, python: str, captured: bool) -> None:
    """Runs a job to its end or for LONGEST_JOB_S; leaves job.log and, with the capture, a directory dumps."""
    folder.mkdir(parents=True)
    restarts = ["--max-restarts", "1"] if kind == "elastic_restart" else []
    capture = ["-m", "rankscope.capture", "-o", "dumps", "--interval", "2", "--stall-after", "8"] if captured else []
    command = [
        python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", *restarts, *capture, str(ROOT / "benchmarks" / "gloo_job.py"), kind,
    ]  # fmt: skip
    same = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
    environment = {**os.environ, **same, "PYTHONPATH": str(ROOT / "src")}
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            job.wait(LONGEST_JOB_S)
        except subprocess.TimeoutExpired:
            # a person ends a job that hangs
            job.terminate()
            job.wait(LONGEST_JOB_S)


def report(kind: str, files: str, path: Path) -> Answer:
    """The answer on the files of a job."""
    command = [sys.executable, "-m", "rankscope", "report", str(path), "-f", "json", "--no-cache"]
    printed = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_REPORT_S).stdout
    told: dict[str, Any] = json.loads(printed)
    roots = [finding for finding in told["findings"] if finding["root_cause"]]
    culprits = sorted({rank for finding in roots for rank in finding["culprit_ranks"]})
    confidence = roots[0]["confidence"] if roots else "-"
    return Answer(kind, files, told["status"], tuple(culprits), confidence, told["verdict"])


def answers(kind: str, folder: Path, python: str) -> Iterator[Answer]:
    """The answers on one kind of job, from its log, from what the capture left, and from both."""
    run_job(kind, folder / "bare", python, captured=False)
    run_job(kind, folder / "captured", python, captured=True)
    yield report(kind, "log", folder / "bare" / "job.log")
    yield report(kind, "capture", folder / "captured" / "dumps")
    yield report(kind, "both", folder / "captured")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the jobs one after the other and prints the answers; 1 if one is wrong."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    given = parser.parse_args(arguments)
    told: list[Answer] = []
    with tempfile.TemporaryDirectory() as directory:
        for kind in given.only:
            for answer in answers(kind, Path(directory) / kind, given.python):
                told.append(answer)
                print(f"{answer.kind}, {answer.files}: {answer.headline} ({answer.confidence})", flush=True)
    rows = [
        (answer.kind, answer.files, answer.status, ", ".join(map(str, answer.culprits)) or "nobody", answer.confidence)
        for answer in told
    ]
    head = ("job", "files", "status", "named", "confidence")
    version = subprocess.run(
        [given.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    publish(f"Real gloo jobs, torch {version}", f"{table(head, rows)}\n\n{machine()}", write=given.write)
    wrong = [answer for answer in told if not answer.is_right]
    print(f"{len(told) - len(wrong)} of {len(told)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_program(main)
