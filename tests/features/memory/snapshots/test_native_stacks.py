"""Places of allocations of backward: the operator, the function of autograd, and the forward line if torch has it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import run
from rankscope.features.memory.snapshots.native_stacks import native_places
from rankscope.parsers.contents import StackFrame

MIB = 1 << 20
UNWINDER = (
    "torch::unwind::unwind()", "torch::CapturedTraceback::gather(bool, bool, bool)",
    "torch::cuda::(anonymous namespace)::gather_with_cpp()",
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long, CUstream_st*)",
    "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
    "at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)",
)  # fmt: skip
ENGINE = (
    "torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
    "torch::autograd::python::PythonEngine::thread_init(int, bool)", "execute_native_thread_routine", "__clone",
)  # fmt: skip


def backward(*called: str) -> list[dict[str, Any]]:
    """Frames of a thread of autograd."""
    names = (*UNWINDER, *called, *ENGINE)
    return [{"name": name, "filename": "thread48.o" if "routine" in name else "??", "line": 0} for name in names]


@pytest.mark.parametrize(("called", "place"), [
    # the operator that computes, not those by which it gets its memory
    (("at::_ops::empty_memory_format::call(c10::ArrayRef<long>)", "at::_ops::new_zeros::redispatch(at::Tensor const&)",
      "at::native::gather_backward(at::Tensor const&)", "at::_ops::gather_backward::call(at::Tensor const&)",
      "torch::autograd::generated::GatherBackward0_apply_functional(std::vector<at::Tensor>&&)",
      "torch::autograd::generated::GatherBackward0::apply(std::vector<at::Tensor>&&)"),
     ["gather_backward", "GatherBackward0"]),
    (("at::native::native_layer_norm_backward_cuda(at::Tensor const&)",
      "torch::autograd::generated::NativeLayerNormBackward0::apply(std::vector<at::Tensor>&&)"),
     ["native_layer_norm_backward_cuda", "NativeLayerNormBackward0"]),
    (("at::_ops::empty_like::call(at::Tensor const&)", "at::_ops::clone::call(at::Tensor const&)",
      "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"), ["clone", "AccumulateGrad"]),
    (("at::_ops::add_Tensor::call(at::Tensor const&)", "torch::autograd::InputBuffer::add(unsigned long)"),
     ["add_Tensor", "autograd engine"]),
])  # fmt: skip
def test_a_stack_of_backward_leads_to_its_function(called: tuple[str, ...], place: list[str]) -> None:
    frames = [StackFrame(frame["name"], frame["filename"], frame["line"]) for frame in backward(*called)]
    assert [frame.function for frame in native_places(frames)] == place


def test_a_stack_without_an_operator_leaves_out_the_machinery() -> None:
    frames = [StackFrame(name, "??", 0) for name in (*UNWINDER, "mylib::Cache::grow(unsigned long)", *ENGINE)]
    assert [frame.function for frame in native_places(frames)] == ["mylib::Cache::grow"]
    ring = [StackFrame(name, "??", 0) for name in (*UNWINDER, "c10d::ProcessGroupNCCL::allgather(at::Tensor&)")]
    assert [frame.function for frame in native_places(ring)] == ["c10d::ProcessGroupNCCL::allgather"]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_page_names_the_forward_line_of_backward(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    softmax = backward(
        "at::native::softmax_backward_cuda(at::Tensor const&)", "at::_ops::_softmax_backward_data::call(at::Tensor)",
        "torch::autograd::generated::SoftmaxBackward0::apply(std::vector<at::Tensor>&&)",
    )  # fmt: skip
    forward = [
        '  File "/job/run.py", line 8, in main\n    loss = net(x)\n',
        '  File "/job/attention.py", line 55, in scores\n    return x.softmax(-1)\n',
        '  File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 2, in softmax\n    ret = x\n',
    ]
    live = {"state": "active_allocated", "size": 96 * MIB, "requested_size": 96 * MIB, "address": 1 << 30}
    segment = {"device": 0, "total_size": 96 * MIB, "address": 1 << 30, "blocks": [{**live, "frames": softmax}]}
    event = {"action": "alloc", "addr": 1 << 30, "size": 96 * MIB, "frames": softmax, "time_us": 5}
    document = {"segments": [segment], "device_traces": [[{**event, "forward_frames": forward}]]}
    path = tmp_path / f"rank_0.{form}"
    path.write_bytes(pickle.dumps(document) if form == "pickle" else json.dumps(document).encode())
    assert run(["report", "--only", "memory", str(path), "-f", "json"]) == 0
    (first, second) = json.loads(capsys.readouterr().out)["devices"][0]["allocations"]
    lines = {one["at_peak"]: [(line["function"], line["line"]) for line in one["stack"]] for one in (first, second)}
    function = [("_softmax_backward_data", 0), ("SoftmaxBackward0", 0)]
    assert lines == {96 * MIB: [*function, ("scores", 55), ("main", 8)], 0: function}
