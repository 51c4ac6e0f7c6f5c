"""Names of spans, short enough for a cell of the screen and long enough to be known again."""

from __future__ import annotations

import re
from functools import lru_cache

from rankscope.report.escape import plain

_WRAPPERS = ("Kernel", "Kernel2", "device_kernel", "kernel", "GemmUniversal")
"""Names of templates that say nothing: their first argument is the name."""
_ARGUMENT = re.compile(r"<\s*([A-Za-z_]\w*)", re.ASCII)
_CPP = re.compile(r"void .*|[\w:~]+(?:<.*>)?\(.*\)|[\w:~]+<.*>", re.ASCII)
_NCCL = re.compile(r"(nccl\w*?Kernel)_(\w+)", re.ASCII)


@lru_cache(4096)
def short_name(name: str) -> str:
    """`void at::native::reduce_kernel<512, ...>(...)` is "reduce_kernel"; names that are no C++ stay as they are."""
    text = plain(name, 400)
    if match := _NCCL.match(text):
        return match[2]
    if re.match(r".*\.py\(\d+\): ", text):
        file, _, function = text.partition(": ")
        return f"{function} {file.rpartition('/')[2].replace('(', ':').rstrip(')')}"
    if text.startswith("<"):
        return text.strip("<>")
    if not _CPP.fullmatch(text):
        return text.removeprefix("aten::")
    bare = re.split(r"[<(]", text.removeprefix("void ").removeprefix("(anonymous namespace)::"), maxsplit=1)[0]
    last = bare.rpartition("::")[2]
    if last in _WRAPPERS and "<" in text:
        inner = _ARGUMENT.search(text)
        return inner[1] if inner else last
    return last or text
