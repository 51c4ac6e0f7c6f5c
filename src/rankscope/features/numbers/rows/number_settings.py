"""Rows of `settings` from records of numbers: their header, and hashes of random states and batches of first steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from rankscope import schema
from rankscope.assemble.rank_files import RankFile
from rankscope.features.numbers.read.model import MOST_STEPS, SEED, NumbersContent, NumbersHeader

SOURCE = "numbers"
NumbersFile = RankFile[NumbersContent]
BATCH, RANDOM_STATES = "batch", "random states"
"""Beginnings of the names of settings of one step: "batch of step 3"."""
_COMPARED = ("torch", "cuda")
"""Generators whose states are compared step by step: others differ by accident in jobs that do not use them."""


def with_number_settings(
    before: pl.DataFrame | None, files: Sequence[NumbersFile], tensors: pl.DataFrame
) -> pl.DataFrame:
    """The table `settings` with the rows of these files and of the batches in `tensors` behind the others."""
    first: dict[int, NumbersFile] = {}
    for file in files:
        rank = file.source.rank or 0
        if rank not in first or _begin(file) < _begin(first[rank]):
            first[rank] = file
    rows = [row for file in first.values() for row in (*_header_rows(file), *_state_rows(file))]
    rows += _batch_rows(first, tensors)
    own = pl.DataFrame(rows, schema=dict(schema.SETTINGS), orient="row")
    return own if before is None else pl.concat([before, own])


def _begin(file: NumbersFile) -> int:
    """The time of its header: the first part of a rank has the first steps."""
    return file.content.headers[0].time_ns or 0


SettingRow = tuple[int, str, int | None, str, str, str, int, int | None]


def _row(file: NumbersFile, name: str, value: str) -> SettingRow:
    header: NumbersHeader = file.content.headers[0]
    return file.source.rank or 0, header.host, header.pid, name, value, SOURCE, file.place, None


_SEED, _STATE = "torch.seed", "random state "
_LARGEST_SEED = 1 << 32
"""Seeds from here on are taken for those that torch draws where nobody sets one: it draws 64 bits."""


def _header_rows(file: NumbersFile) -> Iterator[SettingRow]:
    """The settings of the header. It is written when the recording starts, which may be before the job sets its seed:
    then the seed of the first step counts, and no random state of the header does."""
    settings = file.content.headers[0].settings
    at_start = next((value for name, value in settings if name == _SEED), None)
    in_step = next((state for _, name, state in file.content.random_states if name == SEED), None)
    is_early = at_start is not None and (_is_drawn(at_start) or in_step not in (None, at_start))
    for name, value in settings:
        if not is_early or not (name == _SEED or name.startswith(_STATE)):
            yield _row(file, name, value)
    if is_early and in_step is not None:
        yield _row(file, _SEED, f"not set (drawn: {in_step})" if _is_drawn(in_step) else in_step)


def _is_drawn(seed: str) -> bool:
    return seed.isdigit() and int(seed) >= _LARGEST_SEED


def _state_rows(file: NumbersFile) -> Iterator[SettingRow]:
    """The states of generators of torch at the end of each step, in one value."""
    steps: dict[int, list[str]] = {}
    for step, name, state in file.content.random_states:
        if name in _COMPARED:
            steps.setdefault(step, []).append(f"{name} {state}")
    for step, told in steps.items():
        yield _row(file, f"{RANDOM_STATES} of step {step}", ", ".join(sorted(told)))


def _batch_rows(files: dict[int, NumbersFile], tensors: pl.DataFrame) -> Iterator[SettingRow]:
    """A hash of all tensors of the batches of a step, for the first steps of each rank."""
    rows = tensors.lazy().filter(pl.col("site").cast(pl.String) == BATCH).drop_nulls(["hash", "step"])
    rows = rows.filter(pl.col("step").rank("dense").over("rank") <= MOST_STEPS).sort("order")
    weight = 2 * pl.int_range(pl.len(), dtype=pl.UInt64) + 1
    hashes = rows.group_by("rank", "step").agg((pl.col("hash") * weight).sum()).sort("rank", "step").collect()
    for rank, step, found in hashes.iter_rows():
        if rank in files:
            yield _row(files[rank], f"{BATCH} of step {step}", f"{found:016x}")
