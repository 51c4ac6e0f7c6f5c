"""The table of files: what was looked at, what is known of it, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble.frontiers import has_timing
from rankscope.assemble.sources import Source
from rankscope.kinds.input_kinds import REPORT
from rankscope.parsers.sidecar.model import Card


def file_table(sources: Sequence[Source]) -> pl.DataFrame:
    """A row for each source, in their order."""
    rows = [_row(place, source) for place, source in enumerate(sources)]
    return pl.DataFrame(rows, schema=dict(schema.FILES))


def _row(place: int, source: Source) -> dict[str, Any]:
    dump, trace, complete = source.dump, source.trace, source.complete
    own = source.card or (source.content if isinstance(source.content, Card) else None)
    library = dump.library_version if dump else trace.about.library_version if trace else None
    return {
        "file": place,
        "path": source.shown,
        "kind": REPORT.name if source.is_report else source.kind,
        "rank": source.rank,
        "rank_source": source.rank_source,
        "attempt": source.attempt,
        "host": source.host or (own.host if own is not None else None) or (trace.about.host if trace else None) or None,
        "pid": own.pid if own is not None else None,
        "interval_ns": source.card.interval_ns if source.card is not None else None,
        "delay_ns": source.card.delay_ns if source.card is not None else None,
        "rows": source.content.rows if source.content else 0,
        "version": dump.version if dump else None,
        "library_version": library or None,
        "mtime_ns": source.mtime_ns,
        "size": source.size,
        "wrapped": complete and complete.wrapped,
        "filtered": complete and complete.filtered,
        "has_stacks": bool(dump.stacks) if dump else None,
        "has_timing": has_timing(dump) and source.recorder not in schema.HOOKS if dump else None,
        "has_status": dump.status is not None if dump else None,
        "recorder": source.recorder,
        "problem": "; ".join(text for text in (source.problem, source.note) if text) or None,
        "used": source.used,
    }
