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


SHARED = {
    "sources": ("house/test_features", "house/test_glossary", "house/test_rules", "house/test_sentences",
                "kinds/test_kinds_in_code", "text/test_plain_english"),
    "pages": ("house/test_documents",),
    "failing jobs": ("features/logs/read/c10d/test_real",),
    "real jobs": ("jobs/test_real_jobs",),
    "numbers of a job": ("capture/numbers/test_real_job",),
    "planted names": ("commands/test_planted_names",),
    "planted secrets": ("commands/test_planted_secrets",),
    "read parts": ("assemble/test_read_parts",),
}  # fmt: skip
"""Modules of tests that share what is dear to make, as the parsed package or the output of a job: one worker runs all
modules of a name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts real jobs first: one worker waits for them while the others compute, and none is left for the end."""
    items.sort(key=lambda item: item.get_closest_marker("torch") is None)
    names = {f"tests/{module}.py": name for name, modules in SHARED.items() for module in modules}
    for item in items:
        name = names.get(item.nodeid.partition("::")[0])
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_finish() -> None:
    """Takes what stays until the end, modules and thousands of tests, out of the sight of the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files with processes of earlier tests, where the processes themselves are not what is tested."""
    if "workers" not in request.path.parts:
        monkeypatch.setattr(pool, "WorkerThread", warm_workers.WarmThread)
