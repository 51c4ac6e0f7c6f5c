"""`rankscope export`: the traces of all ranks as one file on one clock, for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from rankscope.commands.output import Narrator, refuse_existing
from rankscope.commands.source import Source, Step
from rankscope.text.wording import duration, plural


def run(
    paths: tuple[str, ...],
    *,
    output: str,
    force: bool = False,
    flows: bool = True,
    ascii_only: bool = False,
    path_map: tuple[tuple[str, str], ...] = (),
    rank_from: str | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    jobs: int | None = None,
    errors: str | None = None,
) -> int:
    """Writes the file and says what is in it; ClickException where there is no trace."""
    del ascii_only, path_map  # of no meaning here; all commands that read take them
    source = Source(paths, rank_from, world_size, attempt, jobs, errors)
    source.check()
    if output == "-":
        raise click.ClickException("the merged trace needs a file: -o merged.json.gz")
    refuse_existing(output, force)
    narrator = Narrator()
    try:
        dataset, analysis = source.load(narrator)
        if not dataset.has_traces:
            raise click.ClickException("no profiler trace is there: nothing to export")
        narrator(Step(0, 0, "writing"))
        from rankscope.report.perfetto import save_merged

        events = save_merged(dataset, analysis, Path(output), flows=flows, force=force)
    except FileExistsError as error:
        raise click.ClickException(f"{output}: is there already; --force overwrites it") from error
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error
    finally:
        narrator.close()
    ranks = dataset.traces["rank"].n_unique()
    click.echo(f"{output}: {plural(events, 'event')} of {plural(ranks, 'rank')}{_clocks(analysis)}", err=True)
    return 0


def _clocks(analysis: object) -> str:
    """How far the clocks agree."""
    traces = getattr(analysis, "traces", None)
    if traces is None or traces.residual_ns is None:
        return ", clocks as written"
    return f", clocks within {duration(traces.residual_ns)}"
