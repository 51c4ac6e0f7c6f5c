"""Lines of NCCL that tell nothing but that somebody wrote them: most of what it prints while communicators are made.

Which messages those are is worked out once for each shape, a message without its numbers. Signs of what would tell
something are looked for in the shape without their own numbers: so more than need be is read the slow way, never less.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rankscope.parsers.logs.nccl.heads import LEVELS

KINDS = {"channels": 0, "tuning": 1, "other": 2}
MOST = 1 << 16
"""More shapes are forgotten."""
_DIGITS = b"0123456789"
_POINTER = re.compile(rb"0x[0-9a-fA-F]+(?:/[0-9a-fA-F]+)?")
"""And the two halves of a GID."""
CHANNEL = ("Channel ", "Trees ", "Ring ", "Connected ", "threadThresholds", "P2P Chunksize", "Setting affinity")
"""How messages begin that only tell how channels were connected."""
TUNING = " Bytes -> Algo "
"""What is in those that only tell how an operation runs."""
_CHANNEL, _TUNING = tuple(word.encode() for word in CHANNEL), TUNING.encode()
_GLUED = (
    *(f"NCCL {level}".encode() for level in LEVELS),
    b"[rank", b".cpp:]", b".hpp:]", b".h:]", b".cu:]", b".cc:]", b".py:]", b" WARN", b"\x1b", b"\r",
)  # fmt: skip
"""Signs of another record in the same line."""
_TOLD = (
    b"opCount", b"- Init ", b"- Destroy ", b"- Abort ", b"- Finalize ", b"- Revoke ", b" set by environment to ",
    b"CCL version", b"cudaDriverVersion", b"Using network", b"Loaded net plugin", b"Bootstrap : U", b"Bootstrap: U",
    b": -> ",
)  # fmt: skip
"""Signs of operations, lives of communicators, settings, and the calls of a failure."""


class Shapes:
    """Tells which messages are quiet. `words` gives what others look for in lines, once it is needed."""

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words
        self._telling: re.Pattern[bytes] | None = None
        self._glued = _any(_GLUED)
        self._known: dict[bytes, str] = {}

    def kind(self, message: bytes) -> str:
        """ "channels", "tuning" or "other"; "" for what may tell something."""
        bare = shape(message)
        found = self._known.get(bare)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[bare] = self._work_out(message, bare)
        return found

    def _work_out(self, message: bytes, bare: bytes) -> str:
        if self._glued.search(bare):
            return ""
        if message.startswith(_CHANNEL):
            return "channels"
        if _TUNING in message:
            return "tuning"
        if self._telling is None:
            self._telling = _any((*_TOLD, *(word.encode() for word in self._words())))
        return "" if self._telling.search(bare) else "other"


def shape(text: bytes) -> bytes:
    """Without the digits of pointers and numbers. It has the same blanks and line ends."""
    return (_POINTER.sub(b"0x", text) if b"0x" in text else text).translate(None, _DIGITS)


def _any(signs: Iterable[bytes]) -> re.Pattern[bytes]:
    found = sorted({sign.translate(None, _DIGITS) for sign in signs})
    return re.compile(b"|".join(map(re.escape, found)))
