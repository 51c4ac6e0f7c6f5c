"""Whether `rankscope diff` names the cause on pairs of real gloo jobs that differ in one planted thing.

Run from the root of the repository: `python -m benchmarks.real_pairs [--seed 1] [--only lr,seed] [--keep DIR]`. It
needs torch; the forms of torchtitan and wandb need tensorboard and wandb besides, and are left out without them. Each
job has 2 to 4 ranks on this machine (`benchmarks.pair_job`), leaves dumps by `rankscope.capture` and what its trainer
writes; at most two jobs run at once.
"""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_processes import run_program, run_ranks
from benchmarks.pair_job import SAVED_STEP
from benchmarks.pair_writers import writable
from benchmarks.results import machine, program_parser, publish, table

LONGEST_JOB_S = 240
TIMED = ("identical", "data-loader", "slow-rank")
"""Causes whose pairs run side by side, so that other work on the machine slows both alike."""
EXACT = {"hf": ("grad_norm", "lr"), "titan": ("loss", "grad_norm"), "wandb": ("loss", "grad_norm", "lr")}
EXACT["lightning"] = EXACT["wandb"]
"""Series that a form tells exactly."""
SETUPS = {
    "megatron": ("ddp", 2), "titan": ("fsdp", 2), "hf": ("manual", 3), "lightning": ("ddp", 2), "wandb": ("manual", 2),
}  # fmt: skip
"""How each form of log runs: its way to share the work, and its number of ranks."""


class Job(NamedTuple):
    """One run."""

    writer: str
    options: tuple[tuple[str, str], ...] = ()
    fault: str = "{}"
    ranks: int = 0
    goes_on: bool = False
    """Whether it appends to the log of the run that saved its state."""
    copy: int = 0


class Pair(NamedTuple):
    """Two runs, what was planted in the second, and what a report must say."""

    cause: str
    a: Job
    b: Job
    allowed: tuple[str, ...] = ()
    """Causes that what these runs record cannot tell from the planted one."""
    step: int | None = None
    """The first step whose values differ; None if the exact values of both runs tell it."""
    rank: int | None = None
    finer: str = ""
    """The kind of cause that a report names, where that says more than `cause`."""


def changed(job: Job, fault: Mapping[str, float] | None = None, ranks: int = 0, **options: object) -> Job:
    """A run with other options, and with something planted."""
    told = dict(job.options) | {name.replace("_", "-"): str(value) for name, value in options.items()}
    return job._replace(options=tuple(told.items()), fault=json.dumps(fault or {}), ranks=ranks or job.ranks)


def pairs(seed: int) -> Iterator[Pair]:
    """Three pairs of each cause, in different forms."""
    first = {name: Job(name, (("seed", str(seed)), ("data-seed", str(seed)))) for name in SETUPS}
    meg, titan, hf, light, wandb = first.values()
    bare = {name: changed(job, print_options=0) for name, job in first.items()}
    hashed = {name: changed(job, print_options=0, batch_hash=1) for name, job in first.items()}
    start = ("seed", "initial-values", "data", "dropout")
    for one in first.values():
        yield Pair("identical", one._replace(copy=1), one._replace(copy=2))
    yield Pair("seed", meg, changed(meg, seed=seed + 500))
    yield Pair("seed", wandb, changed(wandb, seed=seed + 501))
    yield Pair("seed", hashed["lightning"], changed(hashed["lightning"], seed=seed + 502), start[:2] + start[3:])
    yield Pair("data", titan, changed(titan, data_seed=seed + 503))
    yield Pair("data", hashed["hf"], changed(hashed["hf"], data_seed=seed + 504))
    yield Pair("data", bare["wandb"], changed(bare["wandb"], data_seed=seed + 505), start)
    for one in (meg, titan, hf):
        yield Pair("dropout", one, changed(one, dropout=0.1))
    yield Pair("order", light, changed(light, ddp_bucket_mb=0.01))
    yield Pair("order", hf, changed(hf, ddp_bucket_mb=0.02))
    yield Pair("order", wandb, changed(wandb, ranks=4), finer="world-size")
    yield Pair("order", wandb, changed(wandb, gradient_accumulation_steps=2), finer="accumulation")
    yield Pair("kernel", titan, changed(titan, {"noise_step": 1}))
    yield Pair("kernel", wandb, changed(wandb, {"noise_step": 20}))
    yield Pair("kernel", hf, changed(hf, {"noise_step": 9}))
    yield Pair("lr", meg, changed(meg, learning_rate=2.1e-3))
    yield Pair("lr", light, changed(light, learning_rate=1e-3))
    yield Pair("lr", bare["wandb"], changed(bare["wandb"], learning_rate=2.02e-3))
    for one, allowed in ((meg, ("host-work",)), (titan, ()), (hf, ("host-work",))):
        yield Pair("data-loader", one._replace(copy=3), changed(one, {"loader_s": 0.06}), allowed)
    lost = {"lost_optimizer": True}
    for name in ("megatron", "wandb", "hf"):
        resumed = changed(first[name], save="", load="SAVE")
        a = resumed if name == "hf" else saving(resumed)
        b = changed(resumed, lost)._replace(goes_on=name == "megatron")
        yield Pair("optimizer-state", a, b, step=SAVED_STEP + 2)
    for number, one in enumerate((meg, titan, hf)):
        rank = number % SETUPS[one.writer][1]
        yield Pair("slow-rank", one._replace(copy=4), changed(one, {"slow_rank": rank, "slow_s": 0.06}), rank=rank)


