"""What `y` copies, and the file it goes to as well: clipboards often do not reach through tmux and SSH."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import clock
from rankscope.tui.header import finding_text
from rankscope.tui.selection import Selection

FILE = "rankscope-copy.txt"
"""The file below the export directory to which every copy is added."""


def copied_text(dataset: Dataset, analysis: Analysis, selection: Selection) -> str:
    """The verdict, the finding that is shown, the operation under the cursor and its stack."""
    lines = [f"{plain(dataset.root)}: {plain(analysis.verdict)}"]
    if selection.finding is not None:
        lines.append(finding_text(analysis.findings[selection.finding]))
    lines.append(_operation(dataset, selection))
    lines += [f"  {plain(f.function)} {plain(f.file)}:{f.line}" for f in _stack(dataset, analysis, selection)]
    return "\n".join(lines) + "\n"


def _stack(dataset: Dataset, analysis: Analysis, selection: Selection) -> tuple[Frame, ...]:
    """The stack of the operation; where there is none, that of the finding."""
    if selection.row is not None:
        return dataset.stack(dataset.ops["stack_id"][selection.row])
    return analysis.findings[selection.finding].stack if selection.finding is not None else ()


def _operation(dataset: Dataset, selection: Selection) -> str:
    group = dataset.group_list[selection.group] if selection.group is not None else None
    where = "" if group is None else f" of {plain(group.description or group.name)}"
    number = "" if selection.seq is None else f" #{selection.seq}"
    if selection.row is None:
        missing = f": {selection.absence}" if selection.absence else ""
        return f"rank {selection.rank}{number}{where}{missing}"
    row = dataset.ops.select(pl.col("op", "state").cast(pl.String), "created_ns").row(selection.row, named=True)
    return f"rank {selection.rank} {plain(row['op'] or '')}{number}{where} {row['state']} {clock(row['created_ns'])}"


def add_to_file(folder: Path, text: str) -> Path:
    """Adds a copy to the file of copies and says which that is; nothing is overwritten."""
    path = folder / FILE
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text + "\n")
    return path
