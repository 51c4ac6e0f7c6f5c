"""Whether `rankscope diff` names the one thing in which two real runs differ, and calls equal runs equal.

Run from the root of the repository: `python -m benchmarks.one_cause_pairs [--busy 4] [--only lr,seed] [--keep DIR]
[--again DIR]`. It needs torch and git. Each run is a job of two gloo ranks (`benchmarks.one_cause_job`), recorded by
the command of docs/diff.md; a pair is compared twice, by what that command left and by the log alone. `--busy` keeps
the machine busy with so many processes besides.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_processes import run_program, run_ranks
from benchmarks.results import machine, program_parser, publish, table

JOB = Path(__file__).with_name("one_cause_job.py")
LONGEST_JOB_S = 300
RECORD = ("-m", "rankscope.capture", "--numbers", "every=50", "-o")
"""The command of docs/diff.md, before the directory and the script."""
UNTOLD = "untold"
"""The id of the answer that nothing recorded tells the cause."""
OPTIONLESS = (UNTOLD, "none")


class Job(NamedTuple):
    """One run."""

    name: str
    options: tuple[str, ...] = ()
    ranks: int = 2
    threads: int = 1
    hidden: str = ""
    """What stands in the code instead of the line that is marked there."""
    kernels: str = ""
    """The version of a package that the job imports."""


class Pair(NamedTuple):
    """Two runs, and the kinds of cause that a report may name first."""

    cause: str
    a: Job
    b: Job
    by_record: tuple[str, ...]
    by_log: tuple[str, ...]
    """The same, of a log alone; `OPTIONLESS` where it cannot tell."""


BASE = Job("base")


def pairs() -> Iterator[Pair]:
    """One pair of each cause, and three of equal runs."""

    def optional(cause: str, *options: str, kinds: tuple[str, ...] = ()) -> Pair:
        kinds = kinds or (cause,)
        return Pair(cause, BASE, BASE._replace(name=cause, options=options), kinds, kinds)

    yield optional("lr", "--lr=2.1e-3")
    yield optional("seed", "--seed=2")
    yield optional("dropout", "--dropout=0.1")
    yield optional("precision", "--precision=bf16")
    yield optional("optimizer", "--beta2=0.95")
    yield optional("accumulation", "--grad-accum=4")
    yield optional("data", "--data-seed=2")
    yield optional("initial-values", "--init-std=0.03")
    yield optional("order", "--bucket-cap-mb=0.02")
    yield Pair("code", BASE, BASE._replace(name="code", hidden="LOSS_SCALE = 1.003"), ("code",), ("scale",))
    yield Pair("kernel", BASE, BASE._replace(name="kernel", threads=2), ("kernel",), (*OPTIONLESS, "kernel"))
    yield Pair("world-size", BASE, BASE._replace(name="world", ranks=1), ("world-size",), OPTIONLESS)
    old = BASE._replace(name="old", kernels="1.0")
    yield Pair("version", old, old._replace(name="new", kernels="1.1"), ("version",), OPTIONLESS)
    for number in range(3):
        again = BASE._replace(name=f"again{number}")
        yield Pair("equal", BASE, again, (), ())


# Running jobs.


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps so many processes computing."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def run_job(job: Job, folder: Path) -> None:
    """Runs a job in a repository of its own; its record goes to `folder/dumps`, its log to `folder/train.log`."""
    source = folder / "repository"
    source.mkdir(parents=True)
    text = JOB.read_text()
    _commit(source, text)
    if job.hidden:
        marked = next(line for line in text.splitlines() if line.endswith("# OTHER") and line.startswith("LOSS"))
        _commit(source, text.replace(marked, job.hidden))
    packages = folder / "packages"
    if job.kernels:
        _write_package(packages, job.kernels)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([*([str(packages)] if job.kernels else []), os.environ.get("PYTHONPATH", "")])
    environment = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(job.threads),
        "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path,
    }  # fmt: skip
    outputs = folder / "outputs"
    outputs.mkdir()
    own = ["--output-dir", str(folder / "out"), *job.options]
    command = [sys.executable, *RECORD, str(folder / "dumps"), str(source / "train.py"), *own]
    run_ranks(command, job.ranks, outputs, environment, LONGEST_JOB_S)
    shutil.copy(outputs / "output_0", folder / "train.log")


def _commit(source: Path, text: str) -> None:
    (source / "train.py").write_text(text)
    # the same names and times, so that equal code is one commit
    fixed = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"), ("DATE", "2024-01-01T00:00:00Z"))
    }
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
        subprocess.run(["git", "-C", str(source), *arguments], check=True, env={**os.environ, **fixed})


def _write_package(folder: Path, version: str) -> None:
    """A package whose versions approximate an activation differently."""
    approximate = "none" if version == "1.0" else "tanh"
    folder.mkdir()
    (folder / "small_kernels.py").write_text(
        "from functools import partial\nfrom torch.nn.functional import gelu\n"
        f"__version__ = {version!r}\nactivation = partial(gelu, approximate={approximate!r})\n"
    )


# What the reports say.


class Score(NamedTuple):
    """The answer on one pair."""

    pair: Pair
    way: str
    said: str
    """"right", "untold" or "wrong"."""
    first: str


def score(pair: Pair, way: str, a: Path, b: Path) -> Score:
    """What the report on a pair says of its cause; `way` is "record" or "log"."""
    name = "dumps" if way == "record" else "train.log"
    command = [sys.executable, "-m", "rankscope", "diff", str(a / name), str(b / name), "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_JOB_S)
    if done.returncode not in (0, 1):
        return Score(pair, way, "wrong", done.stderr.decode().strip()[-200:])
    found: dict[str, Any] = json.loads(done.stdout)
    first = found["hypotheses"][0]["id"] if found["hypotheses"] else "none"
    kinds = tuple(found["hypotheses"][0]["kinds"]) if found["hypotheses"] else ()
    if pair.cause == "equal":
        return Score(pair, way, "wrong" if found["differences"] else "right", found["headline"])
    expected = pair.by_record if way == "record" else pair.by_log
    if len(kinds) == 1 and kinds[0] in expected:
        return Score(pair, way, "right", first)
    # an answer without a kind says that digits, or what is recorded, do not tell
    return Score(pair, way, "wrong" if kinds else "untold", first)


def scores(chosen: Sequence[Pair], folder: Path) -> list[Score]:
    """The answers on pairs, whose runs are in the folder."""
    asked = [(pair, way, folder / pair.a.name, folder / pair.b.name) for pair in chosen for way in ("record", "log")]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: score(*one), asked))


def summary(results: Sequence[Score]) -> str:
    """The table of the answers."""
    rows = []
    for cause in dict.fromkeys(one.pair.cause for one in results):
        own = {way: [one for one in results if one.pair.cause == cause and one.way == way] for way in ("record", "log")}
        rows.append([cause, *(_told(own[way]) for way in own)])
    return table(["differs in", "recorded", "log alone"], rows)


def _told(own: Sequence[Score]) -> str:
    count: Mapping[str, int] = {said: sum(one.said == said for one in own) for said in ("right", "untold", "wrong")}
    if len(own) > 1:
        return f"{count['right']} of {len(own)} called equal"
    return f"{own[0].said}: `{own[0].first}`"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all pairs, prints the answers, and writes them into results.md."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the machine busy besides")
    parser.add_argument("--only", default="", help="causes, with commas between them")
    parser.add_argument("--keep", type=Path, help="a new folder for the runs, which stays")
    parser.add_argument("--again", type=Path, help="a folder of --keep, whose runs are compared again")
    asked = parser.parse_args(arguments)
    chosen = [pair for pair in pairs() if not asked.only or pair.cause in asked.only.split(",")]
    folder: Path = asked.again or asked.keep or Path(tempfile.mkdtemp())
    try:
        if asked.again is None:
            jobs = dict.fromkeys(job for pair in chosen for job in (pair.a, pair.b))
            with busy(asked.busy), ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda job: run_job(job, folder / job.name), jobs))
        results = scores(chosen, folder)
    finally:
        if asked.keep is None and asked.again is None:
            shutil.rmtree(folder)
    how = f"with {asked.busy} busy processes besides" if asked.busy else "with no work besides"
    publish("One cause", f"Recorded {how}. {machine()}\n\n{summary(results)}", write=asked.write)


if __name__ == "__main__":
    run_program(main)
