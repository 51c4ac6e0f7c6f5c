"""Redaction of runs that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.report.redact import Redaction, distinct_texts, option_texts
from rankscope.schema.tables import SCALARS


def redacted_runs(redaction: Redaction, runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Runs that are shown together: what one tells of a name is replaced in the others, too."""
    for run in runs:
        texts = [*option_texts(run.options), *run.series_problems]
        paths = [source.name for source in run.options.sources if source.is_file]
        paths += distinct_texts(run.series["file"]) if run.series.height else []
        redaction.learn(run.dataset)
        redaction.learn_texts(texts, paths)
    return [
        replace(
            run,
            title=redaction.title(run.title),
            dataset=redaction.dataset(run.dataset),
            series=redaction.table(SCALARS, run.series),
            series_problems=tuple(map(redaction.text, run.series_problems)),
            options=redaction.options(run.options),
        )
        for run in runs
    ]
