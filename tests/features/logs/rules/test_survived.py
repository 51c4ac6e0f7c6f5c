"""Exceptions that their process survived: nobody is accused for them, and those that end a process still are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

STACK = 'Traceback (most recent call last):\n  File "/job/{0}.py", line 8, in {1}\n    work()\n'
OOM = STACK.format("model", "forward") + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB."
WORK = "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600020 milliseconds"
SUMMARY = (
    "============================================================\ntrain.py FAILED\n"
    "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
    "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
    "  time      : 2026-06-14_22:36:10\n  host      : n1\n  rank      : {0} (local_rank: {0})\n"
    "  exitcode  : 1 (pid: 5{0})\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org\n"
    "============================================================\n"
)


def of(rank: int | None, text: str) -> str:
    """The lines of one rank, with its prefix."""
    front = "" if rank is None else f"[rank{rank}]: "
    return "".join(f"{front}{line}\n" for line in text.rstrip("\n").split("\n"))


def gave_up(*ranks: int) -> str:
    head = "[rank{0}]:[E626 06:24:44.90388{0}913 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective "
    return "".join(f"{head.format(r)}operation timeout: {WORK} before timing out.\n" for r in ranks)


def judged(tmp_path: Path, text: str, name: str = "job.log") -> Analysis:
    (tmp_path / name).write_text(text)
    return analyse(load([tmp_path / name]))


def suspects(analysis: Analysis) -> set[int]:
    """Every rank that any finding accuses or suspects."""
    return {rank for f in analysis.findings for rank in (*f.culprit_ranks, *f.candidates)}


SURVIVED = {
    "a finaliser": "Exception ignored in: <function Pool.__del__ at 0x7f12>\n" + STACK.format("pool", "__del__")
    + "ResourceWarning: unclosed running multiprocessing pool",
    "a generator": "Exception ignored in: <generator object Shards.read at 0x7f12>\n" + STACK.format("io", "read")
    + "RuntimeError: generator ignored GeneratorExit",
    "a finaliser of Python 3.14": "Exception ignored while calling deallocator <function Ring.__del__ at 0x7f1>:\n"
    + STACK.format("ring", "__del__") + "OSError: [Errno 9] Bad file descriptor",
    "the exit of threads": "Exception ignored on threading shutdown <module 'threading' from '/usr/threading.py'>:\n"
    + STACK.format("threading", "_shutdown") + "RuntimeError: cannot join thread",
    "a handler of atexit": "Error in atexit._run_exitfuncs:\n" + STACK.format("report", "flush") + "OSError: no route",
    "a message that cannot be formatted": "--- Logging error ---\n" + STACK.format("logging/__init__", "emit")
    + 'TypeError: not all arguments converted during string formatting\nCall stack:\n  File "/job/train.py", line 9, '
    "in <module>\n    main()\nMessage: 'rate %s'\nArguments: (1, 2)",
    "a memory error in a finaliser": "Exception ignored in: <function Buffer.__del__ at 0x7f1>\n"
    + OOM.replace("in forward", "in __del__"),
    "a warning of logging": "WARNING:shards:no cache, skipped\n" + STACK.format("cache", "read") + "EOFError: no",
    "a warning with a format": "2026-06-14 22:36:10,123 - shards - WARNING - reading failed\n"
    + STACK.format("cache", "read") + "zlib.error: incorrect header check",
    "a warning of vLLM": "WARNING 06-14 22:36:10 [cache.py:12] Failed to load the tuned kernel\n"
    + STACK.format("cache", "read") + "KeyError: 'sm_90'",
    "a warning of glog": "W0614 22:36:10.123456 4711 shards/cache.py:12] cannot read\n"
    + STACK.format("cache", "read") + "EOFError: no",
    "a warning of the program": "/job/cache.py:12: UserWarning: no cache: " + STACK.format("cache", "read")
    + "EOFError: no\n  warnings.warn(traceback.format_exc())",
    "a warning that is a traceback": "WARNING:root:" + STACK.format("cache", "read") + "EOFError: no",
    "another try": "download of shard 7 failed, retrying (attempt 1/5)\n" + STACK.format("io", "get")
    + "ConnectionError: HTTP 503",
    "steps behind it": "ERROR:train:bad sample\n" + STACK.format("data", "get") + "ValueError: empty\nstep 12 loss 2.5",
    "iterations of Megatron behind it": STACK.format("data", "get") + "ValueError: empty\n"
    " [2026-06-14 22:36:10] iteration       12/     100 | consumed samples:   96 | lm loss: 2.5E+00 |",
    "losses of a trainer behind it": STACK.format("data", "get") + "ValueError: empty\n{'loss': 2.5, 'epoch': 0.1}",
    "a chain with steps behind it": STACK.format("data", "get") + "KeyError: 'x'\n\nDuring handling of the above "
    "exception, another exception occurred:\n\n" + STACK.format("data", "get") + "ValueError: empty\nglobal_step=12",
    "a communicator behind it": STACK.format("data", "get") + "ValueError: empty\n"
    "n1:11:12 [2] NCCL INFO ncclCommInitRank comm 0x5581 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId a1 commId 0x77 - "
    "Init COMPLETE",
    "a collective behind it": "n1:11:12 [2] NCCL INFO ncclCommInitRank comm 0x5581 rank 2 nranks 4 cudaDev 2 nvmlDev "
    "2 busId a1 commId 0x77 - Init COMPLETE\n" + STACK.format("data", "get") + "ValueError: empty\n"
    "n1:11:12 [2] NCCL INFO AllReduce: opCount 1 sendbuff 0x7f recvbuff 0x7f count 8 datatype 7 op 0 root 0 comm "
    "0x5581 [nranks=4] stream 0x55",
}  # fmt: skip


@pytest.mark.parametrize("name", SURVIVED)
def test_what_a_rank_survived_accuses_nobody(name: str, tmp_path: Path) -> None:
    text = of(0, "step 11 loss 2.6") + of(2, SURVIVED[name])
    alone = judged(tmp_path, text)
    assert suspects(alone) == set(), [f.title for f in alone.findings]
    assert alone.status == "unknown"
    assert any("went on after" in f.title and f.severity == "info" for f in alone.findings)


@pytest.mark.parametrize("name", SURVIVED)
def test_what_a_rank_survived_does_not_hide_the_failure_of_another(name: str, tmp_path: Path) -> None:
    found = judged(tmp_path, of(2, SURVIVED[name]) + of(1, OOM) + gave_up(0, 2, 3))
    assert found.culprits == (1,)
    assert found.verdict.startswith("rank 1 failed: CUDA out of memory")
    assert suspects(found) == {1}


SKIPPED = {
    "its own words": of(1, "CUDA out of memory, skipping batch"),
    "a warning": "2026-11-26 06:50:17 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of "
    "memory. Tried to allocate 2 GiB\n2026-11-26 06:50:19 | INFO | train_inner | epoch 001: 5 / 100 loss=2.5\n",
    "steps of the same rank": of(1, "CUDA out of memory. Tried to allocate 9.00 GiB\nstep 5 loss 0.5"),
    "steps of all": "CUDA out of memory. Tried to allocate 9.00 GiB\nstep 5 loss 0.5\nstep 6 loss 0.4\nstep 7 loss 1\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_who_runs_out_of_memory_and_skips_the_batch_is_not_accused(name: str, tmp_path: Path) -> None:
    found = judged(tmp_path, SKIPPED[name])
    assert (suspects(found), found.status) == (set(), "unknown")
    assert "went on after" in found.findings[0].title


def test_a_warning_that_is_the_last_line_may_have_ended_its_process(tmp_path: Path) -> None:
    """Nothing behind it shows that the batch was skipped."""
    text = "\n".join(SKIPPED["a warning"].splitlines()[:1]) + "\n"
    found = judged(tmp_path, text)
    assert (found.status, found.findings[0].confidence) == ("failed", "medium")
    assert "out of memory" in found.verdict.lower()
    assert "it may have skipped the batch" in " ".join(found.findings[0].confidence_reasons)
    assert "went on" not in " ".join(f.title for f in found.findings)


@pytest.mark.parametrize("later", ["", "step 5 loss 0.5\ntorch.OutOfMemoryError: CUDA out of memory. Tried again"])
def test_who_runs_out_of_memory_and_does_nothing_more_is_accused(later: str, tmp_path: Path) -> None:
    first = of(1, f"CUDA out of memory. Tried to allocate 9.00 GiB\n{later}") + of(0, "step 5 loss 0.5")
    assert judged(tmp_path, first).culprits == (1,)


def test_steps_are_found_among_many_lines_of_many_streams(tmp_path: Path) -> None:
    """Other streams are no longer read once each has enough steps, and lines without a step never are."""
    noise = "".join(of(rank, f"step {step} loss 1\nsaved nothing") for step in range(99) for rank in (0, 2, 3))
    text = of(1, OOM) + noise + of(1, "step 98 loss 1")
    assert suspects(judged(tmp_path, text)) == set()
    assert judged(tmp_path, of(1, OOM) + of(0, "step 5 loss 1") * 900, "b.log").culprits == (1,)


def test_a_survivor_may_fail_later(tmp_path: Path) -> None:
    found = judged(tmp_path, of(3, SURVIVED["a finaliser"]) + of(3, OOM))
    assert (found.culprits, "CUDA out of memory" in found.verdict) == ((3,), True)


ENDED = {
    "an exception below an unlike warning": "WARNING:lr:the rate is 0.1\n" + STACK.format("a", "b") + "ValueError: odd",
    "the last of all attempts": "attempt 5/5 failed\n" + STACK.format("a", "b") + "ConnectionError: HTTP 503",
    "it says that it gives up": "retrying is over, giving up\n" + STACK.format("a", "b") + "ConnectionError: HTTP 503",
    "a progress bar that is closed": STACK.format("a", "b") + "ValueError: odd\n 12%|#   | 12/100 [00:10<01:10, 2it/s]",
    "the summary of a run": STACK.format("a", "b") + "ValueError: odd\nwandb: train/loss 2.5\nwandb: global_step 12",
    "a checkpoint in its teardown": STACK.format("a", "b") + "ValueError: odd\nSaving emergency checkpoint at step 12",
    "a finaliser behind it": STACK.format("a", "b") + "ValueError: odd\n" + SURVIVED["a finaliser"],
    "a handler of atexit behind it": STACK.format("a", "b") + "ValueError: odd\n" + SURVIVED["a handler of atexit"],
    "a hook that failed before it": "Error in sys.excepthook:\n" + STACK.format("hook", "hook") + "KeyError: 3\n\n"
    "Original exception was:\n" + STACK.format("a", "b") + "ValueError: odd",
    "it is printed again": "ERROR:train:stopped by an exception\n" + STACK.format("a", "b") + "ValueError: odd\n"
    + STACK.format("a", "b") + "ValueError: odd",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDED)
def test_what_ended_a_rank_accuses_it(name: str, tmp_path: Path) -> None:
    found = judged(tmp_path, of(0, "step 11 loss 2.6") + of(2, ENDED[name]) + gave_up(0, 1, 3))
    assert found.culprits == (2,), found.verdict
    assert "Error: " in found.verdict


def test_steps_that_come_out_late_do_not_acquit_a_rank_that_ended_with_an_error(tmp_path: Path) -> None:
    """Output that is kept back in a buffer comes behind the traceback."""
    text = of(2, STACK.format("a", "b") + "ValueError: odd\nstep 10 loss 2.5\nstep 11 loss 2.5")
    assert judged(tmp_path, text).culprits == ()
    found = judged(tmp_path, text + SUMMARY.format(2))
    assert (found.culprits, "ValueError: odd" in found.verdict) == ((2,), True)


def test_a_rank_takes_part_in_the_steps_of_others(tmp_path: Path) -> None:
    caught = of(2, STACK.format("a", "b") + "ValueError: odd")
    steps = "".join(of(0, f"step {number} loss 2.5") for number in range(12, 15))
    assert judged(tmp_path, caught + steps).culprits == ()
    found = judged(tmp_path, caught + steps + of(1, OOM) + gave_up(0, 2, 3))
    assert suspects(found) == {1}
    few = judged(tmp_path, caught + of(0, "step 12 loss 2.5"))
    assert few.culprits == (2,)
    # a buffer that is written while the job ends
    late = judged(tmp_path, caught + steps + SUMMARY.format(2))
    assert late.culprits == (2,)


def test_lines_without_prefixes_are_of_the_process_whose_function_they_name(tmp_path: Path) -> None:
    """Two processes write into one stream, line by line."""
    ignored = SURVIVED["a finaliser"].split("\n")
    failed = (STACK.format("model", "forward") + "ValueError: odd").split("\n")
    mixed = [ignored[0], failed[0], ignored[1], failed[1], failed[2], failed[3], *ignored[2:]]
    found = judged(tmp_path, "\n".join(mixed) + "\n")
    assert "ValueError: odd" in found.verdict


def test_the_line_above_is_read_among_many_others(tmp_path: Path) -> None:
    """Most lines of a long log are not read at all."""
    chat = "".join(of(rank, f"batch of {n} tokens") for n in range(40) for rank in range(4))
    found = judged(tmp_path, chat + of(1, SURVIVED["another try"]) + chat)
    assert suspects(found) == set()
    caught = judged(
        tmp_path, chat + of(1, STACK.format("a", "b") + "ValueError: odd") + chat + of(1, "step 9 loss 1.5")
    )
    assert suspects(caught) == set()
    failed = judged(tmp_path, chat + of(1, STACK.format("a", "b") + "ValueError: odd") + chat)
    assert suspects(failed) == {1}
