"""Kernels that communicate without a process group, and devices that only names of processes tell."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from rankscope.features.traces.rows.trace_window import FORM, current_table, read_table
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.parsers.user_tables import TableError
from rankscope.schema import Dataset
from tests.features.traces.read.documents import (
    PID,
    START_US,
    Event,
    about,
    all_reduce,
    document,
    kernel,
    loaded,
    metadata,
    x,
)

COMMUNICATES = (
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, int)",
    "void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*, float*, int*, long*)",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int)",
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long, unsigned int**)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2, __half, 8>()",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(tensorrt_llm::kernels::AllReduceParams)",
    "two_shot_all_reduce_kernel",
    "void mscclpp::allreduce7<float>(float*, float*, float*)",
    "nvshmemi_transfer_rma_kernel",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "void mori::moe::EpDispatchIntraNodeKernel<bf16>(mori::moe::Args)",
)
COMPUTES = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp)",
    "void at::native::elementwise_kernel<128, 4>(int)",
    "void cub::DeviceReduceKernel<cub::Policy600>(int*, int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
    "triton_red_fused_all_mul_0",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
)


def categories(dataset: Dataset) -> dict[str, str]:
    """By name of a span its category."""
    return dict(dataset.spans.select(pl.col("name", "category").cast(pl.String)).iter_rows())


def test_kernels_that_communicate_are_told_from_those_that_compute(tmp_path: Path) -> None:
    events = [kernel(name, i * 100, 50, 70 + i) for i, name in enumerate((*COMMUNICATES, *COMPUTES))]
    dataset = loaded(tmp_path, {"a.json": document(events)})
    found = categories(dataset)
    assert [name for name in found if found[name] == "collective_comm"] == sorted(COMMUNICATES, key=list(found).index)
    step = TraceStory(dataset).analysis().steps.row(0, named=True)
    assert step["communication_ns"] == len(COMMUNICATES) * 50_000 and step["compute_ns"] == len(COMPUTES) * 50_000


def test_kernels_of_process_groups_stay_what_they_are(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, {"a.json": document(all_reduce(0, 1))})
    assert set(categories(dataset).values()) == {"cpu_op", "user_annotation", "cuda_runtime", "kernel"}


def test_a_user_s_table_adds_and_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [kernel("acme_exchange", 0, 5, 1), kernel("nvshmem_put", 9, 5, 2)]
    table = tmp_path / "kernels.tsv"
    table.write_text("id\tpattern\nacme\t^acme_ex\nnvshmem\tnothing_like_it\n")
    monkeypatch.setenv(FORM.variable, str(table))
    assert categories(loaded(tmp_path / "t", {"a.json": document(events)})) == {
        "acme_exchange": "collective_comm", "nvshmem_put": "kernel",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name\tpattern\n", "the first line names the columns"),
        ("id\tpattern\nx\t(\n", ":2: pattern: "),
        ("id\tpattern\nx\tk*\n", "fits every name"),
        ("id\tpattern\nx\n", "no pattern"),
        ("id\tpattern\nx\ty\tz\n", "3 cells for 2 columns"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(text: str, why: str, tmp_path: Path) -> None:
    table = tmp_path / "mine.tsv"
    table.write_text(text)
    with pytest.raises(TableError, match=f"mine.tsv.*{why}"):
        read_table(table)


def test_a_trace_says_which_table_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why, table = "fits every name", tmp_path / "mine.tsv"
    table.write_text("id\tpattern\nx\tk*\n")
    monkeypatch.setenv(FORM.variable, str(table))
    dataset = loaded(tmp_path / "t", {"a.json": document(all_reduce(0, 1), about(0))})
    assert why in dataset.files["problem"][0] and current_table()[1] in dataset.files["problem"][0]


def npu(name: str, ts: float, dur: float, thread: int, pid: int = 900) -> Event:
    """An event of a device as torch_npu writes it: times as text, no category, arguments first."""
    return {"name": name, "pid": pid, "tid": thread, "ts": f"{START_US + ts:.3f}", "dur": dur,
            "args": {"Task Type": "AI_CORE", "connection_id": 3}, "ph": "X"}  # fmt: skip


def test_devices_are_told_by_the_names_of_processes(tmp_path: Path) -> None:
    events = [
        x("cpu_op", "aten::mm", 0, 400), metadata("process_name", PID, 0, name="Python"),
        metadata("process_name", 900, 0, name="Ascend Hardware"), metadata("process_name", 901, 0, name="HCCL"),
        metadata("process_name", 902, 0, name="Overlap Analysis"), metadata("thread_name", 901, 8, name="Plane 0"),
        npu("MatMulV2", 10, 100, 3), npu("hcom_allReduce__5_1", 120, 60, 9),
        npu("hcom_allReduce__5_1", 120, 60, 7, 901), npu("Notify_Wait", 120, 60, 8, 901),
        npu("Computing", 10, 100, 1, 902),
    ]  # fmt: skip
    dataset = loaded(tmp_path, {"trace_view.json": document(events)})
    assert dataset.tracks.filter(pl.col("device").is_not_null())["device"].to_list() == [900, 900, 901]
    step = TraceStory(dataset).analysis().steps.row(0, named=True)
    assert step["compute_ns"] == 100_000 and step["communication_ns"] == 60_000


def test_streams_may_be_texts(tmp_path: Path) -> None:
    events = [
        x("Operator", "aten::mm", 0, 40, tid="493"), x("Kernel", "gemm", 10, 20, pid="GPU 1", tid="stream 7"),
        x("Kernel", "gemm", 50, 20, pid="GPU 1", tid="default"), x("Trace", "window", 0, 90, pid="Traces", tid="Trace"),
    ]  # fmt: skip
    dataset = loaded(tmp_path, {"a.json": document(events)})
    tracks = dataset.tracks.sort("lane")
    assert tracks["device"].to_list() == [1, None, 1] and tracks["lane"].to_list()[:2] == [7, 493]
    assert dataset.spans.height == 3
