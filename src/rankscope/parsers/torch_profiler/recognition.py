"""Recognition of Chrome traces, whoever wrote them, by the first keys of the document or of its first event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"')
_KEYS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|traceEvents|distributedInfo|baseTimeNanoseconds|displayTimeUnit|traceName'
    rb'|cupti_version|roctracer_version|systemTraceEvents|viztracer_metadata|highres-ticks)"\s*:'
)
_LIST = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}]{0,400}?(?:\{[^{}]{0,400}\}[^{}]{0,200}?)?"ph"\s*:')


def looks_like_trace(head: bytes) -> bool:
    """Whether the first bytes of a file can begin a trace."""
    if _DOCUMENT.match(head) is not None and _KEYS.search(head) is not None:
        return True
    return _LIST.match(head) is not None


# Programs that write the trace event format. A trace is torch's if it has a key, a category or a name that only torch
# writes; the text is searched until one is found, so that only other programs' files are searched to their end.

_TORCH = re.compile(
    rb'"(?:deviceProperties|distributedInfo|cupti_version|roctracer_version|rocprofiler-sdk_version|record_shapes'
    rb'|cuda_runtime_version|hip_runtime_version|with_modules)"\s*:|"schemaVersion"\s*:\s*\d'
    rb'|"cat"\s*:\s*"(?:cpu_op|user_annotation|gpu_user_annotation|python_function|cuda_runtime|cuda_driver|ac2g'
    rb"|fwdbwd|cpu_instant_event|xpu_runtime|mtia_runtime|privateuse1_runtime|async_npu|enqueue|dequeue|Operator"
    rb'|[Pp]ython function|HostToDevice)"'
    rb'|"name"\s*:\s*"(?:aten::|autograd::|c10d::|ProfilerStep#|record_param_comms|nccl:|gloo:|hccl:|Ascend Hardware'
    rb'|Iteration Start: PyTorch)|"CPU functions"'
)
"""Text that only torch's profiler writes, or one that it drives."""
_LIKE_TORCH = re.compile(rb'"cat"\s*:\s*"(?:[Kk]ernel|gpu_memcpy|gpu_memset|[Mm]emcpy|[Mm]emset|[Rr]untime)"')
"""Text that other programs may write, too."""
_WRITERS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("py-spy", rb'"cat"\s*:\s*"py-spy"'),
        ("viztracer", rb'"cat"\s*:\s*"(?:FEE|fee|viztracer)|"viztracer_metadata"'),
        ("JAX or XLA", rb'PjitFunction|"/device:(?:TPU|GPU|CUSTOM)|"/host:(?:CPU|metadata)|XlaModule|TfrtCpuClient'),
        ("TensorFlow", rb'"/job:[^"]{0,200}/task:|"cat"\s*:\s*"Op"'),
        (
            "the Chrome browser (DevTools)",
            rb'"cat"\s*:\s*"[^"]{0,200}(?:devtools|blink|disabled-by-default-|\bv8\b|__metadata|toplevel|loading)'
            rb"|Cr(?:Renderer|Browser|GpuMain|Utility)|TracingStartedInBrowser",
        ),
        (
            "torch.compile (tlparse)",
            rb'"cat"\s*:\s*"dynamo_timed"|"chromium_event"|"name"\s*:\s*"(?:dynamo|_compile\.)',
        ),
        ("Ray", rb'"cat"\s*:\s*"(?:task::|worker_idle|ray|submit_task|task:execute)'),
        ("Horovod", rb"NEGOTIATE_(?:ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL)"),
        ("NCCL's profiler plugin", rb'"cat"\s*:\s*"(?:GROUP|COLL|P2P|PROXY|NET|GPU)"'),
        ("ONNX Runtime", rb'"cat"\s*:\s*"(?:Session|Node|Api)"'),
        ("rocprof", rb'"(?:HIP_API|HSA_API|COPY|CPU HIP API|GPU[0-9]+)"|"BeginNs"|"rocprof'),
        ("Nsight Systems", rb"nsys|NVTX|\[CUDA mem"),
        ("Proton (Triton)", rb'"proton|"cat"\s*:\s*"(?:triton|scope)"'),
        ("clang's -ftime-trace", rb'"name"\s*:\s*"(?:ExecuteCompiler|Total ExecuteCompiler|ParseClass)"'),
        ("Bazel", rb'"cat"\s*:\s*"(?:build phase marker|general information|action processing)"'),
        (
            "pipeline stages (a simulator's, or a trainer's timers)",
            rb'"name"\s*:\s*"(?:forward|backward|fwd|bwd|F|B|W)[-_ ]?(?:compute|\d+)?"',
        ),
    )
)
_PADDLE = re.compile(rb'"span_indx"\s*:')
"""A key of PaddlePaddle's traces, which are else like torch's."""
_ANYBODY = "another program"
_HEAD = 1 << 16
_RANKED = re.compile(r"\[?rank ?\d{1,7}\]?(?: \(.*\))?", re.IGNORECASE | re.DOTALL)
_INSTEAD = "record each rank with torch.profiler, and give the traces that export_chrome_trace writes"


@dataclass
class TraceOrigin:
    """The program that wrote a trace, as far as its text tells."""

    torch: bool = False
    """Only torch's profiler writes so."""
    like_torch: bool = False
    writer: str = ""
    """Another program that writes so; "" if none is known."""
    other: str = ""
    """Another program that surely wrote it, although it writes what torch does."""

    def look(self, text: bytes) -> None:
        """Searches a part of the file; does nothing once torch is known."""
        if _PADDLE.search(text, 0, _HEAD) is not None:
            self.other = "PaddlePaddle"
        if self.torch or _TORCH.search(text) is not None:
            self.torch = True
            return
        self.like_torch = self.like_torch or _LIKE_TORCH.search(text) is not None
        self.writer = self.writer or next((name for name, pattern in _WRITERS if pattern.search(text)), "")

    def joined(self, other: TraceOrigin) -> TraceOrigin:
        """The origin of two parts of one file."""
        like_torch = self.like_torch or other.like_torch
        return TraceOrigin(
            self.torch or other.torch, like_torch, self.writer or other.writer, self.other or other.other
        )

    def foreign(self, processes: Sequence[str]) -> str | None:
        """The reason for the user why the file is no trace of one rank, with what to give instead; None if it is.

        `processes` are the names of its processes.
        """
        if processes and all(_RANKED.fullmatch(name) for name in processes):
            return (
                "holds traces of several ranks that were merged into one file, as `rankscope export` writes them: "
                "give the traces that it was made of"
            )
        if not self.other and (self.torch or (self.like_torch and not self.writer)):
            return None
        return f"a Chrome trace of {self.other or self.writer or _ANYBODY}, not of torch's profiler: {_INSTEAD}"
