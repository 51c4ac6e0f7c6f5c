"""Imports of readers: worker processes start faster and stay smaller without polars."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["parsers.flight_recorder", "features.traces.read", "features.numbers.read"])
def test_readers_in_workers_load_no_polars(package: str) -> None:
    code = f"import sys, rankscope.{package}.decode; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
