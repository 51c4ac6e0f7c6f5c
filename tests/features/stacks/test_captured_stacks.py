"""Stacks that ranks take inside of themselves, and what a job of which all ranks stand still is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.assemble.load import load
from rankscope.features.stacks.captured_stacks import decode_captured
from rankscope.parsers.contents import NotThisKindError
from rankscope.report.redact import Redaction
from rankscope.report.text import render_text
from rankscope.schema.tables import AT_CRASH, AT_STANDSTILL
from tests.analysis.hosts import LOOP, RECV, REDUCE, Stack
from tests.builders import START_NS, JobBuilder

MAIN = """Thread 0x00007f0000000b80 (most recent call first):
  File "/ws/train.py", line 11 in load
  File "/ws/train.py", line 52 in <module>
"""
CLOCK = """Current thread 0x00007f00000006c0 (most recent call first):
  File "/lib/python3.11/threading.py", line 331 in wait
  File "/site/rankscope/capture/stall_clock.py", line 50 in run
  File "/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/lib/python3.11/threading.py", line 1002 in _bootstrap
"""
HELPER = """Thread 0x00007f00000007c0 (most recent call first):
  File "/ws/prefetch.py", line 3 in run
  File "/lib/python3.11/threading.py", line 1002 in _bootstrap
"""


def head(rank: int = 2, **facts: Any) -> str:
    told = {"rankscope_stacks": 1, "rank": rank, "world_size": 4, "host": "node07", "pid": 4711 + rank, **facts}
    return json.dumps(told) + "\n"


def taken(still_s: float = 61.0, **facts: Any) -> str:
    return head(time_ns=START_NS, reason="standstill", stall_after=60.0, still_s=still_s, **facts)


def functions(text: str, which: int = 0) -> list[list[str]]:
    """The names in each stack of a process, innermost first."""
    found = decode_captured(text.encode())
    return [
        [found.frames[i].function for i in found.stacks[thread.stack]]
        for thread in found.threads
        if thread.process == which
    ]


def test_a_standstill_has_a_rank_a_process_and_a_time() -> None:
    found = decode_captured((taken() + HELPER + "\n" + MAIN + "--\n").encode())
    (process,) = found.processes
    assert (process.rank, process.pid, process.tool, process.taken_ns) == (2, 4713, AT_STANDSTILL, START_NS)
    assert [(thread.name, thread.thread_id) for thread in found.threads] == [
        ("", 0x7F00000007C0), ("MainThread", 0x7F0000000B80),
    ]  # fmt: skip
    assert found.problem is None


def test_what_the_stack_does_not_print_stands_inside_of_it() -> None:
    text = taken(runs=False, calls="sleep", system_call="clock_nanosleep") + HELPER + "\n" + MAIN + "--\n"
    assert functions(text) == [["run", "_bootstrap"], ["clock_nanosleep", "sleep", "load", "<module>"]]
    assert [thread.active for thread in decode_captured(text.encode()).threads] == [None, False]


def test_who_is_ended_while_it_moves_stands_nowhere_still() -> None:
    assert decode_captured((taken(still_s=3.0) + MAIN).encode()).processes[0].tool == "faulthandler"


def test_what_faulthandler_writes_behind_it_is_another_moment() -> None:
    crash = "Fatal Python error: Segmentation fault\n\n"
    text = taken() + MAIN + "--\n" + CLOCK + "\n" + MAIN + crash + CLOCK + "\n" + MAIN + "\nExtension modules: numpy\n"
    found = decode_captured(text.encode())
    assert [(process.tool, process.later) for process in found.processes] == [
        (AT_STANDSTILL, 2), (AT_STANDSTILL, 1), (AT_CRASH, 0),
    ]  # fmt: skip
    # the threads of the capture are nobody's matter; the only other one holds the lock
    assert [functions(text, place) for place in range(3)] == [[["load", "<module>"]]] * 3
    assert [(thread.active, thread.gil) for thread in found.threads] == [(None, None), (True, True), (None, None)]


def test_a_rank_without_stacks_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "stacks_rank_2.txt").write_text(head())
    dataset = load([tmp_path])
    (row,) = dataset.files.select("kind", "rank", "problem").rows()
    assert row == ("captured-stacks", 2, None)
    assert dataset.threads.is_empty()


@pytest.mark.parametrize(
    "data", [b'{"rankscope_stacks": 1', b'{"rankscope_stacks": 1}\n', b'{"rankscope_stacks": 1, "rank": -1}']
)
def test_a_damaged_beginning_is_told(data: bytes) -> None:
    with pytest.raises(NotThisKindError):
        decode_captured(data)


def test_nothing_of_a_file_is_believed() -> None:
    wild = taken(calls=["x"], system_call={}, runs="yes", pid="me").replace("61.0", '"long"')
    long = "Thread 0x1 (most recent call first):\n" + '  File "a.py", line 1 in f\n' * 600
    found = decode_captured((wild + long + "\x1b[31m\n" + MAIN).encode())
    assert found.processes[0].tool == "faulthandler"
    assert len(found.stacks[found.threads[0].stack]) == 512
    assert all(thread.active in (None, True, False) for thread in found.threads)


def test_a_job_of_ranks_that_stand_still_is_read_as_one(tmp_path: Path) -> None:
    c10d = '  File "/site/torch/distributed/distributed_c10d.py", line 2799 in recv\n'
    for rank in range(3):
        stack = MAIN if rank == 1 else MAIN.replace("  File", c10d + "  File", 1)
        facts = {"calls": "sleep", "system_call": "clock_nanosleep"} if rank == 1 else {"calls": "wait"}
        told = head(rank, reason="standstill", time_ns=START_NS, stall_after=60.0, still_s=61.0, **facts)
        (tmp_path / f"stacks_rank_{rank}.txt").write_text(told + stack + "--\n")
    dataset = load([tmp_path])
    assert dataset.threads["rank"].to_list() == [0, 1, 2]
    assert dataset.threads["written_ns"].to_list() == [START_NS] * 3
    analysis = analyse(dataset)
    assert analysis.status == "hang"
    assert analysis.findings[0].culprit_ranks == analyse(Redaction().dataset(dataset)).findings[0].culprit_ranks == (1,)
    assert "HANG: rank 1 is sleeping, at load" in render_text(dataset, analysis).replace("\n", " ")


SLEEPS = (("clock_nanosleep", "(kernel)", 0), ("sleep", "(C)", 0), *LOOP)
WAITS = (("wait", "(C)", 0), *LOOP)


def stood(stacks: Mapping[int, Stack], tool: str = AT_STANDSTILL, after_s: int = 60) -> JobBuilder:
    """Ranks that have finished a collective and then stand still; no dump shows in what."""
    job = JobBuilder(len(stacks))
    job.collective()
    for rank, stack in stacks.items():
        job.thread(rank, stack, active=None, gil=None, tool=tool, written_ns=START_NS + after_s * 10**9)
    return job


def cause(job: JobBuilder) -> Finding | None:
    return next((f for f in analyse(job.build()).findings if f.root_cause), None)


def test_who_is_elsewhere_while_all_others_communicate_is_the_cause() -> None:
    found = cause(stood({0: RECV, 1: RECV, 2: SLEEPS, 3: REDUCE}))
    assert found is not None
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("missing-rank", (2,), (0, 1, 3))
    assert (found.confidence, analyse(stood({0: RECV, 1: SLEEPS}).build()).status) == ("medium", "hang")


def test_a_work_that_is_waited_for_is_communication() -> None:
    found = cause(stood({0: WAITS, 1: SLEEPS, 2: WAITS}))
    assert found is not None and found.culprit_ranks == (1,)


def test_who_may_wait_itself_is_only_a_suspect() -> None:
    several: list[Mapping[int, Stack]] = [{0: RECV, 1: LOOP, 2: RECV}, {0: RECV, 1: SLEEPS, 2: RECV, 3: SLEEPS}]
    for stacks in several:
        found = cause(stood(stacks))
        assert found is not None
        assert (found.culprit_ranks, found.candidates[:1], found.confidence) == ((), (1,), "low")


def test_ranks_that_all_wait_for_each_other_accuse_nobody() -> None:
    found = cause(stood(dict.fromkeys(range(4), RECV)))
    assert found is not None
    assert (found.kind, found.culprit_ranks, found.candidates) == ("stuck-in-collective", (), ())


def test_without_a_standstill_of_every_rank_stacks_prove_nothing() -> None:
    stacks = {0: RECV, 1: RECV, 2: SLEEPS}
    # ended while it moved; older than what the recorder shows; most ranks elsewhere; one rank untold
    assert cause(stood(stacks, "faulthandler")) is None
    assert cause(stood(stacks, after_s=-60)) is None
    assert cause(stood({0: RECV, 1: SLEEPS, 2: SLEEPS})) is None
    job = stood(stacks)
    job.threads.pop()
    assert cause(job) is None
