"""Asking a running job for dumps through the trigger pipes that lie where its dumps do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.report.escape import plain
from rankscope.triggers.pipes import Pipe, ask, find_pipes


@dataclass(frozen=True)
class PipesOf:
    """The trigger pipes of some paths. What is asked first may be gone when it is written to: that is said."""

    paths: Sequence[str]

    def ranks(self) -> list[int]:
        """Ranks that can be asked."""
        return sorted({pipe.rank for pipe in self._find()})

    def ask(self) -> str:
        """Asks all of them, and says what came of it."""
        asked = ask(self._find())
        failed = [one for one in asked if one.problem is not None]
        text = f"{len(asked) - len(failed)} of {len(asked)} ranks asked for dumps"
        if failed:
            text += f"; rank {failed[0].pipe.rank}: {failed[0].problem}"
        return plain(text)

    def _find(self) -> list[Pipe]:
        places = [Path(path) if Path(path).is_dir() else Path(path).parent for path in self.paths]
        return find_pipes(dict.fromkeys(places))