# Running jobs.


class Runs:
    """The folders of runs: each job runs once."""

    def __init__(self, folder: Path, chosen: Sequence[Pair]) -> None:
        jobs = [job for pair in chosen for job in (pair.a, pair.b)]
        every = dict.fromkeys([*(saving(job) for job in jobs if _option(job, "load")), *jobs])
        self._folder, self._chosen = folder, chosen
        self._known = {job: folder / f"run{number:03}" for number, job in enumerate(every)}

    def run(self) -> None:
        """Runs all jobs, two at a time: first those that others go on from, last pairs whose times count."""
        timed = [(pair.a, pair.b) for pair in self._chosen if pair.cause in TIMED]
        rest = [job for job in self._known if job not in {job for jobs in timed for job in jobs}]
        first = [job for job in rest if _option(job, "save")]
        for batch in (first, [job for job in rest if job not in first], *timed):
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(self._run, batch))

    def folder(self, job: Job) -> Path:
        """Where the files of a run are."""
        return self._known[job]

    def _run(self, job: Job) -> None:
        folder = self._known[job]
        if job.goes_on:
            _until_saved(self._known[saving(job)], folder)
        parallel, ranks = SETUPS[job.writer]
        ranks = job.ranks or ranks
        checkpoint = str(self._folder / f"checkpoint_{job.writer}")
        told = {"writer": job.writer, "parallel": parallel, "output-dir": str(folder), **dict(job.options)}
        arguments = [f"--{name}={checkpoint if value == 'SAVE' else value}" for name, value in told.items()]
        captured = [sys.executable, "-m", "rankscope.capture", "-o", str(folder / "dumps")]
        command = ["nice", "-n", "5", *captured, "-m", "benchmarks.pair_job"]
        outputs = self._folder / f"{folder.name}.out"
        outputs.mkdir()
        run_ranks([*command, *arguments], ranks, outputs, _environment(job.fault), LONGEST_JOB_S)


def saving(job: Job) -> Job:
    """The run from whose state a run goes on."""
    return changed(job, save="SAVE", load="")._replace(goes_on=False)


def _option(job: Job, name: str) -> str:
    return dict(job.options).get(name, "")


def _until_saved(saved: Path, folder: Path) -> None:
    """The log of a run up to its checkpoint: the resumed run appends to it, as Megatron's does."""
    folder.mkdir(parents=True)
    lines = (saved / "train.log").read_text().splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if f"iteration {SAVED_STEP + 1:8d}/" in line)
    (folder / "train.log").write_text("".join(lines[:last]))
    exact = (saved.parent / f"{saved.name}.jsonl").read_text().splitlines(keepends=True)
    (folder.parent / f"{folder.name}.jsonl").write_text("".join(exact[:SAVED_STEP]))


