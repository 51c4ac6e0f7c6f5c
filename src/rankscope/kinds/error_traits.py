"""Traits of known errors: the words of the column `traits` in the table of known errors, which a user's own table has
too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTrait:
    """A word that says more of a known error than its role."""

    name: str
    meaning: str
    """Text of its row in docs/inputs.md."""
    role: str
    """The role of the rows that may have it."""
    accuses: str = "nobody"
    """Whom these rows accuse."""


GAVE_UP = "gave-up"
AT_SHUTDOWN = "at-shutdown"
ANY_CONNECTION = "any-connection"
RETRIED = "retried"
UNSURE = "unsure"
REFUSED_CALL = "refused-call"
AWAITED = "awaited"
WRAPS = "wraps"
NOT_CONNECTED = "not-connected"
EITHER_END = "either-end"

_ROWS = (
    ErrorTrait(name=GAVE_UP, role="victim", meaning="the rank that prints it waited for others until its timeout"),
    ErrorTrait(
        name=AT_SHUTDOWN, role="victim",
        meaning="it also appears when a job ends well and its processes end one after the other",
    ),
    ErrorTrait(
        name=ANY_CONNECTION, role="victim",
        meaning="any connection may report it, for example to a tracker: it counts only if the line names NCCL or gloo",
    ),
    ErrorTrait(name=RETRIED, role="victim", meaning="it is tried again, or does not matter"),
    ErrorTrait(name=UNSURE, role="root", meaning="alone it does not show that the job failed: a warning"),
    ErrorTrait(name=REFUSED_CALL, role="root", meaning="another line tells why, if there is one"),
    ErrorTrait(
        name=AWAITED, role="root", accuses="named",
        meaning="each line names the ranks that one operation waits for: those that all lines name did not come",
    ),
    ErrorTrait(
        name=WRAPS, role="root",
        meaning="the line passes on another message: a root or a victim that the rest of it matches takes precedence",
    ),
    ErrorTrait(
        name=NOT_CONNECTED, role="victim",
        meaning="the rank never reached the other end: who lost a connection to this rank at that time follows from it",
    ),
    ErrorTrait(
        name=EITHER_END, role="root", accuses="self",
        meaning="the rank at the other end may be at fault instead: dumps that show who is outrank it",
    ),
)  # fmt: skip
TRAITS = {row.name: row for row in _ROWS}
