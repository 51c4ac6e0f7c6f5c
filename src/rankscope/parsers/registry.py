"""Registry of the kinds of files, which are rows of `kinds.input_kinds`.

Most directories hold one kind: the modules of other kinds are imported with their first file.
"""

from __future__ import annotations

from typing import Any

from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, InputKind
from rankscope.parsers.contents import DecodedFile

PICKLE = b"\x80"
RECOGNISED_KINDS = tuple(kind for kind in INPUTS.values() if kind.begins)
"""Kinds with a test of the first bytes, in the order of the tests."""


def kinds_of(head: bytes, size: int) -> list[InputKind]:
    """The possible kinds of a file of `size` bytes that begins with `head`, in the order of the tests."""
    possible = [kind for kind in RECOGNISED_KINDS if kind.pickled or not head.startswith(PICKLE)]
    return [kind for kind in possible if size <= kind.most_bytes and function(kind.begins)(head)]


def restore_content(kind: str, header: dict[str, Any], body: memoryview, rows: int) -> DecodedFile:
    """The content of a file of that kind from a worker's message: `header()`, `body()` and `rows` of it."""
    content: DecodedFile = function(INPUTS[kind].restore)(header, body, rows)
    return content
