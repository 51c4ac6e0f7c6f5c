"""Lines of libraries above NCCL: DeepEP, and what other analysers printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

HOOK = "[rank{}]:V0302 03:12:4{}.000000 81{} torch/_dynamo/guards.py:3200] [{}/1] [__recompiles"
WAITED = (
    "[rank{}]:[E302 03:22:41.94197549{} ProcessGroupNCCL.cpp:689] [Rank {}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600007 "
    "milliseconds before timing out."
)


def read(tmp_path: Path, text: str, name: str = "job.txt") -> Analysis:
    """The analysis of one file."""
    (tmp_path / name).write_text(text)
    return analyse(load([tmp_path]))


def recompiles(rank: int, count: int) -> str:
    """What a rank prints that compiles a function again."""
    return "".join(
        f"{HOOK.format(rank, k % 10, rank, k)}] Recompiling function block in /ws/net.py:77\n"
        f"{HOOK.format(rank, k % 10, rank, k)}]     triggered by the following guard failure(s):\n"
        f"{HOOK.format(rank, k % 10, rank, k)}]     - 0/{k}: tensor 'h' size mismatch at index 0. expected 8, actual 7\n"  # noqa: E501
        for k in range(count)
    )


@pytest.mark.parametrize(
    ("line", "awaited"),
    [
        ("DeepEP timeout for combine receive, rank {}, local_expert_idx 3, src_rank 5", (5,)),
        ("Warning: DeepEP timeout for barrier, rank {}, dst_rank 5", (5,)),
        ("DeepEP timeout check failed: rank = {}, thread = 5, value = 1024)", (5,)),
        ("DeepEP timeout check failed: rank = {}, thread = 5, value = 0)", ()),
        ("DeepEP timeout for dispatch receivers, rank {}, responsible_channel = 2, tokens remained: 9", ()),
    ],
)
def test_ranks_that_gave_up_in_a_kernel_of_experts(tmp_path: Path, line: str, awaited: tuple[int, ...]) -> None:
    text = "".join(f"[rank{rank}]: {line.format(rank)}\n" * 4 for rank in (3, 1, 7))
    analysis = read(tmp_path, text + "[rank3]: RuntimeError: DeepEP error: timeout (dispatch CPU)\n")
    assert analysis.status == "hang" and not analysis.culprits
    first = analysis.findings[0]
    assert first.title.startswith("ranks 1,3,7 gave up waiting in ") and "DeepEP" in first.title
    assert (first.candidates, first.waiting_ranks) == (awaited, (1, 3, 7))
    assert len({e.rank for e in first.evidence}) == len(first.evidence) == 3


def test_ranks_of_another_node_are_counted_from_its_own_first(tmp_path: Path) -> None:
    line = "[rank{}]: DeepEP timeout check failed: rank = {}, thread = 2, value = 1024)\n"
    analysis = read(tmp_path, "".join(line.format(8 + rank, rank) for rank in (0, 1, 3)))
    assert analysis.findings[0].candidates == (10,)


def test_who_printed_no_timeout_of_experts_is_looked_for(tmp_path: Path) -> None:
    text = "[rank0]: DeepEP timeout for dispatch senders, rank 0, responsible_channel = 1\n"
    text += "[rank1]: DeepEP timeout for dispatch senders, rank 1, responsible_channel = 1\n"
    analysis = read(tmp_path, text + recompiles(2, 1))
    assert analysis.verdict.endswith("; rank 2 did not") and analysis.findings[0].candidates == (2,)


FR_TRACE = """Not all ranks joining collective, sequence number: {seq}
internal record id: 41
group info: 5:dp
collective: nccl:reduce_scatter_tensor_coalesced
missing ranks: {{6, 2}}
input sizes: [[4, 64]]
output sizes: [[8, 64]]
world size: 4
expected ranks: {{0, 2, 4, 6}}
collective state: scheduled
collective stack trace:{space}
 reduce_scatter at /x/torch/distributed/distributed_c10d.py:12
 step at /opt/job/train.py:80
