"""Hook of hatchling: puts man pages into the wheel, below share/man/man1."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPagesHook(BuildHookInterface):  # type: ignore[misc]  # mypy skips hatchling
    """Writes the pages before a wheel is packed; an editable installation needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the pages to the data files of the wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        write = runpy.run_path(str(root / "packaging" / "man_pages.py"))["write"]
        for page in write(root / "build" / "man"):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"
