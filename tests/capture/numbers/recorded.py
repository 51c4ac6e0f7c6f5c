"""Recorded files of a job, as rows."""

from __future__ import annotations

import base64
import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MASK = (1 << 64) - 1
Row = dict[str, Any]


def lines(folder: Path, rank: int) -> list[Row]:
    """All lines of a rank, in the order of writing."""
    numbered = sorted(folder.glob(f"numbers_rank_{rank}.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))
    newest = folder / f"numbers_rank_{rank}.jsonl"
    return [json.loads(line) for path in [*numbered, newest] for line in path.read_text().splitlines()]


def rows(folder: Path, ranks: int = 4) -> list[Row]:
    """The rows of all ranks, each with its rank."""
    return [row | {"rank": rank} for rank in range(ranks) for row in lines(folder, rank) if "site" in row]


def calls(found: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows of collectives by operation: step, group, number, name."""
    by: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        if row["site"] == "collective":
            by[row["step"], row["group"], row["seq"], row["op"]].append(row)
    return by


def is_consistent(op: str, call: list[Row]) -> bool:
    """Whether outputs of one collective fit its inputs, by hashes and sums; members are the ranks of the job."""
    ins = [row for row in call if row["slot"].startswith("in")]
    outs = [row for row in call if row["slot"].startswith("out")]
    sources = {(row["rank"], row.get("slice")): row["hash"] for row in ins}
    by_slot = {row["slot"]: {r["hash"] for r in outs if r["slot"] == row["slot"]} for row in outs}
    if op in ("all_reduce", "broadcast", "reduce"):
        same = all(len(hashes) == 1 for hashes in by_slot.values()) and bool(outs)
        return same and (op == "broadcast" or all(_adds_up(ins, row) for row in outs))
    if op == "reduce_scatter":
        return bool(outs) and all(_adds_up([r for r in ins if r["slice"] == row["rank"]], row) for row in outs)
    return bool(outs) and all(sources[_sender(op, row)] == row["hash"] for row in outs)


def _sender(op: str, out: Row) -> tuple[Any, Any]:
    """The rank and the slice from which an output came unchanged."""
    if op in ("all_gather", "gather"):
        return out["slice"], None
    return (out["slice"] if op == "all_to_all" else out["root"]), out["rank"]


def _adds_up(ins: list[Row], out: Row) -> bool:
    """Whether sums of inputs make the sum of an output, or maxima its maximum."""
    mine = [row for row in ins if row["slot"][2:] == out["slot"][3:]]
    if out["reduce_op"] == "max":
        return bool(max(row["max"] for row in mine) == out["max"])
    total = sum(row["sum"] for row in mine) / (len(mine) if out["reduce_op"] == "avg" else 1)
    return bool(abs(total - out["sum"]) <= 1e-4 * (1 + sum(row["l2"] for row in mine)))


def samples_of(row: Row) -> list[float]:
    """The samples of a row."""
    name, kind = ("samples_f32", "f") if "samples_f32" in row else ("samples_f64", "d")
    data = base64.b64decode(row[name])
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))
