"""Ends of processes: what launchers, sidecars and the C++ runtime say of one process is one end, and who ended first
leads. The lines are those of torchrun and gloo of torch 2.13."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.collection_settings import backends_of, torch_version
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.sidecar import decode_sidecar
from rankscope.schema import Dataset
from tests.analysis.hosts import missing_one
from tests.builders import JobBuilder
from tests.features.logs.rows.job import source
from tests.features.logs.rules.processes import Processes, closed

PAIR = "/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"
SIZES = (
    f"[enforce fail at {PAIR}:456] op.preamble.length <= op.nbytes. {{}} vs {{}}. Received data size doesn't match "
    "expected size. Is there a distributed collective mismatch in your code?"
)
CLOSED = f"[{PAIR}:553] Connection closed by peer [127.0.0.1]:12438. This is typically caused by a remote worker crash"
REFUSED = f"[{PAIR}:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:48030$2"
RULE = "=" * 60


def uncaught(message: str, exception: str = "gloo::EnforceNotMet") -> list[str]:
    """What the C++ runtime prints of an exception that nobody caught."""
    return [f"terminate called after throwing an instance of '{exception}'", f"  what():  {message}"]


def raised(rank: int | None, message: str, exception: str = "RuntimeError") -> list[str]:
    lines = ["Traceback (most recent call last):", '  File "/srv/train.py", line 22, in step', "    dist.all_reduce(g)"]
    front = "" if rank is None else f"[rank{rank}]: "
    return [f"{front}{line}" for line in (*lines, f"{exception}: {message}")]


def saw(code: int, local: int, pid: int, agent: int = 2437, at: str = "09:32:30") -> str:
    """What the agent prints when it has ended all of its processes."""
    return (
        f"E1128 {at}.854000 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) "
        f"local_rank: {local} (pid: {pid}) of binary: /opt/venv/bin/python"
    )


def table(*ends: tuple[int, int], first: int = 100) -> list[str]:
    """The summary of torchrun of (rank, exit code); the first of them ended first. Process ids follow `first`."""

    def entry(number: int, rank: int, code: int) -> list[str]:
        return [
            f"[{number}]:", "  time      : 2026-11-28_09:32:30", "  host      : node7",
            f"  rank      : {rank} (local_rank: {rank})", f"  exitcode  : {code} (pid: {first + rank})",
            "  error_file: <N/A>", "  traceback : To enable traceback see: https://pytorch.org/docs",
        ]  # fmt: skip

    others = [line for number, end in enumerate(ends[1:], 1) for line in entry(number, *end)]
    return [
        RULE, "train.py FAILED", "-" * 60, "Failures:", *others, "-" * 60, "Root Cause (first observed failure):",
        *entry(0, *ends[0]), RULE,
    ]  # fmt: skip


def opened(*lines: str, more: tuple[SourceFile, ...] = (), attempt: int | None = None) -> Dataset:
    files = sorted([source("job.log", lines), *more], key=lambda file: file.shown)
    return assemble(files, "job", None, None, attempt)


def judged(*lines: str) -> Analysis:
    return analyse(opened(*lines))


def root(found: Analysis) -> Finding:
    (one,) = (f for f in found.findings if f.root_cause)
    return one


ABORT = uncaught(SIZES.format(1344, 1280))


def test_an_abort_without_a_rank_is_of_the_process_that_the_launcher_saw_abort() -> None:
    ends = table((1, -6), (0, -15), (2, -15))
    found = judged(*ABORT, *raised(2, CLOSED), saw(-6, 1, 101), *ends)
    assert (found.status, found.culprits, root(found).waiting_ranks) == ("failed", (1,), (0, 2))
    assert "the data sizes of two ranks do not fit: 1344 bytes came, 1280 were expected (job.log:1)" in found.verdict
    assert root(found).confidence == "medium"
    assert "the rank at the other end may be the one whose size is wrong" in root(found).confidence_reasons
    assert any("saw rank 1 end by SIGABRT" in e.text and e.line == 7 for e in root(found).evidence)
    rows = opened(*ABORT, saw(-6, 1, 101), *ends).messages
    assert rows.filter(pattern="gloo-size")["rank"].to_list() == [1]


def test_an_abort_is_of_the_only_process_that_did_not_note_its_end() -> None:
    made = Processes(4)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = analyse(made.dataset(more=(source("job.log", ABORT),)))
    assert found.culprits == (2,)
    assert "1344 bytes came" in found.verdict
    assert any("ranks 0,1,3 noted how they ended, and rank 2 did not" in e.text for e in root(found).evidence)


def test_a_process_id_of_a_sidecar_gives_the_rank() -> None:
    made = Processes(4)
    made.fail(closed(), 0, 3, at_s=5.01)
    found = analyse(made.dataset(more=(source("job.log", [*ABORT, saw(-6, 7, 102)]),)))
    assert found.culprits == (2,)


def test_several_that_got_too_much_are_only_candidates() -> None:
    found = judged(*ABORT, *ABORT, saw(-6, 1, 101), *table((1, -6), (2, -6), (0, -15), (3, -15)))
    assert (found.culprits, root(found).candidates) == ((), (1, 2))
    assert "which line is whose is not known" in root(found).confidence_reasons[0]


def test_one_abort_and_several_that_aborted_is_of_the_first() -> None:
    assert judged(*ABORT, *table((1, -6), (2, -6), (0, -15))).culprits == (1,)
    nameless = judged(*ABORT, *uncaught("bad file", "std::runtime_error"), *table((1, -6), (2, -6), (0, -6)))
    assert nameless.culprits == ()


def test_dumps_that_show_whose_size_is_wrong_outrank_the_rank_that_met_it() -> None:
    job = JobBuilder(4)
    # rank 1 aborts before it can write a dump
    job.no_dump = {1}
    for rank in (0, 2, 3):
        job.collective(ranks=[rank], state="scheduled", in_sizes=f"[[{1200 if rank == 2 else 1000}]]")
    message = SIZES.format(600, 500)
    job.message("abort", 1, exception="gloo::EnforceNotMet", message=message)
    job.known("gloo-size", 1, "root", f"what():  {message}")
    found = analyse(job.build())
    assert (root(found).kind, found.culprits) == ("size-mismatch", (2,))
    assert [f.caused_by for f in found.findings if f.kind == "rank-failed"] == [root(found).id]


def test_an_exception_of_a_watchdog_is_no_failure_of_its_rank() -> None:
    said = "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] "
    said += "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
    said += "NumelOut=1, Timeout(ms)=600000) ran for 600026 milliseconds before timing out."
    found = judged(*uncaught(said, "c10::DistBackendError"), *table((1, -6), (0, -15)))
    assert not any(f.kind == "rank-failed" for f in found.findings)


def test_any_exception_of_cpp_that_nobody_caught_names_its_rank() -> None:
    found = judged(*uncaught("cannot open shard 17", "std::runtime_error"), *table((1, -6), (0, -15)))
    assert (found.culprits, root(found).confidence) == ((1,), "high")
    assert "std::runtime_error: cannot open shard 17" in found.verdict


@pytest.mark.parametrize(
    ("code", "how"), [(3, "ended with exit code 3"), (-6, "ended by SIGABRT"), (1, "ended with exit code 1")]
)
def test_the_only_end_that_nothing_explains_is_the_cause(code: int, how: str) -> None:
    found = judged(*raised(1, CLOSED), *table((2, code), (0, -15), (1, -15), (3, -15)))
    assert found.culprits == (2,)
    assert found.verdict.startswith(f"rank 2 {how}, and the others lost their connection to it (job.log:")
    assert (root(found).confidence, root(found).waiting_ranks) == ("medium", (1,))


def test_of_two_ends_that_nothing_explains_neither_is_the_cause() -> None:
    assert judged(*raised(1, CLOSED), *table((2, 3), (0, 4), (1, 1))).culprits == ()
    # nobody was harmed
    assert judged(*table((2, 3), (0, -15), (1, -15))).culprits == ()


def test_an_exit_code_is_of_the_process_that_noted_its_end() -> None:
    made = Processes(4)
    made.issue(0, 1, 3)
    made.end(2, 5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = analyse(made.dataset(more=(source("job.log", [saw(7, 2, 102)]),)))
    assert "rank 2 came to the end of its program with exit code 7 while the others went on" in found.verdict


def test_a_rank_that_a_launcher_saw_end_is_not_one_without_a_record() -> None:
    made = Processes(4)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = analyse(made.dataset(more=(source("job.log", [saw(3, 2, 102)]),)))
    assert found.verdict.startswith("rank 2 ended with exit code 3, and the others lost their connection to it")


FULL_MESH = "Gloo connectFullMesh failed with "
WRAPPED = {
    "full mesh": raised(0, FULL_MESH + CLOSED),
    "in words": raised(0, f"step 7 failed: RuntimeError('{CLOSED}')", "trainer.StepError"),
    "on a line of its own": raised(None, f"step 7 failed:\n{CLOSED.replace('/pytorch/', '../', 1)}", "t.StepError"),
    "backend": raised(0, f"step 7 failed: {CLOSED}", "torch.distributed.DistBackendError"),
    "ray": [
        *raised(None, "ray::T.step() (pid=2345, ip=10.0.0.2, repr=<T>)", "ray.exceptions.RayTaskError(RuntimeError)"),
        '  File "/srv/train.py", line 8, in step',
        f"RuntimeError: {CLOSED}",
    ],
    "spawn": [*raised(None, "", "torch.multiprocessing.spawn.ProcessRaisedException"), "",
              "-- Process 1 terminated with the following error:", *raised(None, CLOSED)],
}  # fmt: skip


@pytest.mark.parametrize("how", WRAPPED)
def test_of_a_message_in_a_wrapper_the_message_decides(how: str) -> None:
    found = judged(*(part for line in WRAPPED[how] for part in line.split("\n")))
    assert [f for f in found.findings if f.root_cause] == []
    assert "the other end closed the connection" in found.verdict


def refused(*logs: tuple[int, str]) -> Analysis:
    files = [source(f"exception_rank_{rank}.log", raised(None, FULL_MESH + message)) for rank, message in logs]
    return analyse(assemble(files, "job", None, None, None))


def test_who_was_refused_leads_those_who_lost_their_connection_to_it() -> None:
    found = refused((0, CLOSED), (2, REFUSED))
    assert found.verdict.startswith("rank 2: a connection of gloo was refused (exception_rank_2.log:4)")
    (harm,) = (f for f in found.findings if f.severity == "critical")
    assert "The address was reached, and nobody listened there" in harm.explanation
    assert (harm.culprit_ranks, harm.candidates, harm.waiting_ranks) == ((), (), (0, 2))


def test_sidecars_with_an_error_in_a_wrapper_accuse_nobody() -> None:
    made = Processes(4, steps=0)
    for card in made.cards:
        card.dumps, card.groups = set(), []
    made.fail(RuntimeError(FULL_MESH + REFUSED), 2, at_s=8)
    made.fail(RuntimeError(FULL_MESH + CLOSED), 0, at_s=8.2)
    for rank in (1, 3):
        made.end(rank, 12, "terminated")
    for tracebacks in (True, False):
        found = made.analysis(tracebacks)
        assert [f.culprit_ranks for f in found.findings if f.severity == "critical" and f.culprit_ranks] == []


def test_an_exception_long_before_the_others_lost_its_rank_leads() -> None:
    job = missing_one(4, 2)
    job.message(
        "traceback", 2, "job.log", exception="ValueError", message="sample 4711", frames=[], causes=[], seconds=1
    )
    job.known("gloo-closed", 1, text="RuntimeError: Connection closed by peer", log="job.log", seconds=5)
    found = analyse(job.build())
    assert found.culprits == (2,) and "4711" in found.verdict


FIRST = [*raised(2, "CUDA error: device-side assert triggered"), *raised(0, CLOSED), saw(1, 2, 3257)]
SECOND = [
    *raised(None, FULL_MESH + REFUSED),
    saw(1, 0, 4000, at="09:41:41"),
    *table((0, 1), (2, 1), (1, -15), first=4000),
]


def test_attempts_in_one_log_are_judged_apart() -> None:
    found = judged(*FIRST, *SECOND)
    assert "a connection of gloo was refused" in found.verdict
    assert found.culprits == ()
    (earlier,) = (f for f in found.findings if f.kind == "earlier-attempt")
    said = "attempt 0 ended before this one: rank 2: RuntimeError: CUDA error: device-side assert triggered (job.log:1)"
    assert (earlier.title, earlier.severity, earlier.culprit_ranks, earlier.candidates) == (said, "info", (), ())
    assert opened(*FIRST, *SECOND).attempts.height == 2
    older = analyse(opened(*FIRST, *SECOND, attempt=0))
    assert older.culprits == (2,) and not any(f.kind == "earlier-attempt" for f in older.findings)


def test_agents_of_several_hosts_end_one_attempt() -> None:
    both = [*raised(2, "bad sample", "ValueError"), saw(1, 2, 300, agent=77), saw(1, 0, 800, agent=99)]
    assert opened(*both).attempts.is_empty()
    assert judged(*both, *table((2, 1), (0, 1))).culprits == (2,)
    again = [*raised(1, "no shard", "ValueError"), saw(1, 1, 301, agent=77), saw(1, 0, 801, agent=99)]
    assert judged(*both, *again).culprits == (1,)


def test_two_runs_of_torchrun_in_one_log_are_two_attempts() -> None:
    first = [*raised(2, "bad sample", "ValueError"), saw(1, 2, 102, agent=77), *table((2, 1), (0, -15), (1, -15))]
    second = [
        *raised(1, "no shard", "ValueError"),
        saw(1, 1, 901, agent=99),
        *table((1, 1), (0, -15), (2, -15), first=900),
    ]
    assert judged(*first, *second).culprits == (1,)
    assert analyse(opened(*first, *second, attempt=0)).culprits == (2,)
    # ranks of another host
    other = [*raised(5, CLOSED), saw(1, 1, 901, agent=99), *table((5, 1), (4, -15), first=900)]
    assert opened(*first, *other).attempts.is_empty()


def test_a_rank_that_prints_again_behind_its_end_is_another_process() -> None:
    later = raised(2, "no shard", "ValueError")
    assert opened(*FIRST, *later).attempts.height == 2
    assert "no shard" in judged(*FIRST, *later).verdict
    # of another rank it may be the same attempt on another host
    assert "device assert" in judged(*FIRST, *raised(5, CLOSED)).verdict


def restarted(first: int = 3255) -> tuple[Processes, tuple[SourceFile, ...]]:
    """The sidecars of two attempts; the processes of the first have ids from `first` on."""
    old, new = Processes(4, folder="earlier_1/"), Processes(4, start_s=100)
    for made, number, pid in ((old, 0, first), (new, 1, 4000)):
        for rank, card in enumerate(made.cards):
            card._fixed = {**card._fixed, "attempt": number, "pid": pid + rank}
    old.fail(RuntimeError("CUDA error: device-side assert triggered"), 2, at_s=5)
    return new, tuple(old.sources())


def test_a_log_that_holds_only_an_earlier_attempt_says_nothing_of_the_newest() -> None:
    new, old = restarted()
    for rank in (0, 1, 3):
        new.recorders[rank].collective("0", state="started")
    found = analyse(new.dataset(more=(*old, source("job.log", FIRST))))
    assert "device" not in found.verdict
    (earlier,) = (f for f in found.findings if f.kind == "earlier-attempt")
    assert "rank 2: RuntimeError: CUDA error: device-side assert triggered" in earlier.title
    files = sorted([*new.sources(), *old, source("job.log", FIRST)], key=lambda file: file.shown)
    assert analyse(assemble(files, "dumps", None, None, 0)).culprits == (2,)


def test_a_log_of_both_attempts_is_read_for_each() -> None:
    new, old = restarted()
    files = sorted([*new.sources(), *old, source("job.log", [*FIRST, *SECOND])], key=lambda file: file.shown)
    lines = {number: assemble(files, "dumps", None, None, number).messages for number in (0, 1)}
    ends = {number: set(rows.filter(kind="child-exit")["pid"]) for number, rows in lines.items()}
    assert ends == {0: {3257}, 1: {4000}}


def test_srun_tells_ends_of_tasks_that_are_ranks() -> None:
    ended = [f"srun: error: node7: task {task}: {how}" for task, how in ((2, "Exited with exit code 3"), (0, "Killed"))]
    known = [f"{rank}: [rank{rank}]: step done" for rank in range(4)]
    labelled = [f"1: {line}" for line in raised(1, CLOSED)]
    found = judged(*known, *labelled, *(f"3: {line}" for line in raised(3, CLOSED)), *ended)
    assert found.culprits == (2,)
    assert "rank 2 ended with exit code 3" in found.verdict


def test_an_exit_with_a_traceback_is_not_without_a_reason() -> None:
    found = judged(
        *raised(1, CLOSED), *raised(2, "NCCL error", "torch.distributed.DistBackendError"), *table((2, 1), (0, -15))
    )
    assert found.culprits == ()


def test_any_check_of_gloo_is_told_with_its_condition() -> None:
    check = (
        "[enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:208] rv != -1. -1 vs -1. Invalid argument"
    )
    found = judged(*uncaught(check), *raised(0, CLOSED), *table((1, -6), (0, -15)))
    assert found.culprits == (1,)
    assert "rank 1 failed: a check of gloo failed: rv != -1. -1 vs -1. Invalid argument (job.log:1)" in found.verdict
    assert "a check of gloo failed: rv != -1" in judged(*raised(3, check)).verdict


def test_headers_of_a_script_part_attempts() -> None:
    first, second = raised(2, "bad sample", "ValueError"), raised(1, "no shard", "ValueError")
    lines = ["=== attempt 1 ===", *first, "=== attempt 2 of 3 ===", *second]
    assert opened(*lines).attempts.height == 2
    assert judged(*lines).culprits == (1,)
    assert opened(*first, "connection attempt 2 failed", *second).attempts.is_empty()


def test_a_prefix_of_tee_gives_an_abort_its_rank() -> None:
    found = judged(*(f"[default1]:{line}" for line in ABORT), *table((1, -6), (2, -6), (0, -15)))
    assert found.culprits == (1,)
    assert "1344 bytes came, 1280 were expected" in found.verdict


def test_the_next_run_is_set_up_for_gloo_and_the_version_that_sidecars_have() -> None:
    lines = opened(*raised(1, CLOSED))
    assert (backends_of(lines), torch_version(lines)) == (("gloo",), None)
    told = {"rankscope_capture": 1, "rank": 0, "world_size": 2, "versions": {"torch": "2.13.0+cpu"}}
    ended = {"reason": "exception", "time_ns": 5, "error": f"RuntimeError: {CLOSED}"}
    card = decode_sidecar(json.dumps({**told, "ended": ended}).encode())
    noted = assemble([SourceFile("capture_rank_0.json", "sidecar", 1, None, None, card)], "dumps", None, None, None)
    assert (backends_of(noted), torch_version(noted)) == (("gloo",), (2, 13))