def _environment(fault: str) -> dict[str, str]:
    """What all ranks of a job on this machine are told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "PAIR_FAULT": fault,
    }  # fmt: skip


# What the reports say.


class Score(NamedTuple):
    """The answer on one pair."""

    pair: Pair
    said: str
    """"named", "one of", "wrong" or "nothing"."""
    first: str
    step: str
    """"exact", "wrong", or "" where no exact value is recorded."""
    operation: str
    rank: str
    exit_code: int


def report(a: Path, b: Path) -> tuple[dict[str, Any], int]:
    """The JSON report of `rankscope diff` on two folders, and its exit code."""
    command = [sys.executable, "-m", "rankscope", "diff", str(a), str(b), "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_JOB_S)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.decode())
    found: dict[str, Any] = json.loads(done.stdout)
    return found, done.returncode


def score(pair: Pair, a: Path, b: Path) -> Score:
    """What the report on a pair says of the planted cause."""
    found, code = report(a, b)
    causes = [tuple(one["kinds"]) for one in found["hypotheses"]]
    first = causes[0] if causes else ()
    if pair.cause == "identical":
        said = "named" if not found["differences"] else "wrong"
    elif first in ((pair.cause,), (pair.finer,)):
        said = "named"
    elif pair.cause in first and set(first) <= {pair.cause, *pair.allowed}:
        said = "one of"
    else:
        said = "wrong" if first else "nothing"
    ranks = found["hypotheses"][0].get("ranks", []) if causes else []
    return Score(
        pair, said, " or ".join(first) or found["headline"], _step(pair, found, a, b), _operation(pair, found, a, b),
        "" if pair.rank is None else "exact" if ranks == [pair.rank] else "wrong", code,
    )  # fmt: skip


def _step(pair: Pair, found: dict[str, Any], a: Path, b: Path) -> str:
    """Whether the first step that differs is told, in forms that write exact values."""
    if pair.cause in ("identical", "data-loader", "slow-rank") or pair.a.writer == "megatron":
        return ""
    told = next((one["step"] for one in found["differences"] if one["kind"] == "values-differ"), None)
    expected = first_step(a, b, EXACT[pair.a.writer])
    return "exact" if told == expected and pair.step in (None, expected) else f"wrong ({told}, not {expected})"


def first_step(a: Path, b: Path, names: Sequence[str]) -> int | None:
    """The first step of both runs in which one of these values differs in any bit."""
    ours, theirs = ({row["step"]: row for row in _rows(path)} for path in (a, b))
    both = sorted(ours.keys() & theirs.keys())
    return next((step for step in both if any(ours[step][name] != theirs[step][name] for name in names)), None)


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.parent / f"{folder.name}.jsonl").read_text().splitlines()]


def _operation(pair: Pair, found: dict[str, Any], a: Path, b: Path) -> str:
    """Whether the first operation that differs is told, by the dumps of rank 0 read here by torch's own form."""
    if pair.cause != "order" or pair.b.ranks:
        return ""
    expected = first_operation(a, b)
    told = next((one.get("operation") for one in found["differences"] if one["kind"] == "schedule-differs"), None)
    return "exact" if told == expected else f"wrong ({told}, not {expected})"


def first_operation(a: Path, b: Path) -> int | None:
    """The number of the first operation of rank 0 that has another name or other sizes."""
    ours, theirs = (_operations(path / "dumps" / "fr_trace_rank_0") for path in (a, b))
    return next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), None)


def _operations(dump: Path) -> list[tuple[str, list[list[int]]]]:
    """Names and sizes in a dump that a job of this benchmark wrote."""
    entries = pickle.loads(dump.read_bytes())["entries"]
    return [(one["profiling_name"], one["input_sizes"]) for one in entries]


# The table.


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all pairs, prints the scores, and writes them into results.md."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="causes, with commas between them")
    parser.add_argument("--keep", type=Path, help="a new folder for the runs, which stays")
    parser.add_argument("--again", type=Path, help="a folder of --keep, whose runs are compared again")
    asked = parser.parse_args(arguments)
    able = writable()
    chosen = [
        one
        for one in pairs(asked.seed)
        if one.a.writer in able and (not asked.only or one.cause in asked.only.split(","))
    ]
    folder = asked.again or asked.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        scores = _scores(chosen, folder, asked.again is not None)
    finally:
        if asked.keep is None and asked.again is None:
            shutil.rmtree(folder)
    text = _text(scores, asked.seed)
    publish("Causes in pairs of real runs", text, write=asked.write)


def _scores(chosen: Sequence[Pair], folder: Path, again: bool) -> list[Score]:
    runs = Runs(folder, chosen)
    if not again:
        runs.run()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: score(pair, runs.folder(pair.a), runs.folder(pair.b)), chosen))


def _text(scores: Sequence[Score], seed: int) -> str:
    causes = list(dict.fromkeys(one.pair.cause for one in scores))
    rows = []
    for cause in [*causes, "all"]:
        own = [one for one in scores if cause in ("all", one.pair.cause)]
        counts = [sum(one.said == said for one in own) for said in ("named", "one of", "wrong", "nothing")]
        exact = [_exact([getattr(one, name) for one in own]) for name in ("step", "operation", "rank")]
        rows.append([cause, len(own), *counts, *exact])
    head = ["cause", "pairs", "named first", "one of", "another", "nothing", "step", "operation", "rank"]
    wrong = [
        f"- {one.pair.cause}, {one.pair.b.writer}: {one.said}: {one.first}{_misses(one)}"
        for one in scores
        if _is_miss(one)
    ]
    return "\n".join([f"Seed {seed}. {machine()}", "", table(head, rows), "", "Misses:", *(wrong or ["- none"])])


def _exact(told: Sequence[str]) -> str:
    known = [one for one in told if one]
    return f"{sum(one == 'exact' for one in known)} of {len(known)}" if known else ""


def _misses(one: Score) -> str:
    told = {"step": one.step, "operation": one.operation, "rank": one.rank}
    return "".join(f"; {name} {text}" for name, text in told.items() if text not in ("", "exact"))


def _is_miss(one: Score) -> bool:
    return one.said in ("wrong", "nothing", "one of") or bool(_misses(one))


if __name__ == "__main__":
    run_program(main)
