"""Ranks that compile again and again, alone, and what the others do meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from tests.builders import START_NS, JobBuilder
from tests.compiler_logs import GUARD, MS, CompilerLog, with_rows

KIND = "lone-compilation"


def found_in(analysis: Analysis) -> list[Finding]:
    """The findings on compilations."""
    return [f for f in analysis.findings if f.kind == KIND]


def traced(folder: Path, counts: dict[int, int], **metrics: Any) -> Analysis:
    """The analysis of structured logs, with so many recompilations of each rank."""
    for rank, count in counts.items():
        log = CompilerLog(rank)
        for number in range(count + 1):
            log.compile(f"0/{number}", at_ns=START_NS + number * 1000 * MS, **metrics)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(log.text())
    return analyse(load([folder]))


def stepping(late: int, steps: int = 6, wait_ms: int = 200) -> tuple[JobBuilder, list[int]]:
    """A job of three ranks whose rank `late` comes to each step later by some time; the times at which it does so."""
    job, starts = JobBuilder(3), []
    for _ in range(steps):
        starts.append(job.clock.get(late, START_NS) + MS // 2)
        end = job.clock.get(late, START_NS) + (2 + wait_ms) * MS
        job.collective(ranks=[rank for rank in range(3) if rank != late], completed_ns=end)
        job.collective(delay_ns=wait_ms * MS, ranks=[late], completed_ns=end)
        job.clock = dict.fromkeys(range(3), max(job.clock.values()))
    return job, starts


def compiling(late: int, starts: list[int], **more: Any) -> list[dict[str, Any]]:
    """Rows of the recompilations of a rank."""
    return [
        {"rank": late, "compile_id": f"0/{n}", "start_ns": at, "reason": GUARD.format(n, n + 1), **more}
        for n, at in enumerate(starts, 1)
    ]


def test_one_rank_that_compiles_alone(tmp_path: Path) -> None:
    analysis = traced(tmp_path, {0: 0, 1: 5, 2: 1})
    (found,) = found_in(analysis)
    assert analysis.status == "slow" and analysis.culprits == (1,)
    assert found.title == (
        f"rank 1 alone recompiles block (net.py:6) again and again (at least 5 times, 1.2 s in all): "
        f"{GUARD.format(8, 9)}"
    )
    assert found.confidence == "medium" and "at most 1 recompilation of it on the other 2 ranks" in found.explanation


@pytest.mark.parametrize("counts", [{0: 5, 1: 5, 2: 6}, {0: 0, 1: 2, 2: 0}, {0: 3, 1: 9, 2: 3}, {0: 9, 1: 9, 2: 0}])
def test_healthy_jobs_accuse_nobody(tmp_path: Path, counts: dict[int, int]) -> None:
    analysis = traced(tmp_path, counts)
    assert not found_in(analysis) and not analysis.suspects
    assert "nobody compiles alone" in analysis.verdict


def test_the_others_wait_in_the_next_collective() -> None:
    job, starts = stepping(late=2)
    analysis = analyse(with_rows(job.build(), compiling(2, starts, duration_ns=190 * MS)))
    (found,) = found_in(analysis)
    assert (found.culprit_ranks, found.waiting_ranks, found.root_cause) == ((2,), (0, 1), True)
    assert "In 5 of 5 recompilations that the dumps cover, ranks 0,1 had already issued" in found.explanation
    assert (found.op, found.seq, found.confidence) == ("all_reduce", 6, "medium")


def test_times_of_a_log_in_another_zone_are_moved() -> None:
    job, starts = stepping(late=2)
    hours = 8 * 3600 * 1000 * MS
    (found,) = found_in(analyse(with_rows(job.build(), compiling(2, [at + hours for at in starts]))))
    assert found.waiting_ranks == (0, 1)


def test_who_is_late_is_so_because_it_compiles() -> None:
    job, starts = stepping(late=2, steps=12)
    analysis = analyse(with_rows(job.build(), compiling(2, starts)))
    (found,) = found_in(analysis)
    late = next(f for f in analysis.findings if f.kind == "straggler")
    assert (late.caused_by, late.root_cause, analysis.verdict[:24]) == (found.id, False, "rank 2 alone recompiles ")


def test_without_a_wait_in_the_dumps_a_lone_log_only_makes_a_suspect() -> None:
    job, starts = stepping(late=2, wait_ms=0)
    analysis = analyse(with_rows(job.build(), compiling(2, starts)))
    (found,) = found_in(analysis)
    assert (found.candidates, found.culprit_ranks, found.confidence) == ((2,), (), "low")
    assert analysis.status != "slow" and not analysis.culprits


def hung(rank: int, **more: Any) -> Dataset:
    """A job that waits for a rank, which had begun to compile."""
    job = JobBuilder(3)
    for _ in range(4):
        job.collective()
    job.collective(ranks=[r for r in range(3) if r != rank], state="scheduled")
    row = {"rank": rank, "what": "compile", "compile_id": "3/0", "is_open": True, **more}
    return with_rows(job.build(), [row])


def test_an_absent_rank_that_compiles_may_come_yet() -> None:
    analysis = analyse(hung(1, start_ns=START_NS + 10_000 * MS))
    cause = analysis.cause
    assert cause is not None and cause.culprit_ranks == (1,) and cause.confidence != "high"
    assert cause.evidence[0].text.startswith("compiles block /ws/net.py:6 since ")
    assert "Dump again" in cause.next_steps[0] and "rank 1 was compiling" in cause.confidence_reasons[-1]


def test_a_compilation_before_the_last_operation_says_nothing() -> None:
    cause = analyse(hung(1, start_ns=START_NS - 10_000 * MS)).cause
    assert cause is not None and not any("compil" in text for text in (*cause.next_steps, *cause.confidence_reasons))


def test_a_rank_without_the_cache(tmp_path: Path) -> None:
    for rank in range(4):
        log, cold = CompilerLog(rank), rank == 3
        counts: dict[str, Any] = {f"inductor_fx_local_cache_{'miss' if cold else 'hit'}_count": 4}
        log.compile(
            seconds=60 if cold else 2, inductor_config=f'{{"fx_graph_cache": {"false" if cold else "true"}}}', **counts
        )
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(log.text())
    analysis = analyse(load([tmp_path]))
    (found,) = found_in(analysis)
    assert found.title.startswith(
        "rank 3 alone finds nothing in the cache of compiled code: up to 1 min of compilation"
    )
    assert analysis.culprits == (3,)
    other = next(f for f in analysis.findings if f.kind == "settings-mismatch")
    assert "inductor.fx_graph_cache false, most true" in other.title


WAITED = (
    "[rank{0}]:[E302 03:22:41.941975490 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600007 "
    "milliseconds before timing out."
)
HOOK = "[rank{0}]:V0302 03:12:4{1}.000000 81{0} torch/_dynamo/guards.py:3200] {2}[__recompiles]"
OLD = "[2024-03-02 03:12:4{1},074] [0/{1}] torch._dynamo.guards.__recompiles: [DEBUG]"


@pytest.mark.parametrize(
    ("front", "guard"),
    [(HOOK.format("{0}", "{1}", "[0/{1}] "), "0/0: L['n'] == 4"), (HOOK.format("{0}", "{1}", ""), "L['n'] == 4"),
     ("[rank{0}]:" + OLD, "L['n'] == 4")],
    ids=["2.5", "2.3", "2.2"],
)  # fmt: skip
def test_lines_of_logs(tmp_path: Path, front: str, guard: str) -> None:
    text = [WAITED.format(rank) for rank in (0, 2)]
    for number in range(1, 5):
        head = front.format(1, number)
        text += [
            f"{head} Recompiling function f in /a b/net.py:9",
            f"{head}     triggered by the following guard failure(s):",
        ]
        text += [f"{head}     - {guard}", f"{head}     - 0/7: another"]
    (tmp_path / "job.log").write_text("\n".join(text))
    dataset = load([tmp_path])
    rows = dataset.compilations.select("rank", "what", "function", "path", "code_line", "reason").unique().rows()
    assert rows == [(1, "recompile", "f", "/a b/net.py", 9, "L['n'] == 4")]
    assert dataset.compilations.height == 4 and dataset.compilations["start_ns"].null_count() == 0
    (found,) = found_in(analyse(dataset))
    assert found.candidates == (1,) and found.title.startswith("rank 1 recompiles f (net.py:9) again and again")


def test_the_limit_of_compilations_and_breaks_of_graphs(tmp_path: Path) -> None:
    front = "[rank6]:W0302 03:12:41.000000 813 torch/_dynamo/convert_frame.py:1016] [3/8]"
    text = f"{front} torch._dynamo hit config.recompile_limit (8)\n{front}    function: 'forward' (/ws/net.py:40)\n"
    text += f"{front}    last reason: 3/7: tensor 'x' size mismatch at index 1. expected 64, actual 65\n"
    broken = "[rank6]:V0302 03:12:41.000000 813 torch/_dynamo/symbolic_convert.py:611] [1/0] [__graph_breaks]"
    text += f"{broken} Graph break in user code at /ws/net.py:62\n{broken} Graph Break Reason: Unsupported\n"
    (tmp_path / "job.log").write_text(text + WAITED.format(0))
    dataset = load([tmp_path])
    limit, split = dataset.compilations.select("what", "function", "code_line", "reason").rows()
    assert limit == ("limit", "forward", 40, "tensor 'x' size mismatch at index 1. expected 64, actual 65")
    assert split == ("graph-break", "", 62, "Unsupported")
    (found,) = found_in(analyse(dataset))
    assert found.candidates == (6,) and "at least 8 times" in found.title


def test_a_log_of_one_rank_only_suspects_nobody(tmp_path: Path) -> None:
    front = "[rank3]:W0302 03:12:41.000000 813 torch/_dynamo/convert_frame.py:1016] [3/8]"
    (tmp_path / "job.log").write_text(f"{front} torch._dynamo hit config.recompile_limit (8)\n")
    analysis = analyse(load([tmp_path]))
    assert [f.kind for f in analysis.findings] == ["recompilation"] and not analysis.suspects
