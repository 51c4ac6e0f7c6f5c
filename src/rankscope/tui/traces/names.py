"""Names of spans, short enough for a cell of the screen and long enough to be known again."""

from __future__ import annotations

import re
from functools import lru_cache

from rankscope.report.escape import plain

_WRAPPERS = ("Kernel", "Kernel2", "device_kernel", "kernel", "GemmUniversal")
"""Names of templates that say nothing: their first argument is the name."""
_IDENTIFIER = re.compile(r"[A-Za-z_~][\w~]*")
_NCCL = re.compile(r"(nccl\w*?Kernel)_(\w+)", re.ASCII)


@lru_cache(4096)
def short_name(name: str) -> str:
    """`void at::native::reduce_kernel<512, ...>(...)` is "reduce_kernel"; names that are no C++ stay as they are."""
    text = plain(name, 400)
    if match := _NCCL.match(text):
        return match[2]
    if "(" not in text and "<" not in text:
        return text.removeprefix("aten::")
    if re.match(r".*\.py\(\d+\): ", text):
        file, _, function = text.partition(": ")
        return f"{function} {file.rpartition('/')[2].replace('(', ':').rstrip(')')}"
    if text.startswith("<"):
        return text.strip("<>")
    bare = re.split(r"[<(]", text.removeprefix("void ").removeprefix("(anonymous namespace)::"), maxsplit=1)[0]
    last = bare.rpartition("::")[2]
    if last in _WRAPPERS and "<" in text:
        inner = _IDENTIFIER.search(text, text.index("<") + 1)
        return inner[0] if inner else last
    return last or text
