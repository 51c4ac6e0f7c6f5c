"""`rankscope export`: the traces of all ranks as one file on one clock, for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from rankscope.commands.output import ProgressLine, refuse_existing
from rankscope.commands.source import JobSource, LoadStep
from rankscope.text.wording import plural


def run(source: JobSource, *, output: str, force: bool = False, flows: bool = True) -> int:
    """Writes the file and prints its contents; ClickException without a trace."""
    source.check()
    if output == "-":
        raise click.ClickException("the merged trace needs a file: -o merged.json.gz")
    refuse_existing(output, force)
    from rankscope.features.traces.perfetto import save_merged

    try:
        with ProgressLine() as narrator:
            dataset, analysis = source.load(narrator)
            if not dataset.has_traces:
                raise click.ClickException("no profiler trace found: nothing to export")
            narrator(LoadStep(0, 0, "writing"))
            events = save_merged(dataset, analysis, Path(output), flows=flows, force=force)
    except FileExistsError as error:
        raise click.ClickException(f"{output}: already exists; --force overwrites it") from error
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error
    ranks = dataset.traces["rank"].n_unique()
    click.echo(f"{output}: {plural(events, 'event')} of {plural(ranks, 'rank')}{_clocks(analysis)}", err=True)
    return 0


def _clocks(analysis: object) -> str:
    """The agreement of the clocks."""
    from rankscope.text.wording import duration

    traces = getattr(analysis, "traces", None)
    if traces is None or traces.residual_ns is None:
        return ", clocks as written"
    return f", clocks within {duration(traces.residual_ns)}"
