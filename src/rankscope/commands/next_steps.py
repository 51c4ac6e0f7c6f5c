"""`rankscope report --only next`: the commands that collect what a verdict lacks."""

from __future__ import annotations

from rankscope.commands.output import ProgressLine, encoded, refuse_existing, write_report
from rankscope.commands.source import JobSource


def run(source: JobSource, *, output: str | None, force: bool, ascii_only: bool) -> int:
    """Writes the block for a shell; one comment if nothing is missing. The exit code is 0."""
    from rankscope.report.next_commands import command_block
    from rankscope.text.escaping import plain

    source.check()
    refuse_existing(output, force)
    with ProgressLine() as narrator:
        dataset, analysis = source.load(narrator)
    block = command_block(dataset, analysis, source.given)
    carried = f"# rankscope: {plain(analysis.verdict)}\n# The evidence carries this: nothing more is needed.\n"
    write_report(encoded(block or carried, ascii_only), output, force)
    return 0
