"""Whether a file that has the name of a log tells anything, where no line of it is unmistakably one of a job."""

from __future__ import annotations

import io

from rankscope.parsers.logs.decode import decode_range

_NOTHING = ("noise", "context")


def tells(text: bytes) -> bool:
    """Whether the readers find an end, an error or a peer in a piece of a file."""
    if text.count(b"\0") > len(text) // 16:
        return False
    found = decode_range(io.BytesIO(text), 0, None)
    return bool(found.ras or found.inspected) or any(e.values.get("role") not in _NOTHING for e in found.events)
