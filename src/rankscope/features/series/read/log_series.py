"""Series in logs of any program: lines with a step and values, as `key: value`, `key=value`, `key value` or JSON.

Lines with a word of training are taken out of the log. Those that differ only in their numbers are read together, by
the recipe of one of them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO

import numpy as np
import polars as pl

from rankscope.features.series.read.json_series import json_line
from rankscope.features.series.read.line_recipes import LOST_MEAN, NUMBERS, LineRecipe, StepPlace, line_recipe
from rankscope.features.series.read.printed_numbers import (
    LARGEST_STEP,
    NUMBER,
    numbers_of,
    printed_number,
    scaled_steps,
    steps_of,
)
from rankscope.features.series.read.scalar_rows import MOST_POINTS, POINTS, Point, points_frame
from rankscope.parsers.line_blocks import LINE_BYTES, line_blocks
from rankscope.parsers.line_prefixes import COLOUR, unwrapped

WORDS = "[Ll]oss|LOSS|[Ss]tep|STEP|[Ii]ter|pdates|it/s|s/it|\\[batch=|[Ee]poch"
"""Words of lines with values of training, and of the progress bars that tell the step."""
HEADS = ["[step=", "[batch=", "= Step "]
"""Words of the first line of a print that goes on in the lines below it."""
_LABEL = rb"(?:\d{1,6}|\[\w{1,40}\]):[ \t](?=[ \t])"
_HEAD = re.compile(rb"(\[(?:step|batch)=[^\n]{0,200})((?:\n(?:%b)?[ \t][^\n]{0,400}){1,400})" % _LABEL)
"""A print with a value in each of the indented lines that follow (OLMo, Composer)."""
_BULLET = "\u2022".encode()
_TITLE = re.compile(rb"(=== Step \d{1,9}/\d{1,9} ===+)((?:\n(?![^\n]{0,80}=== Step )[^\n]{0,400}){1,200})")
"""The title of a step, with a value in each item of the lists that follow (NeMo-RL)."""
MOST_HELD = 1 << 16
"""Lines that are read together."""
FEW_LINES = 32
"""Lines of one form, up to which they are read one by one: each form costs polars some milliseconds."""
MOST_RECIPES, MOST_TRIED = 1 << 12, 1 << 17
"""Most forms of lines with values, and most forms that are tried; known ones are read to the end of the log."""
_BARS = r"[█▏▎▍▌▋▊▉#━╸╺─]+[█▏▎▍▌▋▊▉#━╸╺─ ]*"
_TIME = r"([0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T_-][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,:][0-9]{1,9})?)"
_PLAIN_TIME = re.compile(_TIME)
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]
_COLOUR = COLOUR.pattern.decode("latin-1")


def read_log_series(data: bytes | IO[bytes]) -> pl.DataFrame:
    """The series of a log, with the columns of POINTS, in the order of the log."""
    stream: IO[bytes] = io.BytesIO(data) if isinstance(data, bytes) else data
    reader, held, count = SeriesReader(), list[pl.DataFrame](), 0
    for block in line_blocks(stream):
        text = block.text
        held.append(value_lines(text, count))
        count += text.count(b"\n")
        if sum(len(lines) for lines in held) >= MOST_HELD:
            reader.add(pl.concat(held))
            held = []
        if reader.rows > MOST_POINTS:
            break
    if held:
        reader.add(pl.concat(held))
    return reader.result()


def value_lines(text: bytes, count: int) -> pl.DataFrame:
    """The lines with one of WORDS, without colours, and their numbers; `count` lines are before the text."""
    if b"[step=" in text or b"[batch=" in text:
        text = _HEAD.sub(_with_values, text)
    if b"= Step " in text:
        text = _TITLE.sub(_with_bullets, text)
    lines = pl.Series("text", text.decode("utf-8", "replace").split("\n"), pl.String)
    return plain_lines(lines.to_frame().with_row_index("line", count + 1).filter(pl.col("text").str.contains(WORDS)))


def plain_lines(rows: pl.DataFrame) -> pl.DataFrame:
    """Lines with one of WORDS, without colours; each state of a progress bar is one."""
    if rows["text"].str.contains("\x1b", literal=True).any():
        rows = rows.with_columns(pl.col("text").str.replace_all(_COLOUR, ""))
    if rows["text"].str.contains("\r", literal=True).any():
        rows = rows.with_columns(pl.col("text").str.strip_chars_end("\r").str.split("\r")).explode("text")
        rows = rows.filter(pl.col("text").str.contains(WORDS))
    return rows.filter(pl.col("text").str.len_bytes() <= LINE_BYTES).cast({"line": pl.Int64})


def _with_values(found: re.Match[bytes]) -> bytes:
    """A head with the indented lines behind it in one line; empty lines keep the numbers of the others."""
    lines = [re.sub(_LABEL, b"", line, count=1) for line in found[2].split(b"\n")[1:]]
    return b" | ".join([found[1].rstrip(b": \r"), *(line.strip() for line in lines)]) + b"\n" * len(lines)


def _with_bullets(found: re.Match[bytes]) -> bytes:
    """A title with the items of the lists behind it in one line; empty lines keep the numbers of the others."""
    lines = found[2].split(b"\n")[1:]
    items = [line.partition(_BULLET)[2].strip() for line in lines if _BULLET in line]
    return b" | ".join([found[1].strip(b" ="), *items]) + b"\n" * len(lines)


class SeriesReader:
    """Reads lines into rows, and remembers the recipe of each shape."""

    def __init__(self) -> None:
        self.rows = 0
        self._recipes: dict[str, LineRecipe] = {}
        self._tried = 0
        self._from_zero = False
        self._few: list[tuple[object, ...]] = []
        self._frames: list[pl.DataFrame] = []
        self._bars: list[pl.DataFrame] = []
        """Order, step and total of progress bars without values."""
        self._order = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Takes lines in the order of the log."""
        if rows["text"].str.contains("^ ?\\{").any():
            rows = self._documents(rows)
        if rows["text"].str.contains("%|", literal=True).any():
            rows = rows.with_columns(pl.col("text").str.replace_all(_BARS, ""))
        text = pl.col("text")
        if rows["text"].str.contains(LOST_MEAN).any():
            text = text.str.replace_all(LOST_MEAN, "(lost)")
        table = rows.with_columns(text.str.replace_all(NUMBER, "\0").alias("shape")).with_row_index("row")
        for shape, places in table.group_by("shape", maintain_order=True).agg("row").iter_rows():
            whole = len(places) == len(rows)
            self._read(str(shape), rows["text"], rows["line"], None if whole else np.asarray(places, np.int64))
        if self._few:
            few = pl.DataFrame(self._few, schema=_FEW_COLUMNS, orient="row").sort("order", maintain_order=True)
            self._see_epochs(few["epoch"])
            self._keep(_few_frame(few.with_columns(first=pl.lit(0, pl.Int64)) if self._from_zero else few))
        self._order += len(rows) + 1
        self._few = []

    def _see_epochs(self, texts: pl.Series) -> None:
        """Notes whether the log counts epochs from 0."""
        self._from_zero = self._from_zero or steps_of(texts)[0].min() == 0

    def _documents(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Reads lines of JSON, and returns the lines with the text that a collector kept as JSON."""
        found: dict[int, str] = {}
        points: list[Point] = []
        orders: list[int] = []
        begins = rows["text"].str.contains("^ ?\\{")
        for at in begins.arg_true().to_list():
            text, line = rows["text"][at], rows["line"][at]
            if (inner := unwrapped(text.encode("utf-8", "replace"))) is not None:
                found[at] = inner[0].decode("utf-8", "replace")
            elif (told := json_line(text, line)) is not None:
                found[at] = ""
                points.extend(told)
                orders.extend([self._order + at] * len(told))
        if points:
            found_here = points_frame(points, "json").with_columns(pl.Series("order", orders, pl.Int64))
            self._keep(found_here.cast({"source": pl.String}))
        texts = rows["text"].scatter([*found], [*found.values()]) if found else rows["text"]
        return rows.with_columns(texts)

    def result(self) -> pl.DataFrame:
        """The rows since the last call."""
        frames, bars = self._frames, self._bars
        self.rows, self._frames, self._bars = 0, [], []
        if not frames:
            return pl.DataFrame(schema=POINTS)
        rows = pl.concat(frames, how="diagonal")
        rows = rows if rows["order"].is_sorted() else rows.sort("order", maintain_order=True)
        return with_steps_of_bars(rows, bars).select(*POINTS).cast(POINTS)  # type: ignore[arg-type]

    def _keep(self, rows: pl.DataFrame) -> None:
        self.rows += rows.height
        self._frames.append(rows)

    def _read(self, shape: str, lines: pl.Series, places: pl.Series, rows: _Places | None) -> None:
        """Reads the lines of a shape, by their places; None for all lines."""
        recipe = self._recipes.get(shape)
        if recipe is None and len(self._recipes) < MOST_RECIPES and self._tried < MOST_TRIED:
            recipe = line_recipe(lines[0 if rows is None else int(rows[0])])
            self._tried += 1
        if recipe is None:
            return
        self._recipes[shape] = recipe
        rows = np.arange(len(lines)) if rows is None else rows
        if len(rows) <= FEW_LINES and recipe.values:
            for at in rows.tolist():
                self._few.extend(_line_values(recipe, lines[at], places[at], at + self._order))
            return
        own = lines if len(rows) == len(lines) else lines.gather(rows)
        told = own.str.extract_all(NUMBER)
        if told.list.len().min() != recipe.numbers:
            return
        for part, of_part in _parts(recipe, own, told):
            index = rows if part is None else rows[part]
            if len(index) <= FEW_LINES and of_part.values:
                for at in index.tolist():
                    alike = of_part._replace(fixed=())
                    self._few.extend(_line_values(alike, lines[at], places[at], at + self._order))
                continue
            read = (own, told) if part is None else (own.gather(part), told.gather(part))
            self._read_part(of_part, *read, places.gather(index), pl.Series("order", index + self._order))

    def _read_part(
        self, recipe: LineRecipe, lines: pl.Series, told: pl.Series, places: pl.Series, order: pl.Series
    ) -> None:
        place = recipe.step
        if place is not None and place.epoch is not None:
            self._see_epochs(told.list.get(place.epoch))
            place = place._replace(first_epoch=0) if self._from_zero else place
        steps = _steps(place, told)
        if recipe.values:
            self._keep(_values(recipe, told, steps.with_columns(order, places, _times(recipe, lines))))
        else:
            self._bars.append(_bars(recipe.step, told, steps["step"], order))


_FEW_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "step_text": pl.String, "factor": pl.Float64, "epoch": pl.String, "total": pl.String, "first": pl.Int64,
    "time": pl.String, "zone_ns": pl.Int64, "order": pl.Int64, "line": pl.Int64, "rank": pl.Int32, "name": pl.String,
    "raw_name": pl.String, "value": pl.Float64, "resolution": pl.Float64,
}  # fmt: skip


def _line_values(recipe: LineRecipe, text: str, line: int, order: int) -> Iterator[tuple[object, ...]]:
    """The values of one line, with the columns of _FEW_COLUMNS."""
    own = line_recipe(text) if recipe.fixed else recipe
    told = NUMBERS.findall(text)
    if own is None or len(told) != own.numbers:
        return
    place = own.step or StepPlace(-1)
    step = told[place.number] if own.step is not None else None
    in_epoch = place.epoch is not None and place.total is not None
    epoch, total = (told[place.epoch or 0], told[place.total or 0]) if in_epoch else (None, None)
    time = _PLAIN_TIME.search(text) if own.zone_ns is not None else None
    front = (
        step,
        place.factor,
        epoch,
        total,
        place.first_epoch,
        time[1] if time is not None else None,
        own.zone_ns,
        order,
        line,
    )
    for value in own.values:
        number = printed_number(told[value.number], value.quantity.is_count)
        if number is not None:
            name, raw_name, factor = value.quantity
            yield (*front, own.rank, name, raw_name, number.value * factor, number.resolution * factor)


def _few_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Values of lines that were read one by one, with the columns of POINTS."""
    low, high = scaled_steps(frame["step_text"], frame["factor"])
    epoch, total = steps_of(frame["epoch"])[0], steps_of(frame["total"])[0]
    frame = frame.with_columns(low.alias("step"), high.alias("step_hi"), epoch.alias("epoch"), total.alias("total"))
    before = (pl.col("epoch") - pl.col("first")).cast(pl.Float64) * pl.col("total")
    whole = before.fill_null(0.0) + pl.col("step").cast(pl.Float64)
    return frame.with_columns(
        pl.when(whole <= LARGEST_STEP).then(whole).cast(pl.Int64).alias("step"),
        pl.lit("log").alias("source"),
        (time_ns(frame["time"]) - frame["zone_ns"]).alias("time_ns"),
    ).select("order", *POINTS)


def _parts(recipe: LineRecipe, lines: pl.Series, told: pl.Series) -> Iterator[tuple[_Places | None, LineRecipe]]:
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
    text = told.list.get(place.number)
    low, high = scaled_steps(text, pl.Series([place.factor]).new_from_index(0, len(text)))
    if place.epoch is not None and place.total is not None:
        epoch, total = steps_of(told.list.get(place.epoch))[0], steps_of(told.list.get(place.total))[0]
        whole = (epoch - place.first_epoch).cast(pl.Float64) * total.cast(pl.Float64) + low.cast(pl.Float64)
        low = whole.set(whole > LARGEST_STEP, None).cast(pl.Int64)
    return pl.DataFrame({"step": low, "step_hi": high})


def _times(recipe: LineRecipe, lines: pl.Series) -> pl.Series:
    """The times before the values, as nanoseconds since the epoch."""
    if recipe.zone_ns is None:
        return pl.Series("time_ns", [None], dtype=pl.Int64).new_from_index(0, len(lines))
    return (time_ns(lines.str.extract(_TIME)) - recipe.zone_ns).alias("time_ns")


def time_ns(time: pl.Series) -> pl.Series:
    """Times of the form _TIME as nanoseconds since the epoch."""
    date = time.str.slice(0, 10).str.replace_all("/", "-", literal=True)
    second = (date + " " + time.str.slice(11, 8)).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    rest = time.str.slice(20).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return second.dt.timestamp("us") * 1000 + rest


def _values(recipe: LineRecipe, told: pl.Series, lines: pl.DataFrame) -> pl.DataFrame:
    """The rows of lines with one recipe: one for each value, in the order of the lines."""
    names, columns = [place.quantity for place in recipe.values], []
    for place in recipe.values:
        values, resolutions = numbers_of(told.list.get(place.number), place.quantity.is_count)
        factor = place.quantity.factor
        columns.append((values * factor, resolutions * factor) if factor != 1.0 else (values, resolutions))
    each = np.tile(np.arange(len(names)), len(told))
    rows = lines[np.repeat(np.arange(len(told)), len(names))] if len(names) > 1 else lines
    rows = rows.with_columns(
        pl.Series("value", np.column_stack([values.to_numpy() for values, _ in columns]).ravel()),
        pl.Series("resolution", np.column_stack([sizes.to_numpy() for _, sizes in columns]).ravel()),
        pl.Series("name", [name.name for name in names], pl.String).gather(each),
        pl.Series("raw_name", [name.raw_name for name in names], pl.String).gather(each),
        pl.lit(recipe.rank, pl.Int32).alias("rank"),
        pl.lit("log").alias("source"),
    )
    broken = np.column_stack([values.is_null().to_numpy() for values, _ in columns]).ravel()
    return rows.filter(~pl.Series(broken)) if broken.any() else rows


def _bars(place: StepPlace | None, told: pl.Series, steps: pl.Series, order: pl.Series) -> pl.DataFrame:
    totals = None if place is None or place.total is None else steps_of(told.list.get(place.total))[0]
    return pl.DataFrame({"bar": order, "drawn": steps}).with_columns(
        (pl.lit(None, pl.Int64) if totals is None else totals).alias("total")
    )


def with_steps_of_bars(rows: pl.DataFrame, bars: list[pl.DataFrame]) -> pl.DataFrame:
    """Rows with the step of the progress bar that is drawn again behind a print without a step, as tqdm does it.

    Of bars with several totals those count that follow most of the prints: others are of an evaluation.
    """
    if not bars or not rows["step"].has_nulls():
        return rows
    prints = rows.filter(pl.col("step").is_null()).select("order").unique().sort("order")
    prints = prints.with_columns(pl.col("order").shift(-1).fill_null(np.iinfo(np.int64).max).alias("next"))
    drawn = pl.concat(bars).sort("bar")
    total = _redrawn(prints, drawn)["total"].mode().max()
    found = _redrawn(prints, drawn.filter(pl.col("total").eq_missing(pl.lit(total)))).select("order", "drawn")
    told = rows.join(found, on="order", how="left", maintain_order="left")
    return told.with_columns(pl.coalesce("step", "drawn").alias("step"))


def _redrawn(prints: pl.DataFrame, drawn: pl.DataFrame) -> pl.DataFrame:
    """The prints with the first bar behind each, before the next print."""
    found = prints.join_asof(drawn, left_on="order", right_on="bar", strategy="forward")
    return found.filter(pl.col("bar") < pl.col("next"))
