"""Series in logs of any program: lines with a step and values, as `key: value`, `key=value`, `key value` or JSON.

Lines with a word of training are taken out of the log. Those that differ only in their numbers are read together, by
the recipe of one of them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import polars as pl

from rankscope.parsers.logs.decode import log_blocks
from rankscope.parsers.logs.nccl.packed_words import PAD_BYTES
from rankscope.parsers.logs.record_reader import COLOUR, LINE_BYTES, unwrapped
from rankscope.parsers.series.json_series import json_line
from rankscope.parsers.series.line_recipes import LineRecipe, StepPlace, line_recipe
from rankscope.parsers.series.printed_numbers import LARGEST_STEP, NUMBER, numbers_of, steps_of
from rankscope.parsers.series.scalar_rows import MOST_POINTS, POINTS, Point, points_frame

WORDS = (b"loss", b"step", b"iter", b"Loss", b"Step", b"Iter", b"it/s", b"s/it", b"pdates", b"[batch=")
"""Words of lines with values of training, and of the progress bars that tell the step."""
_WORD = re.compile("|".join(re.escape(word.decode()) for word in WORDS))
_HEADS = (b"[step=", b"[batch=")
"""Beginnings of prints with a value in each of the indented lines that follow (OLMo, Composer)."""
MOST_HELD = 1 << 16
"""Lines that are read together."""
MOST_RECIPES = 1 << 14
_SHAPE = "shape"
_BARS = re.compile(r"[█▏▎▍▌▋▊▉#━╸╺─]+[█▏▎▍▌▋▊▉#━╸╺─ ]*|(?<=\|) +(?=\|)")
_TIME = r"([0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T_-][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,:][0-9]{1,9})?)"
_SECOND = 1_000_000_000


class _Line(NamedTuple):
    text: str
    line: int


def read_log_series(data: bytes | IO[bytes]) -> pl.DataFrame:
    """The series of a log, with the columns of POINTS, in the order of the log."""
    stream: IO[bytes] = io.BytesIO(data) if isinstance(data, bytes) else data
    reader = _LogReader()
    held: list[bytes] = []
    numbers: list[int] = []
    count = 0
    for block in log_blocks(stream):
        text = bytes(memoryview(block.padded)[PAD_BYTES : PAD_BYTES + block.size])
        for line, number in _candidates(text, count):
            held.append(line)
            numbers.append(number)
        count += text.count(b"\n")
        if len(held) >= MOST_HELD:
            reader.add(held, numbers)
            held, numbers = [], []
        if reader.rows > MOST_POINTS:
            break
    reader.add(held, numbers)
    return reader.result()


def _candidates(text: bytes, count: int) -> Iterator[tuple[bytes, int]]:
    """The lines with one of WORDS, and their numbers; `count` lines are before the text."""
    starts: set[int] = set()
    for word in WORDS:
        at = text.find(word)
        while at >= 0:
            starts.add(text.rfind(b"\n", 0, at) + 1)
            end = text.find(b"\n", at)
            at = text.find(word, end) if end >= 0 else -1
    place = 0
    for start in sorted(starts):
        if start < place:
            continue
        count += text.count(b"\n", place, start)
        place = start
        end = text.find(b"\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if any(head in line for head in _HEADS):
            yield _with_values(text, line, end), count + 1
            count, place = count + 1, end + 1
        elif len(line) <= LINE_BYTES or b"\r" in line:
            yield line, count + 1


def _with_values(text: bytes, head: bytes, end: int) -> bytes:
    """A head with the indented lines that follow it in one line."""
    parts = [head.rstrip(b": \r")]
    while end >= 0 and text[end + 1 : end + 2] in (b" ", b"\t") and len(parts) < 1000:
        after = text.find(b"\n", end + 1)
        parts.append(text[end + 1 : after if after >= 0 else len(text)].strip())
        end = after
    return b" | ".join(parts)


class _LogReader:
    """Reads lines into rows, and remembers the recipe of each shape."""

    def __init__(self) -> None:
        self.rows = 0
        self._recipes: dict[str, LineRecipe | None] = {}
        self._frames: list[pl.DataFrame] = []
        self._bars: list[tuple[int, int]] = []
        """Order and step of progress bars."""
        self._order = 0

    def add(self, held: list[bytes], numbers: list[int]) -> None:
        """Takes lines in the order of the log."""
        if not held:
            return
        texts, places, documents = _texts(held, numbers)
        if documents:
            self._keep(points_frame(documents, "json").with_columns(order=pl.col("line") * 0 + self._order))
        lines = pl.Series("text", texts, pl.String)
        shapes = lines.str.replace_all(NUMBER, "\0")
        table = pl.DataFrame({_SHAPE: shapes, "line": places}).with_row_index("row")
        for shape, rows in table.group_by(_SHAPE, maintain_order=True).agg("row").iter_rows():
            self._read(str(shape), lines, table["line"], np.asarray(rows, np.int64))
        self._order += len(texts) + 1

    def result(self) -> pl.DataFrame:
        """The rows of the log."""
        if not self._frames:
            return pl.DataFrame(schema=POINTS)
        rows = pl.concat(self._frames, how="diagonal").sort("order", maintain_order=True)
        return with_steps_of_bars(rows, self._bars).select(*POINTS).cast(POINTS)  # type: ignore[arg-type]

    def _keep(self, rows: pl.DataFrame) -> None:
        self.rows += rows.height
        self._frames.append(rows)

    def _read(self, shape: str, lines: pl.Series, places: pl.Series, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        if shape not in self._recipes:
            if len(self._recipes) >= MOST_RECIPES:
                self._recipes.clear()
            self._recipes[shape] = line_recipe(lines[int(rows[0])])
        recipe = self._recipes[shape]
        if recipe is None:
            return
        own = lines.gather(rows)
        told = own.str.extract_all(NUMBER)
        if told.list.len().min() != recipe.numbers:
            return
        for part, of_part in _parts(recipe, own, told):
            index = np.arange(len(own)) if part is None else part
            kept = told if part is None else told.gather(part)
            order = pl.Series("order", rows[index] + self._order)
            read_lines = own if part is None else own.gather(part)
            steps = _steps(of_part.step, kept)
            if not of_part.values:
                self._bars.extend(zip(order.to_list(), steps["step"].to_list(), strict=True))
                continue
            frame = steps.with_columns(order, places.gather(rows[index]).alias("line"), _times(of_part, read_lines))
            self._keep(_values(of_part, kept, frame))


def _texts(held: list[bytes], numbers: list[int]) -> tuple[list[str], list[int], list[Point]]:
    """Lines without colours, with one text for each state of a progress bar, and the values of lines of JSON."""
    data = b"\n".join(held)
    data = COLOUR.sub(b"", data) if b"\x1b" in data else data
    texts = data.decode("utf-8", "replace").split("\n")
    if b"\r" not in data and b"{" not in data and b"|" not in data:
        return texts, numbers, []
    kept: list[_Line] = []
    documents: list[Point] = []
    for text, number in zip(texts, numbers, strict=True):
        if text.startswith("{"):
            text = _read_document(text, number, documents)
        for part in text.split("\r") if "\r" in text else (text,):
            if text is part or _WORD.search(part):
                bare = _BARS.sub("", part) if "%|" in part else part
                kept.append(_Line(bare, number))
    return [line.text for line in kept], [line.line for line in kept], documents


def _read_document(text: str, number: int, documents: list[Point]) -> str:
    """Adds the values of a line of JSON, and returns its text if it is one that a collector kept as JSON."""
    if (inner := unwrapped(text.encode("utf-8", "replace"))) is not None:
        return inner[0].decode("utf-8", "replace")
    found = json_line(text, number)
    if found is None:
        return text
    documents.extend(found)
    return ""


def _parts(
    recipe: LineRecipe, lines: pl.Series, told: pl.Series
) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.int64]] | None, LineRecipe]]:
    """The lines with equal numbers in names and prefixes, by their places, with their recipes; None for all."""
    if not recipe.fixed:
        yield None, recipe
        return
    names = pl.DataFrame({str(at): told.list.get(at) for at in recipe.fixed}).with_row_index("row")
    for *_, rows in names.group_by(*map(str, recipe.fixed), maintain_order=True).agg("row").iter_rows():
        own = line_recipe(lines[rows[0]])
        if own is not None:
            yield np.asarray(rows, np.int64), own


def _steps(place: StepPlace | None, told: pl.Series) -> pl.DataFrame:
    if place is None:
        nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(told))
        return pl.DataFrame({"step": nothing, "step_hi": nothing})
    low, high = steps_of(told.list.get(place.number))
    if place.epoch is not None and place.total is not None:
        epoch, total = steps_of(told.list.get(place.epoch))[0], steps_of(told.list.get(place.total))[0]
        first = 0 if (epoch.min() or 0) == 0 else place.first_epoch
        whole = (epoch - first).cast(pl.Float64) * total.cast(pl.Float64) + low.cast(pl.Float64)
        low = whole.set(whole > LARGEST_STEP, None).cast(pl.Int64)
    return pl.DataFrame({"step": low, "step_hi": high})


def _times(recipe: LineRecipe, lines: pl.Series) -> pl.Series:
    """The times before the values, as nanoseconds since the epoch."""
    if recipe.zone_ns is None:
        return pl.Series("time_ns", [None], dtype=pl.Int64).new_from_index(0, len(lines))
    time = lines.str.extract(_TIME)
    date = time.str.slice(0, 10).str.replace_all("/", "-", literal=True)
    second = (date + " " + time.str.slice(11, 8)).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    rest = time.str.slice(20).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return (second.dt.timestamp("us") * 1000 + rest - recipe.zone_ns).alias("time_ns")


def _values(recipe: LineRecipe, told: pl.Series, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of lines with one recipe: all values of the first name, then of the next, to be sorted by `order`."""
    parts = []
    for place in recipe.values:
        own = place.quantity
        values, resolutions = numbers_of(told.list.get(place.number), own.is_count)
        factor = own.factor
        parts.append(
            frame.with_columns(
                (values if factor == 1.0 else values * factor).alias("value"),
                (resolutions if factor == 1.0 else resolutions * factor).alias("resolution"),
                pl.lit(recipe.rank, pl.Int32).alias("rank"), pl.lit(own.name).alias("name"),
                pl.lit(own.raw_name).alias("raw_name"), pl.lit("log").alias("source"),
            )
        )  # fmt: skip
    return pl.concat(parts).filter(pl.col("value").is_not_null())


def with_steps_of_bars(rows: pl.DataFrame, bars: list[tuple[int, int]]) -> pl.DataFrame:
    """Rows with the step of the progress bar that is drawn again behind a print without a step, as tqdm does it.

    A bar counts only if the next print without a step is behind it.
    """
    if not bars or not rows["step"].has_nulls():
        return rows
    prints = rows.filter(pl.col("step").is_null()).select("order").unique().sort("order")
    redrawn = pl.DataFrame(bars, schema={"bar": pl.Int64, "drawn": pl.Int64}, orient="row").sort("bar")
    found = prints.with_columns(
        pl.col("order").shift(-1).fill_null(np.iinfo(np.int64).max).alias("next")
    ).join_asof(redrawn, left_on="order", right_on="bar", strategy="forward")  # fmt: skip
    found = found.filter(pl.col("bar") < pl.col("next")).select("order", "drawn")
    told = rows.join(found, on="order", how="left", maintain_order="left")
    return told.with_columns(pl.coalesce("step", "drawn").alias("step"))
