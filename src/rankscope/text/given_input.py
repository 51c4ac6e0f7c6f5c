"""The input of a command in the user's words, as commands for a shell name it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.text.escaping import plain
from rankscope.text.secrets import hide

STDIN = "-"


@dataclass(frozen=True)
class GivenInput:
    """The paths that the user gave. Empty: they are not known, and commands name none."""

    names: tuple[str, ...] = ()
    """As the user wrote them: paths, `-`, places on other hosts."""
    directory: str = ""
    """The one of them if it is all, and a directory here in which more files of the job can be put; else ""."""
    is_session: bool = False
    """Whether it is a session, which is opened alone."""

    @property
    def stands_alone(self) -> bool:
        """Whether a command cannot read it again together with more files as it is written here."""
        return self.is_session or STDIN in self.names

    def words(self, *more: str) -> str:
        """The names, then `more` that are not among them, quoted for a shell."""
        known = {name.rstrip("/") for name in self.names}
        return quoted([*self.names, *(name for name in more if name.rstrip("/") not in known)])


def quoted(names: Sequence[str]) -> str:
    """Names of files as words of a shell; none can pass for an option, or holds control characters or a secret."""
    return hide(plain(shlex.join(f"./{name}" if name.startswith("-") and name != STDIN else name for name in names)))
