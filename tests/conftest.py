"""Fixtures of all tests."""

from __future__ import annotations

import pytest

from rankscope.parsers.workers import pool
from tests import warm_workers


@pytest.fixture(autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files with processes of earlier tests, where the processes themselves are not what is tested."""
    if "workers" not in request.path.parts:
        monkeypatch.setattr(pool, "WorkerThread", warm_workers.WarmThread)
