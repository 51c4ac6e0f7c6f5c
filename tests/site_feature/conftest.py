"""A job of two hosts with the log of their fabric watcher, and folders with packages on the path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site_feature.installed import PACKAGES, install, on_path

SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"
LOG = """# fabricwatch
1772446504 node17 mlx5_3 down
1772446509 node17 mlx5_3 up
1772446604 node17 mlx5_3 down
1772446704 gpu7.acme.example leaf\x1b[31m down
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, built once."""
    folder = tmp_path_factory.mktemp("packages")
    install(PACKAGES / "fabricwatch", folder)
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four dumps of two hosts, and the log of the fabric."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(4):
        host = folder / ("node17" if rank < 2 else "node18")
        host.mkdir(exist_ok=True)
        shutil.copy(SAMPLE / f"comm_lib_trace_rank_{rank}", host)
    (folder / "fabricwatch.log").write_text(LOG)
    return folder


@pytest.fixture
def installed(target: Path) -> Iterator[None]:
    """The packages of the folder are on the path."""
    with on_path(target):
        yield
