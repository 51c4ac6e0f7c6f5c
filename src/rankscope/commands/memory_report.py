"""`rankscope report --only memory`: who holds the memory of each device, in snapshots of torch."""

from __future__ import annotations

from dataclasses import replace

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of
from rankscope.commands.source import JobSource, nothing_usable, with_local_paths

_WANTED = "torch.cuda.memory._dump_snapshot(FILE) writes a memory snapshot"


def run(
    source: JobSource,
    *,
    form: Format | None,
    output: str | None,
    force: bool,
    ascii_only: bool,
    path_map: tuple[tuple[str, str], ...],
) -> int:
    """Writes the page of memory; ClickException if no file is a snapshot."""
    from rankscope.analysis.model import Analysis
    from rankscope.features.memory.rules.snapshot_holders import snapshot_memory
    from rankscope.features.memory.snapshot_page import render_snapshots

    source.check()
    refuse_existing(output, force)
    with ProgressLine() as narrator:
        dataset = replace(source, wanted=_WANTED).read(narrator)
    unread = dataset.files.drop_nulls("problem").select("path", "problem").rows()
    if dataset.snapshots.is_empty():
        raise nothing_usable(source, dataset, f"no memory snapshot; {_WANTED}")
    dataset, _ = with_local_paths(dataset, Analysis("", "unknown"), path_map)
    form = form or format_of(output)
    page = render_snapshots(snapshot_memory(dataset), unread, form, source.redaction is not None)
    errors = "xmlcharrefreplace" if form == "html" else "backslashreplace"
    write_report(page.encode("ascii" if ascii_only else "utf-8", errors), output, force)
    return 0
