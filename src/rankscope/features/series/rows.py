"""Table of the series of a job: loss, gradient norm and others by step, from all of its files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import polars as pl

from rankscope.assemble import file_names
from rankscope.features.series.read import json_series
from rankscope.features.series.read.event_files import is_event_file, read_event_file
from rankscope.features.series.read.log_series import read_log_series
from rankscope.features.series.read.run_options import (
    HEAD_BYTES,
    config_suffix,
    file_options,
    is_config_name,
    log_options,
    tracked_options,
)
from rankscope.features.series.read.scalar_rows import POINTS, with_segments
from rankscope.features.series.read.trackio_files import is_database, read_trackio_file, trackio_config
from rankscope.features.series.read.user_pattern import read_pattern_series
from rankscope.features.series.read.wandb_files import config_items, is_wandb_file, read_wandb_file
from rankscope.parsers import streams
from rankscope.parsers.config_documents import NoConfigError
from rankscope.parsers.contents import kinds_of
from rankscope.parsers.file_access import NotAFileError, OutsideError, open_regular
from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.parsers.line_blocks import is_text
from rankscope.parsers.streams import STREAM_ERRORS, TooLargeError
from rankscope.schema.option_sources import OptionSource, OptionTree, RunOptions
from rankscope.schema.tables import SCALARS

_HEAD_BYTES = 1 << 16
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_STATE = "trainer_state.json"
_DOCUMENT = re.compile(rb'\s*[\[{]\s*(?:\n|["{\[])')
_LINE_OF_JSON = re.compile(rb"\s*\{[^\n]*\}\s*(?:\n|$)")


class SeriesFiles(NamedTuple):
    """The series of files, and the reasons why files were not read."""

    scalars: pl.DataFrame
    """Columns of `SCALARS`."""
    problems: dict[str, str]
    """The reason for each file that should have been read, by its name."""
    options: RunOptions
    """The options of the trainer, as logs and configuration files tell them."""


class _OptionsRead:
    """The options of the files of a run, collected one file after the other."""

    def __init__(self) -> None:
        self.sources: list[OptionSource] = []
        self.unread: list[str] = []
        self.notes: list[str] = []
        self._forms: dict[str, dict[str, list[OptionTree]]] = {}
        self._resumed: list[int] = []

    def add_config(self, shown: str, data: bytes) -> bool:
        """Takes a configuration file; False if it is none."""
        try:
            source, notes = file_options(shown, data)
        except NoConfigError as error:
            self.unread.append(f"{shown}: {error}")
            return False
        self.sources.append(source)
        self.notes += [f"{shown}: {note}" for note in notes]
        return True

    def add_log(self, data: bytes) -> None:
        """Takes the beginning of a log."""
        found = log_options(data)
        self._resumed += found.resumed
        for form, options in found.forms.items():
            known = self._forms.setdefault(form, {})
            for name, value in options.items():
                values = known.setdefault(name, [])
                if value not in values:
                    values.append(value)

    def result(self) -> RunOptions:
        """The options of the run. Where the logs of its processes tell several values of a name, all of them count."""
        logs = [
            OptionSource(f"log: {form}", {name: _all_of(values) for name, values in known.items()}, is_file=False)
            for form, known in sorted(self._forms.items())
        ]
        resumed = tuple(dict.fromkeys(self._resumed))
        return RunOptions((*self.sources, *logs), resumed, tuple(self.unread), tuple(self.notes))


def _all_of(values: Sequence[OptionTree]) -> OptionTree:
    return values[0] if len(values) == 1 else " or ".join(sorted(map(str, values)))


def read_series(paths: Sequence[Path], pattern: re.Pattern[str] | None = None) -> pl.DataFrame:
    """The series of all files under `paths`, with the columns of `SCALARS`.

    A `pattern` of the user reads logs in place of the known forms. Raises FileNotFoundError for a missing path.
    """
    return load_series(paths, pattern).scalars


def load_series(
    paths: Sequence[Path], pattern: re.Pattern[str] | None = None, *, follow_links: bool = False
) -> SeriesFiles:
    """As `read_series`, with the problems of files; links are followed as by `walk_paths`."""
    walked = walk_paths(paths, follow_links=follow_links)
    found = [one for one in walked if one.problem is None and one.size and not file_names.is_part(one.shown)]
    names = sorted({name for one in found if (name := file_names.attempt_of(one.shown)) is not None})
    attempts = {name: number for number, name in enumerate(names)}
    frames: list[pl.DataFrame] = []
    problems: dict[str, str] = {}
    options = _OptionsRead()
    for one in _newest_states(found):
        try:
            points, problem = _file_points(one, pattern, options)
        except (NotAFileError, OutsideError, TooLargeError, OSError) as error:
            points, problem = None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if problem is not None:
            problems[one.shown] = problem
        if points is not None and points.height:
            attempt = attempts.get(file_names.attempt_of(one.shown) or "", 0)
            frames.append(_placed(points, one.shown, attempt))
    scalars = pl.concat(frames) if frames else SCALARS.empty()
    return SeriesFiles(scalars, problems, options.result())


def _newest_states(found: Sequence[FoundPath]) -> Iterator[FoundPath]:
    """The files without the states of earlier checkpoints, which the newest one repeats."""
    newest: dict[PurePosixPath, int] = {}
    numbers: dict[str, tuple[PurePosixPath, int]] = {}
    for one in found:
        path = PurePosixPath(one.shown)
        told = _CHECKPOINT.fullmatch(path.parent.name)
        if path.name == _STATE:
            above = path.parent.parent if told else path.parent
            number = int(told[1]) if told else 1 << 62
            numbers[one.shown] = above, number
            newest[above] = max(newest.get(above, 0), number)
    for one in found:
        told_number = numbers.get(one.shown)
        if told_number is None or newest[told_number[0]] == told_number[1]:
            yield one


def _file_points(
    one: FoundPath, pattern: re.Pattern[str] | None, options: _OptionsRead
) -> tuple[pl.DataFrame | None, str | None]:
    """The values in a file, None if it is of another kind, and a problem; options are added to those known."""
    with open_regular(one.path, one.within) as plain:
        head = plain.read(streams.HEAD_BYTES)
        plain.seek(0)
        stream = streams.unpack_stream(plain, head, one.size) or plain
        first, problem = _first_bytes(stream)
        if problem is not None or not first:
            return None, problem
        if streams.is_tar(head) or streams.is_zip(head):
            inside = "an archive: series and configurations in it are not read"
            return None, inside if _ARCHIVE.search(one.shown) else None
        stream = streams.replayed(first, stream)
        if is_wandb_file(first) or is_database(first) or is_text(first):
            told = stream.read(HEAD_BYTES + 1)
            if _takes_options(one, first, told, options):
                return None, None
            stream = streams.replayed(told, stream)
        return _points_of(first, stream, one.size, pattern)


_ARCHIVE = re.compile(r"\.(?:tar|tgz|zip|tbz2?|txz|tzst)$|\.tar\.\w+$", re.IGNORECASE)
_TRACKED = "tracked configuration"
"""The name of the options that wandb or trackio keep."""


def _takes_options(one: FoundPath, first: bytes, told: bytes, options: _OptionsRead) -> bool:
    """Adds the options in the beginning of a file to those known; whether it is a configuration and nothing else."""
    if is_wandb_file(told):
        options.sources.append(OptionSource(_TRACKED, tracked_options(config_items(told))))
        return False
    if is_database(told):
        options.sources.append(OptionSource(_TRACKED, tracked_options(trackio_config(told))))
        return False
    name = PurePosixPath(one.shown).name
    is_json = config_suffix(name) == "json"
    if is_config_name(name) and (is_json or not kinds_of(first, one.size)):
        return options.add_config(one.shown, told) or not is_json
    if is_json and one.given and _is_document(first) and not kinds_of(first, one.size):
        points = json_series.read_json_series(told)
        return (points is None or points.is_empty()) and options.add_config(one.shown, told)
    if not (_is_document(told) or _is_table(told)):
        options.add_log(told[:HEAD_BYTES])
    return False


def _first_bytes(stream: IO[bytes]) -> tuple[bytes, str | None]:
    try:
        return stream.read(_HEAD_BYTES), None
    except STREAM_ERRORS as error:
        return b"", streams.stream_problem(error)


def _points_of(
    first: bytes, stream: IO[bytes], size: int, pattern: re.Pattern[str] | None
) -> tuple[pl.DataFrame | None, str | None]:
    """The values in a stream, by its first bytes."""
    binary = next((read for test, read in _BINARY if test(first)), None)
    if binary is not None:
        data, problem = streams.read_all(stream)
        return binary(data), problem
    if not is_text(first) or kinds_of(first, size):
        return None, None
    if pattern is None and (_is_document(first) or _is_table(first)):
        data, problem = streams.read_all(stream)
        for read in (json_series.read_json_series, json_series.read_csv_series, json_series.read_pairs):
            if (points := read(data)) is not None:
                return points, problem
        stream = io.BytesIO(data)
    try:
        return (read_log_series(stream) if pattern is None else read_pattern_series(stream, pattern)), None
    except (TooLargeError, *STREAM_ERRORS) as error:
        return None, streams.stream_problem(error)


_BINARY = ((is_event_file, read_event_file), (is_wandb_file, read_wandb_file), (is_database, read_trackio_file))


def _is_document(first: bytes) -> bool:
    """Whether a text may be one JSON document, and not one in each line."""
    return _DOCUMENT.match(first) is not None and (
        _LINE_OF_JSON.match(first) is None or b'"values"' in first or b"log_history" in first
    )


def _is_table(first: bytes) -> bool:
    """Whether a text may be a table with names in its first line, or a golden file of pairs."""
    line, _, _ = first.partition(b"\n")
    return json_series.is_pair(line) or json_series.table_names(line.decode("utf-8-sig", "replace"))[0] != ""


def _placed(points: pl.DataFrame, shown: str, attempt: int) -> pl.DataFrame:
    """The values of a file as rows of `SCALARS`."""
    rank = file_names.rank_of(shown) if file_names.says_rank(shown) else None
    rows = points.select(*POINTS).with_columns(
        pl.col("rank").fill_null(pl.lit(rank, pl.Int32)),
        pl.lit(attempt, pl.UInt16).alias("attempt"),
        pl.lit(shown).alias("file"),
    )
    return with_segments(_exact_columns(rows)).select(*SCALARS).cast(SCALARS)  # type: ignore[arg-type]


def _exact_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows whose short numbers are exact, too, where others of their series have all digits of a double.

    Python prints 0.0002 beside 0.0006000000000000001.
    """
    whole = (pl.col("resolution") == 0) & pl.col("value").is_finite() & (pl.col("value") != pl.col("value").floor())
    return rows.with_columns(
        pl.when(whole.any().over("raw_name")).then(0.0).otherwise("resolution").alias("resolution")
    )
