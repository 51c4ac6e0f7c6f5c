"""Structured logs of torch.compile, as TORCH_TRACE writes them, and rows of the table that is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl

from rankscope.schema import Dataset
from rankscope.schema.tables import COMPILATIONS
from tests.builders import START_NS

GUARD = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
MS = 1_000_000


class CompilerLog:
    """The text of the log of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lines: list[str] = []

    def record(self, content: dict[str, Any], compile_id: str = "0/0", payload: str = "") -> None:
        """Adds an object, and below it the lines of its payload."""
        frame, number = compile_id.split("/")
        envelope = {"rank": self.rank, "frame_id": int(frame), "frame_compile_id": int(number), "attempt": 0}
        text = json.dumps({**content, **envelope})
        self.lines.append(f"V1126 17:50:33.852000 {100 + self.rank} torch/_dynamo/utils.py:2009] {text}")
        self.lines += [f"\t{line}" for line in payload.splitlines()]

    def begin(self, compile_id: str = "0/0", at_ns: int = START_NS) -> None:
        """Adds the beginning of a compilation."""
        self.record(
            {"chromium_event": {}}, compile_id, f'{{\n"name": "dynamo",\n"ts": {at_ns // 1000}.5,\n"ph": "B"\n}}'
        )
        self.lines.append('V1126 17:50:33.1 1 torch/_dynamo/x.py:1] {"str": ["/ws/net.py", 1]}')
        self.record({"dynamo_start": {"stack": [{"line": 6, "name": "block", "filename": 1}]}}, compile_id)

    def compile(self, compile_id: str = "0/0", seconds: float = 0.25, at_ns: int = START_NS, **metrics: Any) -> None:
        """Adds a whole compilation; from the second on of a frame, with the guard that failed."""
        self.begin(compile_id, at_ns)
        number = int(compile_id.split("/")[1])
        if number:
            reasons = [f"0/{number - 1}: {GUARD.format(3 + number, 4 + number)}", "0/0: older"]
            self.record({"artifact": {"name": "recompile_reasons"}}, compile_id, json.dumps(reasons, indent=0))
        told = {
            "compile_id": compile_id, "co_name": "block", "co_filename": "/ws/net.py", "co_firstlineno": 6,
            "start_time": at_ns / 1e9, "entire_frame_compile_time_s": seconds, **metrics,
        }  # fmt: skip
        self.record({"compilation_metrics": told}, compile_id)

    def text(self) -> bytes:
        """The bytes of the file."""
        return "".join(f"{line}\n" for line in self.lines).encode()


def with_rows(dataset: Dataset, rows: list[dict[str, Any]]) -> Dataset:
    """The dataset with rows of `compilations`, each a recompilation of `block` unless it says otherwise."""
    blank = {
        "rank": 0, "pid": 1, "what": "recompile", "compile_id": "0/1", "function": "block", "path": "/ws/net.py",
        "code_line": 6, "reason": GUARD.format(4, 5), "error": "", "start_ns": None, "duration_ns": None,
        "is_open": False, "hits": None, "misses": None, "file": 7000, "line": 1,
    }  # fmt: skip
    table = pl.DataFrame([{**blank, **row} for row in rows], schema=COMPILATIONS)
    return replace(dataset, compilations=table)
