"""Fixtures of all tests."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from rankscope.parsers.workers import pool
from tests import warm_workers

# no test decides by how fast the machine is
settings.register_profile("rankscope", deadline=None)
settings.load_profile("rankscope")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts real jobs first: one worker waits for them while the others compute, and none is left for the end."""
    items.sort(key=lambda item: item.get_closest_marker("torch") is None)


def pytest_collection_finish() -> None:
    """Takes what stays until the end, modules and thousands of tests, out of the sight of the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files with processes of earlier tests, where the processes themselves are not what is tested."""
    if "workers" not in request.path.parts:
        monkeypatch.setattr(pool, "WorkerThread", warm_workers.WarmThread)
