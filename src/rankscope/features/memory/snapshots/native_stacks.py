"""Places of allocations that no Python stands behind: the operator and the function of autograd, from frames of C++.

Backward runs in threads of its own, so its stacks hold the unwinder, the allocator, the dispatcher, the operator and
the engine. `torch/cuda/_memory_viz.py` (`_frame_filter`) leaves out the unwinder, the dispatcher and CPython.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.parsers.contents import StackFrame

MOST_NATIVE = 4
"""Most frames of a native stack without an operator."""
_CALLED = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\b")
_NATIVE = re.compile(r"\bat::native::(?:\(anonymous namespace\)::)?(\w+)(?=[(<]|$)")
_APPLIED = re.compile(
    r"\btorch::autograd::(?:generated::)?(?:\(anonymous namespace\)::)?(\w+)::(?:apply|operator\(\)|legacy_apply)\("
)
_COMMUNICATION = re.compile(r"\b(c10d::(?:\(anonymous namespace\)::)?\w+::\w+)(?=[(<]|$)")
_ENGINE = "torch::autograd::Engine::"
_ALLOCATES = re.compile(
    r"(?:new_)?(?:empty|zeros|ones|full)(?:_\w+)?|\w*_like(?:_\w+)?|resize\w*|clone|contiguous|copy_?|_?to(?:_\w+)?"
    r"|fill__\w+|zero_|alias|detach|view(?:_\w+)?|reshape"
)
"""Operators by which others get or fill their result."""
_LEFT_OUT = re.compile(
    r"unwind::unwind|CapturedTraceback::gather|gather_with_cpp|^_?start(?:_thread)?$|^__libc_start|^_?Py[A-Z_]|^THP"
    r"|Caching(?:Host)?Allocator|^at::detail::|^at::TensorBase at::detail::|^c10::|TensorIterator|create_out\("
    r"|set_output_raw_strided|torch::autograd::(?:Engine|python::PythonEngine|Node)::|torch::autograd::VariableType::"
    r"|^execute_native_thread_routine|^_*clone\d*$|^_*pthread_|^std::|^__\w+$|^\?*$"
)
_LEFT_OUT_FILES = re.compile(
    r"core/boxing|/?Register|/Redispatch|pythonrun\.c|Modules/main\.c|Objects/(?:call|methodobject)\.c|ceval\.[ch]"
    r"|cpython/abstract\.h"
)
_ARGUMENTS = re.compile(r"(?<=[^\s(])(?:\(|<).*", re.DOTALL)


def native_places(stack: Sequence[StackFrame]) -> list[StackFrame]:
    """The operator that allocated, and the function of autograd that called it, of frames of C++ with the innermost
    first; without either, the innermost frames that are neither the allocator's nor the engine's.

    They have a name and no file. Of operators, those that merely give others their memory stand behind.
    """
    called: list[str] = []
    native: list[str] = []
    applied = ""
    for frame in stack:
        if (call := _CALLED.search(frame.function)) is not None:
            called.append(call[1])
        elif (function := _NATIVE.search(frame.function)) is not None:
            native.append(function[1])
        elif (node := _APPLIED.search(frame.function)) is not None and node[1] != "Node":
            applied = node[1]
            break
    operator = next((name for name in called or native if not _ALLOCATES.fullmatch(name)), "")
    operator = operator or next(iter(reversed(called or native)), "")
    if operator and not applied and any(_ENGINE in frame.function for frame in stack):
        applied = "autograd engine"
    names = [name for name in (operator, applied) if name] or _others(stack)
    return [StackFrame(name, "", 0) for name in names]


def _others(stack: Sequence[StackFrame]) -> list[str]:
    """Names of the innermost frames that are no machinery, each once; of all machinery the innermost frame."""
    communication = [found[1] for frame in stack if (found := _COMMUNICATION.search(frame.function))]
    kept = [
        _ARGUMENTS.sub("", frame.function)
        for frame in stack
        if not _LEFT_OUT.search(frame.function) and not _LEFT_OUT_FILES.search(frame.file)
    ]
    return list(dict.fromkeys(communication or kept))[:MOST_NATIVE]
