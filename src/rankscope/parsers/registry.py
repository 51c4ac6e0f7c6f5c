"""The kinds of files that can be read: their functions, found by the rows of `kinds.input_kinds`.

Most directories hold one kind: what the others need is imported when a file comes that may be of theirs.
"""

from __future__ import annotations

from typing import Any

from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, InputKind
from rankscope.parsers.contents import DecodedFile

PICKLE = b"\x80"
RECOGNISED_KINDS = tuple(kind for kind in INPUTS.values() if kind.begins)
"""Kinds that are told by their first bytes, in the order in which they are asked."""


def kinds_of(head: bytes, size: int) -> list[InputKind]:
    """The kinds that a file of `size` bytes can be of that begins with `head`, those first that are asked first."""
    possible = [kind for kind in RECOGNISED_KINDS if kind.pickled or not head.startswith(PICKLE)]
    return [kind for kind in possible if size <= kind.most_bytes and function(kind.begins)(head)]


def restore_content(kind: str, header: dict[str, Any], body: memoryview, rows: int) -> DecodedFile:
    """The content of a file of that kind from what a worker process sent: `header()`, `body()` and `rows` of it."""
    content: DecodedFile = function(INPUTS[kind].restore)(header, body, rows)
    return content
