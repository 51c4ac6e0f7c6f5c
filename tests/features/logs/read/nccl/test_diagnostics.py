"""Lines of NCCL's own check of the hardware."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.logs.read.lines import log

HEAD = "n7:4100 NCCL DIAG "


def told(line: str) -> list[tuple[Any, ...]]:
    names = ("what", "ranks", "size", "comm", "node")
    events = log(f"{HEAD}{line}").events
    return [tuple(e.values[n] for n in names) for e in events if e.kind == "nccl-diagnosis"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[WARN] ECC: uncorrected volatile errors on rank(s) 5,9-10 (worst=1) across 24 ranks in comm 0xab12",
            ("fault", [[5, 5], [9, 10]], 24, "0xab12", None),
        ),
        (
            "[INFO] net bw: write rank 6 (n3): 12.0 Gbit/s, >30% off median 200.0 Gbit/s in comm 0xab12",
            ("fault", [[6, 6]], None, "0xab12", "n3"),
        ),
        (
            "[WARN] CUDA driver version: mismatch across 24 ranks in comm 0xab12, rank(s) 8-15 differ from rank 0 (1)",
            ("differs", [[8, 15]], 24, "0xab12", None),
        ),
        ("[WARN] Xid 48 detected 3 seconds ago (GPU 0000:5d:00.0) on host n3. See x", ("fault", [], None, None, "n3")),
        ("[OK] NVLink: 18 links per GPU across 2 ranks in comm 0xcd", ("", [], 2, "0xcd", None)),
    ],
)
def test_lines(line: str, expected: tuple[Any, ...]) -> None:
    assert told(line) == [expected]


@pytest.mark.parametrize(
    "line", ["[INFO] ATS state: lspci unavailable on rank(s) 0-15 in comm 0x6f", "=== NCCL Diagnostics ===", "done"]
)
def test_what_is_no_problem_is_no_event(line: str) -> None:
    assert told(line) == []