"""


@pytest.mark.parametrize("space", ["", " "])
def test_the_output_of_torchfrtrace(tmp_path: Path, space: str) -> None:
    text = FR_TRACE.format(seq=19, space=space) + FR_TRACE.format(seq=20, space=space).replace("{6, 2}", "{4}")
    analysis = read(tmp_path, f"some line before\n{text}", "out")
    found = analysis.findings[0]
    assert (
        analysis.verdict
        == "torchfrtrace says that ranks 2,6 never joined reduce_scatter_tensor_coalesced #19 of dp (out:2)"
    )
    assert (found.candidates, found.severity, analysis.status) == ((2, 6), "warning", "unknown")
    assert [frame.function for frame in found.stack] == ["reduce_scatter", "step"]
    assert "also name rank 4" in found.explanation
    assert found.group is not None and found.group.ranks == (0, 2, 4, 6)


def test_errors_that_torchfrtrace_found(tmp_path: Path) -> None:
    text = "Collective sequence number: 3 has errors\ninternal record id: 2\ngroup info: 0:default_pg\n"
    text += "collective: nccl:all_reduce\nerror msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH\n"
    analysis = read(tmp_path, text)
    fits = "torchfrtrace says that rank 1 did not fit at all_reduce #3 of default_pg: collective type mismatch"
    assert analysis.verdict.startswith(fits)


def test_lines_with_time_and_level(tmp_path: Path) -> None:
    text = "Not all ranks joining collective, sequence number: 3\ngroup info: 0:default_pg\nmissing ranks: {2}\n"
    text = "".join(f"2026-02-03 09:15:20,123 [INFO] {line}\n" for line in text.splitlines())
    assert read(tmp_path, text).findings[0].candidates == (2,)


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "/venv/bin/torchfrtrace", line 8, in <module>\n    main()\n'
        '  File "/x/torch/distributed/flight_recorder/components/utils.py", line 706, in check\n'
        '    raise AssertionError(f"Missing dump files from ranks {missing}")\n'
        "AssertionError: Missing dump files from ranks {3, 1}\n",
        "We cannot decide what's wrong with this collective entry because we missed FR dumps from ranks ({1, 3}) so we "
        "don't have enough information. If you want to debug further use -j to dump all raw trace\n",
    ],
)
def test_dumps_that_torchfrtrace_did_not_find(tmp_path: Path, text: str) -> None:
    analysis = read(tmp_path, text, "fr.log")
    assert analysis.verdict.startswith("torchfrtrace says that it had no dump of ranks 1,3")
    assert not analysis.culprits and not any(f.candidates for f in analysis.findings)


@pytest.mark.parametrize(
    "row",
    [
        "all_reduce(input_sizes=[[1024, 1024]], state=completed)  all_reduce(input_sizes=[[8]], state=scheduled)",
        "Rank 1 does not have a coalesced end.", "  send(s=0 d=1, input_sizes=[[8, 4096]], state=scheduled)",
    ],
)  # fmt: skip
def test_tables_of_torchfrtrace_accuse_nobody(tmp_path: Path, row: str) -> None:
    analysis = read(tmp_path, f"Rank 0    Rank 1\n-------   -----\n{row}\n")
    assert analysis.verdict.startswith("torchfrtrace says that ranks have these entries")
    assert "flight recorder dumps" in analysis.findings[0].next_steps[0]
    assert not any(f.candidates for f in analysis.findings)


ENGINE = "(EngineCore_DP0 pid=395) {} 07-12 02:4{}:01 [{}] {}"


def test_an_engine_that_gave_up_on_its_workers_hangs(tmp_path: Path) -> None:
    lines = [
        ENGINE.format(
            "INFO", 0, "shm_broadcast.py:7", "No available shared memory broadcast block found in 60 seconds."
        ),
        ENGINE.format("ERROR", 1, "core.py:800", "Traceback (most recent call last):"),
        ENGINE.format("ERROR", 1, "core.py:800", '  File "/x/vllm/v1/executor/multiproc_executor.py", line 3, in get'),
        ENGINE.format("ERROR", 1, "core.py:800", "    raise TimeoutError(x)"),
        ENGINE.format("ERROR", 1, "core.py:800", "TimeoutError: RPC call to execute_model timed out."),
    ]
    analysis = read(tmp_path, "\n".join(lines) + "\n", "serve.txt")
    assert analysis.status == "hang" and analysis.verdict.startswith("process 395 gave up waiting")
    assert not analysis.culprits


@pytest.mark.parametrize("ranks", ["[4, 9]", "{4, 9}", "4,9"])
def test_the_ranks_of_an_attribution_of_nvrx(tmp_path: Path, ranks: str) -> None:
    analysis = read(tmp_path, f"PGID | Missing Ranks\n0 | 4\nhanging ranks: {ranks}\n")
    assert analysis.verdict.startswith("the attribution of NVRx says that ranks 4,9 hang")
    assert not analysis.culprits


def test_clients_that_did_not_come(tmp_path: Path) -> None:
    line = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/8 clients joined."
    analysis = read(tmp_path, f"ERROR 09-01 02:20:44 [engine.py:458] {line}\n[rank0]: {line}\n", "serve.log")
    assert "not all processes came to the rendezvous" in analysis.verdict and not analysis.culprits
