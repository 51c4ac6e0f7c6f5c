"""Messages of allocators in each wording, and files of samples, whole and hostile."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from rankscope.assemble.load import LoadOptions, load
from rankscope.features.memory.memory_messages import OutOfMemory, read_out_of_memory
from rankscope.features.memory.memory_samples import decode_samples, samples_from
from rankscope.features.memory.rules.memory_peers import held_by_rank
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import NULL
from tests.memory_writer import sample_file

MIB, GIB = 1 << 20, 1 << 30
CUDA = "PYTORCH_CUDA_ALLOC_CONF"
WORDINGS = {
    "CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 8.00 GiB total capacity; 130.50 MiB already allocated; "
    "47.00 MiB free; 16.50 MiB cached)":
        OutOfMemory("cuda:0", 36 * MIB, 8 * GIB, 47 * MIB, None, 261 * MIB // 2, 33 * MIB // 2, CUDA, is_old=True),
    "RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB (GPU 7; 16.00 GiB total capacity; 2.00 GiB already "
    "allocated; 512 bytes free; 3.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try":
        OutOfMemory("cuda:7", 4 * GIB, 16 * GIB, 512, None, 2 * GIB, 3 * GIB, CUDA, is_old=True),
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacty of 32.00 "
    "GiB of which 1.00 GiB is free. Process 77 has 5.00 GiB memory in use. Including non-PyTorch memory, this process "
    "has 26.00 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, with 1.00 GiB allocated "
    "in private pools (e.g., CUDA Graphs), and 3.00 GiB is reserved by PyTorch but unallocated.":
        OutOfMemory("cuda:1", 2 * GIB, 32 * GIB, GIB, 26 * GIB, 20 * GIB, 23 * GIB, CUDA, others=((77, 5 * GIB),)),
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB. GPU 2 has a total capacity of 64.00 GiB "
    "of which 0 bytes is free. 32.00 GiB allowed; Of the allocated memory 31.00 GiB is allocated by PyTorch, and 8.00 "
    "MiB is reserved by PyTorch but unallocated. try setting PYTORCH_ALLOC_CONF=expandable_segments:True":
        OutOfMemory("cuda:2", 20 * MIB, 32 * GIB, 0, None, 31 * GIB, 31 * GIB + 8 * MIB, "PYTORCH_ALLOC_CONF",
                    limit=32 * GIB),
    "NPU out of memory. Tried to allocate 2.00 GiB (NPU 5; 60.00 GiB total capacity; 57.00 GiB already allocated; "
    "57.00 GiB current active; 1.00 GiB free; 58.00 GiB reserved in total by PyTorch)":
        OutOfMemory("npu:5", 2 * GIB, 60 * GIB, GIB, None, 57 * GIB, 58 * GIB, "PYTORCH_NPU_ALLOC_CONF"),
    "XPU out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 16.00 GiB. Of the allocated memory "
    "8.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.":
        OutOfMemory("xpu:0", 8 * GIB, 16 * GIB, None, None, 8 * GIB, 8 * GIB, ""),
    "DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.": OutOfMemory("host", 4096),
    "CUDA error: out of memory": None,
}  # fmt: skip


@pytest.mark.parametrize("text", WORDINGS)
def test_a_message_has_its_sizes(text: str) -> None:
    assert read_out_of_memory(text) == WORDINGS[text]


def test_samples_come_back_from_a_worker() -> None:
    read = decode_samples(sample_file(3, [{"device": "cuda:3", "allocated": 5, "capacity": 9}, {"device": "host"}]))
    back = samples_from(read.header(), memoryview(b"".join(read.body())), read.rows)
    assert (back.rank, back.devices, back.rows, back.problem) == (3, ["cuda:3", "host"], 2, None)
    assert back.numbers[4].tolist() == [5, NULL] and back.numbers[0].tolist() == [2, 3]


@pytest.mark.parametrize(
    "line",
    [b'{"time_ns": 1, "device": "\\u001b[31m"}', b'{"time_ns": -1, "device": "host"}', b"[" * 5000, b"\xff",
     b'{"time_ns": 1, "device": "host", "peak": 1e99}', b'{"time_ns": 1, "dev'],
)  # fmt: skip
def test_a_hostile_line_is_left_out_and_counted(line: bytes) -> None:
    read = decode_samples(sample_file(0, [{"device": "host", "reserved": 1}]) + line)
    assert read.rows == 1 and read.problem == "1 line that cannot be read"


def test_a_file_without_a_rank_is_no_record() -> None:
    with pytest.raises(NotThisKindError):
        decode_samples(json.dumps({"rankscope_memory": 1, "rank": -4}).encode())


def test_memory_events_of_a_trace_become_rows(tmp_path: Path) -> None:
    """The form of torch 2.13: instants among the spans; of many in a piece, those with most memory are kept."""
    span = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 10.0, "dur": 1.0}
    sizes = {"Bytes": 4, "Addr": 1, "Device Id": 3, "Device Type": 1, "Ev Idx": 5}
    events = [
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": 11.0 + at,
         "args": {**sizes, "Total Allocated": at % 500, "Total Reserved": 600}}
        for at in range(1000)
    ]  # fmt: skip
    events[500]["args"] = {"Total Allocated": "much", "Device Type": 0}
    info = {"rank": 2, "world_size": 4, "backend": "nccl"}
    document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": [span, *events]}
    (tmp_path / "trace.json").write_text(json.dumps(document))
    rows = load([tmp_path], LoadOptions(jobs=1)).memory
    assert rows["rank"].unique().to_list() == [2] and set(rows["device"]) == {"cuda:3", "host"}
    mine = rows.filter(pl.col("device") == "cuda:3")
    assert mine["allocated"].max() == 499 and mine["reserved"].max() == 600 and mine.height <= 2 * 64
    assert mine["time_ns"].is_sorted() and set(mine["source"]) == {"profiler"}
    # 999 of the device, the last of which says 499
    assert mine["samples"].sum() == 999 and mine["allocated"][-1] == 499


def test_the_last_memory_event_is_the_last_size_of_a_rank(tmp_path: Path) -> None:
    """Memory that rises, and is freed again before the trace ends; events stand in no order of time."""
    span = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 10.0, "dur": 1.0}
    sizes = [*range(0, 700 << 20, 7 << 20), *range(700 << 20, 3 << 20, -(7 << 20)), 12 << 20]
    events = [
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": 11.0 + at,
         "args": {"Device Id": 1, "Device Type": 1, "Total Allocated": size, "Total Reserved": 800 << 20}}
        for at, size in enumerate(sizes)
    ]  # fmt: skip
    document = {"schemaVersion": 1, "traceEvents": [span, events[-1], *events[:-1]]}
    (tmp_path / "rank4.json").write_text(json.dumps(document))
    (held,) = held_by_rank(load([tmp_path], LoadOptions(jobs=1)).memory).to_dicts()
    assert (held["samples"], held["peak"], held["last"]) == (len(events), 700 << 20, 12 << 20)
