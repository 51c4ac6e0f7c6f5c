"""Failed requests for memory, beside what the other ranks held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.memory_writer import GIB, sample_file

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 69.90 GiB memory in use. Of the "
    "allocated memory {} GiB is allocated by PyTorch, and {} GiB is reserved by PyTorch but unallocated. If reserved "
    "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
)
HOST = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)"
)


def judged(folder: Path, error: str, peers: float = 40.0, device: str = "cuda") -> tuple[Dataset, Analysis]:
    """A job of four ranks of which rank 3 fails with an error; the others hold `peers` GiB."""
    trace = 'Traceback (most recent call last):\n  File "/w/train.py", line 40, in <module>\n    main()\n'
    (folder / "job.log").write_text("".join(f"[rank3]: {line}\n" for line in (trace + error).splitlines()))
    for rank in range(4):
        size = int(peers * GIB)
        name = "host" if device == "host" else f"{device}:{rank}"
        row = {"device": name, "reserved": size, "allocated": size, "peak": size, "capacity": int(79.15 * GIB)}
        (folder / f"memory_rank_{rank}.jsonl").write_bytes(sample_file(rank, [row] * 3))
    dataset = load([folder])
    return dataset, analyse(dataset)


@pytest.mark.parametrize(
    ("allocated", "peers", "words"),
    [
        ("68.10", 40.0, "it is fuller than its peers"),
        ("68.10", 75.0, "all are at the edge, and any may fail first"),
        ("43.00", 42.0, "it does not stand out"),
    ],
)
def test_a_failed_request_is_held_against_the_peers(tmp_path: Path, allocated: str, peers: float, words: str) -> None:
    _, analysis = judged(tmp_path, MESSAGE.format(allocated, "0.30"), peers)
    found = analysis.findings[0]
    assert (found.kind, found.culprit_ranks) == ("rank-failed", (3,)) and words in found.explanation
    assert "Other processes hold 8" in found.explanation and "fragmentation" not in found.explanation


def test_fragmentation_has_its_setting(tmp_path: Path) -> None:
    dataset, analysis = judged(tmp_path, MESSAGE.format("52.00", "15.30"))
    kinds = [finding.kind for finding in analysis.findings]
    assert kinds[:2] == ["rank-failed", "memory-fragmented"] and analysis.findings[1].caused_by == "f1"
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in analysis.findings[0].next_steps[0]
    told = json.loads(render_json(dataset, analysis))["memory"]["ranks"]
    assert [(row["rank"], row["device"], row["peak"]) for row in told[:1]] == [(0, "cuda:0", 40 * GIB)]
    assert "## Memory of ranks" in render_markdown(dataset, analysis)
    assert "Memory of ranks, the fullest first\n   rank" in render_text(dataset, analysis)


def test_the_host_and_a_device_are_told_apart(tmp_path: Path) -> None:
    _, analysis = judged(tmp_path, HOST, 20.0, "host")
    found = analysis.findings[0]
    assert (
        found.culprit_ranks == (3,)
        and "It is memory of the host that ran out, not that of a device" in found.explanation
    )
