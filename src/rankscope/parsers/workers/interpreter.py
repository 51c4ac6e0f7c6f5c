"""How the program starts processes of its own."""

from __future__ import annotations

import sys
from pathlib import Path


def interpreter(start: str, *arguments: str) -> list[str]:
    """A command that imports what this process would, without running the program's main module or site hooks.

    `start` is the program; it has to take its `sys.path` from what follows `arguments` in `sys.argv`.
    """
    package = str(Path(__file__).resolve().parents[3])
    path = dict.fromkeys([package, *filter(None, sys.path)])
    return [sys.executable, "-S", "-E", "-c", start, *arguments, *path]
