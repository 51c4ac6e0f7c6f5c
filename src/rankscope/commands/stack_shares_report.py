"""`rankscope stacks PATH`: stacks over time of all ranks as one tree, and what one rank does that others do not."""

from __future__ import annotations

from pathlib import PurePath

import click

from rankscope.commands.output import ProgressLine, encoded, refuse_existing, write_report
from rankscope.commands.source import JobSource


def run(source: JobSource, *, rank: int | None, export: str | None, force: bool) -> int:
    """Prints the tree, and writes it as speedscope (.json) or folded stacks (any other name) if asked to."""
    from rankscope.features.stacks.share_text import folded_text, share_section, speedscope_profile
    from rankscope.features.stacks.stack_shares import share_tree
    from rankscope.report.text import sections_text

    source.check()
    refuse_existing(export, force)
    with ProgressLine() as narrator:
        dataset = source.read(narrator)
    tree = share_tree(dataset, or_by_pid=True)
    if tree is None:
        raise click.ClickException(
            f"{source.title}: no stacks over time of a known rank; rankscope stacks --record 30 -o DIR takes them on "
            "each host, and a name like pyspy_rank_3.folded says whose they are"
        )
    if rank is not None and rank not in tree.ranks:
        raise click.ClickException(f"no stacks over time of rank {rank}")
    if export is not None:
        as_json = PurePath(export).suffix.lower() == ".json"
        write_report(speedscope_profile(tree, source.title) if as_json else folded_text(tree), export, force)
    write_report(encoded(sections_text([share_section(tree, rank)])), None, force=False)
    return 0
