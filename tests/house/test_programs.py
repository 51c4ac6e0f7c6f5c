"""Each program outside the package answers `--help`, and runs with its smallest arguments, without writing results."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import numeric_layouts, numeric_plan, results, scale, trace_jobs
from benchmarks.child_processes import run_ranks

from rankscope.assemble.load import load
from tests.house.sources import circles

ROOT = Path(__file__).parents[2]
SAMPLE, TRACE = "sample_data/two_groups", "sample_data/slow_loader/rank0.pt.trace.json.gz"
LIMIT_S = 600.0
PROGRAMS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "docs", "packaging", "sample_data")
    for path in (ROOT / folder).glob("*.py")
    if '\nif __name__ == "__main__":\n' in path.read_text()
)
SMALLEST: dict[str, str] = {
    "benchmarks/accuracy.py": "--seeds 1 --faults host-stuck --kinds hook --processes 1",
    "benchmarks/dump_ways.py": f"{SAMPLE}/comm_lib_trace_rank_0 --times 1",
    "benchmarks/gloo_jobs.py": "--only",
    "benchmarks/init_speed.py": "--ranks 2 --times 1",
    "benchmarks/lane_frames.py": f"{SAMPLE} 1 --rounds 1",
    "benchmarks/log_memory.py": "--gb 0.001 --kinds operations",
    "benchmarks/log_speed.py": "--mb 16 --times 1",
    "benchmarks/make_dumps.py": "OUT 8 50",
    "benchmarks/make_numbers.py": "OUT --ranks 8 --steps 1",
    "benchmarks/make_traces.py": "OUT 1 0.1",
    "benchmarks/memory_snapshot.py": "0.1",
    "benchmarks/moments.py": "--seeds 1 --faults host-stuck --kinds hook --whens before --processes 1",
    "benchmarks/moving_job.py": f"{SAMPLE} OUT 0 1",
    "benchmarks/numbers_reading.py": "--ranks 8 --steps 1",
    "benchmarks/numeric_faults.py": "--faults",
    "benchmarks/one_cause_pairs.py": "--only none",
    "benchmarks/real_pairs.py": "--only none",
    "benchmarks/replay_forks.py": "--seeds 1 --faults wrong-op --processes 1",
    "benchmarks/replays.py": "--seeds 1 --modes full --faults wrong-op",
    "benchmarks/run_pairs.py": "--pairs 1 --only planted",
    "benchmarks/scale_ways.py": f"stages {SAMPLE}",
    "benchmarks/sessions.py": f"{SAMPLE} --times 1 --shares 1",
    "benchmarks/shifted_calls.py": "--seeds 1 --processes 1",
    "benchmarks/trace_accuracy.py": "--seeds 1 --worlds 4 --faults host --programs data --modes short --processes 1",
    "benchmarks/trace_frames.py": "1000",
    "benchmarks/trace_ways.py": f"'rankscope, first paint' {TRACE}",
    "benchmarks/update.py": "--ranks 128 --entries 5 --times 1",
    "benchmarks/watch.py": "--ranks 2 --entries 20 --every 1 --minutes 0.02",
    "benchmarks/whatif.py": "--jobs 1 --first 6 --causes link --processes 1",
    "docs/schemas.py": "--out OUT",
}
"""By program its smallest arguments; OUT is an empty folder."""
NOT_RUN = {
    "benchmarks/capture.py": "forks ranks that train: not from a process with threads",
    "benchmarks/gloo_job.py": "a rank of benchmarks/gloo_jobs.py",
    "benchmarks/healthy_memory.py": "a real job; tests/features/memory/rules/test_healthy_jobs.py runs it",
    "benchmarks/memory_job.py": "a rank of benchmarks/healthy_memory.py",
    "benchmarks/numbers_overhead.py": "forks ranks that train: not from a process with threads",
    "benchmarks/numeric_job.py": "a rank of benchmarks/numeric_faults.py",
    "benchmarks/numeric_layouts.py": "real jobs of up to 4 ranks; its plan is tested below",
    "benchmarks/one_cause_job.py": "a rank of benchmarks/one_cause_pairs.py",
    "benchmarks/one_file.py": "needs the file of `make pyz`, which needs a network",
    "benchmarks/pair_job.py": "a rank of benchmarks/real_pairs.py",
    "benchmarks/scale.py": "starts 40 reports and 20 apps at least; its plan is tested below, its parts are run above",
    "benchmarks/slow_link.py": "holds keys down for a minute",
    "benchmarks/trace_breakdown.py": "needs an interpreter that has Holistic Trace Analysis, and public traces",
    "benchmarks/trace_speed.py": "starts each way of benchmarks/trace_ways.py twice: 5 s; its parts are run above",
    "docs/screenshot.py": "draws ten pictures; tests/tui/test_golden.py compares them",
    "packaging/make_pyz.py": "needs a network; tests/house/test_packages.py tests what the file does",
    "packaging/man_pages.py": "needs click-man, of the extra `release`",
    "sample_data/make.py": "real jobs, each still for seconds; tests/jobs/test_samples.py makes one of them",
}
"""Programs of which only the arguments are tested, each with the reason."""


def program(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a program, as Python finds it when it is started."""
    monkeypatch.chdir(ROOT)
    if path.startswith(("benchmarks/", "docs/")):
        return importlib.import_module(path.removesuffix(".py").replace("/", "."))
    monkeypatch.syspath_prepend(ROOT / Path(path).parent)
    spec = importlib.util.spec_from_file_location(f"program_{Path(path).stem}", ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_is_run_or_has_a_reason() -> None:
    assert sorted([*SMALLEST, *NOT_RUN]) == PROGRAMS


@pytest.mark.parametrize("path", PROGRAMS)
def test_help(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program(path, monkeypatch).main(["--help"])
    assert (ended.value.code, capsys.readouterr().out[:7]) == (0, "usage: ")


def test_help_of_the_script(capfd: pytest.CaptureFixture[str]) -> None:
    assert subprocess.run(["bash", str(ROOT / "packaging" / "try.sh"), "--help"], check=False).returncode == 0
    assert capfd.readouterr().out.startswith("Whether an installed rankscope works: packaging/try.sh COMMAND...\n")


@pytest.mark.parametrize("path", SMALLEST)
def test_smallest_run(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.md")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    (tmp_path / "out").mkdir()
    words = [str(tmp_path / "out") if word == "OUT" else word for word in shlex.split(SMALLEST[path])]
    program(path, monkeypatch).main(words)
    assert capsys.readouterr().out or list((tmp_path / "out").iterdir())
    assert not (tmp_path / "results.md").exists()


def test_results_are_written_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.md")
    program("benchmarks/trace_frames.py", monkeypatch).main(["1000", "--write"])
    printed = capsys.readouterr().out
    assert (tmp_path / "results.md").read_text() == (
        f"# Benchmark results\n\n## Frames of the lanes of traces\n\n{printed}"
    )


@pytest.mark.parametrize("mode", trace_jobs.MODES)
@pytest.mark.parametrize("name", trace_jobs.PROGRAMS)
def test_traces_are_made_of_each_program_in_each_mode(name: str, mode: str) -> None:
    dataset = trace_jobs.make(trace_jobs.plan("host", 4, 7000), name, mode)
    assert dataset.world_size == 4 and dataset.traced.height > 0
    kernels = dataset.spans.height > 4 * 12
    assert kernels == (mode != "first-paint")


def test_made_dumps_are_those_of_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("benchmarks/make_dumps.py", monkeypatch).main([str(tmp_path), "8", "50"])
    dataset = load([tmp_path])
    assert (dataset.world_size, dataset.ops.height) == (8, 400)
    last = {rank: dataset.ops.filter(dataset.ops["rank"] == rank)["created_ns"].max() for rank in range(8)}
    assert len({value // 10**12 for value in last.values() if isinstance(value, int)}) == 1, "clocks agree"


def test_plans_of_programs_that_are_not_run() -> None:
    asked = scale.parser().parse_args(["--ranks", "8", "--huge", "128", "--traces-up-to", "8"])
    kinds = [(job.kind, job.ranks, job.entries, job.writer, job.tp) for job in scale.jobs(asked)]
    assert kinds == [
        ("dumps", 8, 2000, "legacy", 8), ("dumps", 64, 200, "legacy", 8), ("dumps", 64, 20_000, "legacy", 8),
        ("dumps", 256, 2000, "nccl2", 8), ("dumps", 256, 2000, "legacy", 2), ("dumps", 128, 200, "legacy", 8),
        ("logs", 8, 2000, "legacy", 8), ("traces", 8, 1000, "legacy", 8),
    ]  # fmt: skip
    assert {fault for faults in numeric_layouts.FAULTS.values() for fault in faults} <= set(numeric_plan.FAULTS)
    # loads much of torch, which few of the processes that collect tests need
    from benchmarks import real_pairs

    causes = [pair.cause for pair in real_pairs.pairs(1)]
    assert len(set(causes)) == 10 and min(causes.count(cause) for cause in set(causes)) >= 3


def test_nothing_here_imports_in_a_circle() -> None:
    names = {path.stem: path for path in (ROOT / "benchmarks").glob("*.py")}
    edges = {name: frozenset(_imported(path) & set(names)) for name, path in names.items()}
    assert circles(edges) == []


def _imported(path: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "").removeprefix("benchmarks.") for node in nodes}


STOPPED = """
import signal, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from benchmarks.child_processes import run_program, run_ranks

def job(number):
    run_ranks(["sleep", "600"], 2, Path(sys.argv[1]), {}, 600)

def main():
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(job, range(3)))

# whoever started this may ignore them
for number in (signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)
run_program(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ranks_end_with_a_program_that_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """Ranks are in sessions of their own, and threads that wait for them would start the jobs that come next."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        ranks = _until(lambda: _children(running.pid), 2)
        stopper = threading.Thread(target=_send_until_it_ends, args=(running, number))
        stopper.start()
        _, told = running.communicate(timeout=LIMIT_S)
        stopper.join()
    assert (running.returncode, told) == (128 + number, "")
    assert [rank for rank in ranks if _is_alive(rank)] == []


def _send_until_it_ends(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """A signal that comes right before the main thread waits for a lock is only noticed with the next one."""
    end = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        process.send_signal(number)
        time.sleep(1)


def _until(seen: Callable[[], list[int]], count: int) -> list[int]:
    end = time.monotonic() + LIMIT_S
    while len(seen()) < count and time.monotonic() < end:
        time.sleep(0.01)
    return seen()


def _children(pid: int) -> list[int]:
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_rank_that_fails_ends_the_job_and_is_told(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        test "$RANK" = 0 && exec sleep 600
        echo "rank $RANK of $WORLD_SIZE has no device"
        exit 3
    """)
    with pytest.raises(RuntimeError, match=r"ranks ended with \[None, 3\]; rank 1:\nrank 1 of 2 has no device"):
        run_ranks(["sh", "-c", script], 2, tmp_path, {}, LIMIT_S)


def test_a_job_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ranks ended with \[None\]; rank 0"):
        run_ranks(["sleep", "600"], 1, tmp_path, {}, 0.01)
