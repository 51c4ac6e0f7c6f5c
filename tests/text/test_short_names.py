"""Short names of spans."""

from __future__ import annotations

import pytest

from rankscope.text.wording import short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::linear", "linear"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllReduce_Sum_f32_RING_LL"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "AllGather_RING_LL_Sum_int8_t"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
         "vectorized_elementwise_kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(int)",
         "cutlass_80_simt_sgemm_256x128_8x4_nt_align1"),
        ("model/attention.py(211): forward", "forward attention.py:211"),
        ("<built-in function sleep>", "built-in function sleep"),
        ("ProfilerStep#12", "ProfilerStep#12"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("cudaLaunchKernel", "cudaLaunchKernel"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
         "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        ("", ""), ("a\x1b[31mb", "a\\x1b[31mb"), ("void Kernel<>(int)", "Kernel"),
    ],
)  # fmt: skip
def test_what_says_most_is_kept(name: str, short: str) -> None:
    assert short_name(name) == short
