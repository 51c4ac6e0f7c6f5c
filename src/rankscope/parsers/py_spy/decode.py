"""The bytes of a file to a Snapshot, whichever of its two forms py-spy wrote.

Source of both forms: py-spy's src/dump.rs and src/stack_trace.rs, and dumps that py-spy 0.4.3 made.
"""

from __future__ import annotations

import re

from rankscope.parsers.py_spy import documents, texts
from rankscope.parsers.py_spy.model import Snapshot
from rankscope.parsers.py_spy.roles import roles_of

_STYLE = rb"(?:\x1b\[[0-9;]*m)*"
_TEXT = re.compile(rb"(?m)^(?:\xef\xbb\xbf)?[ \t]*Process " + _STYLE + rb"\d{1,10}" + _STYLE + rb": [^\n]*(\n?)")
_NEXT = re.compile(rb"(?m)^(?:Python v|Parent Process |Thread )")
_THREADS = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*Thread (?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \((?:active|idle)(?:\+gil)?\)"
    rb"(?:: \"[^\n]*)?\r?\n {4}[^ \n][^\n]* \([^\n]*\)\r?(?:\n|\Z)"
)
"""A file that begins with a thread and its innermost frame: the process is not told."""
_JSON = re.compile(rb'\[\s*\{\s*"pid":\s*\d+,\s*"thread_id":')


def looks_like_snapshot(head: bytes) -> bool:
    """Whether the first bytes of a file can begin a dump, also after a prompt or a few other lines."""
    if head[:1] == b"\x80":
        return False
    if _JSON.search(head) is not None:
        return True
    begun = _TEXT.search(head)
    if begun is None and _THREADS.search(head) is not None:
        return True
    # a command line may be longer than what is looked at here
    return begun is not None and (not begun[1] or len(head) >= 512 or _NEXT.search(head, begun.end()) is not None)


def decode(data: bytes) -> Snapshot:
    """The dumps in `data`. Raises NotThisKindError."""
    first = _JSON.search(data)
    snapshot = documents.decode(data, first.start()) if first is not None else texts.decode(data)
    snapshot.roles = roles_of(snapshot)
    return snapshot
