"""Sessions: what was read of a job, as files that open in a second. A directory of Parquet tables, or of shards' parts.

Nothing in a session is executed or unpickled, and all of it may come from a stranger: it is checked when it is opened.
"""

from __future__ import annotations

from pathlib import Path

MANIFEST = "rankscope-session.json"
"""Name of the file that makes a directory a session."""


def is_session(path: Path) -> bool:
    """Whether a path is the directory of a session."""
    return (path / MANIFEST).is_file()
