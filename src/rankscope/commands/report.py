"""`rankscope report`: the findings in one of four formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import click

from rankscope.commands.output import ProgressLine, encoded, refuse_existing, write_report
from rankscope.commands.source import JobSource, with_local_paths

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset

Format = Literal["text", "markdown", "json", "html"]
SUFFIXES: dict[str, Format] = {
    ".json": "json", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html",
}  # fmt: skip


def run(
    source: JobSource,
    *,
    form: Format | None = None,
    output: str | None = None,
    force: bool = False,
    ascii_only: bool = False,
    why: tuple[int, ...] = (),
    path_map: tuple[tuple[str, str], ...] = (),
) -> int:
    """Writes the report; the exit code says whether anything critical was found."""
    source.check()
    refuse_existing(output, force)
    dataset, analysis = with_local_paths(*_load(source), path_map)
    analysis = _answered(dataset, analysis, why)
    is_redacted = source.redaction is not None
    write_report(render_report(dataset, analysis, form or format_of(output), ascii_only, is_redacted), output, force)
    return int(analysis.is_critical)


def _answered(dataset: Dataset, analysis: Analysis, ranks: tuple[int, ...]) -> Analysis:
    """The analysis with an explanation for each of the ranks; ClickException if the job has no such rank."""
    if not ranks:
        return analysis
    from rankscope.analysis.explanations import NoSuchRankError, explain_rank

    try:
        return replace(analysis, whys=tuple(explain_rank(dataset, analysis, rank) for rank in dict.fromkeys(ranks)))
    except NoSuchRankError as error:
        raise click.ClickException(str(error)) from error


def render_report(
    dataset: Dataset, analysis: Analysis, form: Format, ascii_only: bool, is_redacted: bool = False
) -> bytes:
    """The report in UTF-8, or in ASCII with escapes; `is_redacted` tells that names were replaced."""
    if form == "html":
        from rankscope.report.html import render_html

        return render_html(dataset, analysis, is_redacted).encode(
            "ascii" if ascii_only else "utf-8", "xmlcharrefreplace"
        )
    if form == "json":
        from rankscope.report.json import render_json

        return render_json(dataset, analysis, ascii_only)
    if form == "markdown":
        from rankscope.report.markdown import render_markdown as render
    else:
        from rankscope.report.text import render_text as render
    return encoded(render(dataset, analysis), ascii_only)


def format_of(output: str | None) -> Format:
    """The format that the suffix of a file asks for."""
    return SUFFIXES.get(PurePath(output or "").suffix.lower(), "text")


def _load(source: JobSource) -> tuple[Dataset, Analysis]:
    with ProgressLine() as narrator:
        return source.load(narrator)


def log_to_stderr() -> None:
    """Shows the debug log of rankscope only."""
    import logging

    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("rankscope").setLevel(logging.DEBUG)
