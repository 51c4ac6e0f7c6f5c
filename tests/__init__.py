"""The tests. What all their processes share is set here: nothing of a test is imported before."""

from __future__ import annotations

import os
import sys

# hundreds of processes are started: each reads what the first one compiled
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:
    # one of as many processes as there are cores; with `-n 0` polars takes all of them
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
