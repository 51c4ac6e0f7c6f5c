"""Traces of the operations of steps, as Parquet: the form of the OSDI '25 paper on stragglers.

Its fields (github.com/ByteDance-Seed/StragglerAnalysis, readme.md): dp_rank, stage, rank, step, optype, start_ts and
duration in seconds, seq_id, mc, mb_id, gmc; here also a length of sequences, which a job may write beside them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from rankscope.features.whatif.pipeline_schedule import KINDS
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.parsers.streams import memory_limit
from rankscope.text.wording import plural

MAGIC = b"PAR1"
MOST_ROWS = 1 << 24
READER_BYTES = 32 << 20
"""Size of a file that lends enough memory for the reader of Parquet itself."""
ROW_BYTES = 16
"""The same for a row: its columns are held some times at once while they are unpacked, cast and joined."""
COLUMNS = {
    "dp_rank": "replica", "stage": "stage", "rank": "rank", "step": "step", "seq_id": "number", "mc": "chunk",
    "mb_id": "micro", "gmc": "model_chunk",
}  # fmt: skip
"""Whole numbers of the file, and what the table calls them."""
LENGTHS = ("seq_len", "seq_length", "sequence_length", "num_tokens", "tokens")
"""Names of a column with the length of the sequences of a micro batch."""
NUMBERS = (*COLUMNS.values(), "kind", "start_ns", "duration_ns", "length")
_NEEDED = (*COLUMNS, "optype", "start_ts", "duration")
_LIMIT_S = 4e9
"""Times beyond it are no seconds."""


@dataclass
class StepTrace:
    """The operations of one file."""

    numbers: Numbers = field(default_factory=lambda: np.empty((len(NUMBERS), 0), np.int64))
    """Shape (len(NUMBERS), operations), with NULL for unknown values; `kind` is an index of KINDS."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of operations."""
        return int(self.numbers.shape[1])

    def header(self) -> dict[str, Any]:
        """All but the numbers, as JSON values."""
        return {"problem": self.problem}

    def body(self) -> list[memoryview]:
        """The numbers as bytes."""
        return [np.ascontiguousarray(self.numbers).data.cast("B")] if self.rows else []


def step_trace_from(header: dict[str, Any], body: memoryview, *_: object) -> StepTrace:
    """The trace whose `header()` and `body()` these are."""
    return StepTrace(np.frombuffer(body, np.int64).reshape(len(NUMBERS), -1), header["problem"])


def looks_like_step_trace(head: bytes) -> bool:
    """Whether a file with these first bytes is of Parquet."""
    return head.startswith(MAGIC)


def decode_step_trace(data: bytes) -> StepTrace:
    """The operations in `data`. Raises NotThisKindError for another table, and for what is no Parquet."""
    # polars reserves memory for its threads, whatever the size of a file
    with memory_limit(max(len(data), READER_BYTES + ROW_BYTES * _declared_rows(data))):
        try:
            return _read(data)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
            reason = "a Parquet file that is damaged, or whose columns are not those of a step trace"
            raise NotThisKindError(reason) from error


def _declared_rows(data: bytes) -> int:
    """The number of rows that the footer declares. Raises NotThisKindError for more than are read, without a footer, or
    where the row groups declare another number.

    Few bytes may declare many rows, and a row group is unpacked as a whole.
    """
    with memory_limit(max(len(data), READER_BYTES)):
        try:
            scan = pl.scan_parquet(io.BytesIO(data))
            rows = int(scan.select(pl.len()).collect().item())
            counted = rows
            if rows <= MOST_ROWS and (first := next(iter(scan.collect_schema()), None)) is not None:
                # rows that pass a filter are those of the row groups; one too many is enough to see that there are more
                each = scan.select(first).filter(pl.col(first).is_null() | pl.col(first).is_not_null())
                counted = int(each.head(rows + 1).select(pl.len()).collect(engine="streaming").item())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
            raise NotThisKindError("a Parquet file that is damaged: its footer cannot be read") from error
    if rows > MOST_ROWS:
        raise NotThisKindError(
            f"a Parquet file of {plural(rows, 'row')}: of a step trace at most {MOST_ROWS:,} are read"
        )
    if counted != rows:
        raise NotThisKindError(
            f"a Parquet file that is damaged: its footer declares {plural(rows, 'row')}, its row groups another number"
        )
    return rows


def _read(data: bytes) -> StepTrace:
    there = pl.read_parquet_schema(io.BytesIO(data))
    lacking = [name for name in _NEEDED if name not in there]
    if lacking:
        raise NotThisKindError(f"a Parquet file that is no step trace: it has no column {', '.join(lacking)}")
    lengths = [name for name in LENGTHS if name in there][:1]
    table = pl.read_parquet(io.BytesIO(data), columns=[*_NEEDED, *lengths])
    shaped = _shaped(table, *lengths)
    kept = _valid(shaped)
    lost = shaped.height - kept.height
    notes = [f"{plural(lost, 'operation')} of unknown kind, or without its place or time"] if lost else []
    if kept.is_empty():
        raise NotThisKindError("a Parquet file with the columns of a step trace, and no operation that can be read")
    numbers = np.stack([kept[name].fill_null(NULL).to_numpy() for name in NUMBERS])
    return StepTrace(numbers, "; ".join(notes) or None)


def _shaped(table: pl.DataFrame, length: str = "") -> pl.DataFrame:
    """The columns NUMBERS as whole numbers; null where there is no value."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    numbers = [pl.col(name).cast(pl.Int64).alias(own) for name, own in COLUMNS.items()]
    kind = pl.col("optype").cast(pl.String).replace_strict(places, default=None, return_dtype=pl.Int64)
    times = (
        pl.when(pl.col(name).cast(pl.Float64).is_between(-_LIMIT_S, _LIMIT_S))
        .then((pl.col(name).cast(pl.Float64) * 1e9).round()).cast(pl.Int64).alias(own)
        for name, own in (("start_ts", "start_ns"), ("duration", "duration_ns"))
    )  # fmt: skip
    known = pl.col(length).cast(pl.Int64, strict=False) if length else pl.lit(None, pl.Int64)
    return table.select(*numbers, kind.alias("kind"), *times, known.alias("length"))


def _valid(table: pl.DataFrame) -> pl.DataFrame:
    needed = ("replica", "stage", "rank", "step", "number", "kind", "start_ns", "duration_ns")
    places = pl.all_horizontal(pl.col(name).is_between(0, RANK_LIMIT - 1) for name in ("replica", "stage", "rank"))
    return table.drop_nulls(needed).filter(places & (pl.col("duration_ns") >= 0) & (pl.col("step") >= 0))
