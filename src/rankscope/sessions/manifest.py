"""The manifest of a session: what wrote it, of what, and what must be there. A JSON file in its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from rankscope import __version__
from rankscope.parsers.files.directory_walk import SESSION_FILE
from rankscope.report.output_files import overwrite
from rankscope.schema.dataset import ALL_PARTS, ReadParts
from rankscope.sessions.parquet_tables import MOST_RANKS, SessionError, session_file

FORMAT = 1
"""Number of the form of sessions; another one is refused by name."""
MOST_PARTS = 1 << 16
_MOST_BYTES = 16 << 20


Rank = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
RankCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]


class ReadingOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of the user that decide what is read."""

    rank_from: str | None = None
    world_size: int | None = None
    attempt: int | None = None
    ranks: tuple[Rank, ...] | None = None
    groups: tuple[str, ...] = ()
    last: Annotated[int, msgspec.Meta(gt=0)] | None = None
    follow_links: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a session. Either `rows` or `parts` is filled."""

    format: int
    rankscope: str = __version__
    """The version that wrote it."""
    root: str = ""
    """The paths of the user."""
    asked: ReadingOptions = ReadingOptions()
    attempt: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0
    world_size: RankCount = 0
    left_out: tuple[Rank, ...] = ()
    beside: tuple[tuple[Rank, ...], str] = ((), "")
    """Ranks whose dumps lie beside the given files, and their directory."""
    part: ReadParts = ALL_PARTS
    """The part of the job that the tables hold."""
    rows: dict[str, Annotated[int, msgspec.Meta(gt=0)]] = {}
    """Rows of each table that has any."""
    parts: Annotated[int, msgspec.Meta(ge=0, le=MOST_PARTS)] = 0
    """Number of parts, each the share of one task; 0 for tables."""


def read_manifest(directory: Path, within: str = "") -> Manifest:
    """The manifest of a session. Raises SessionError for one of another form, and for anything else.

    `within` is that of `session_file`.
    """
    with session_file(directory / SESSION_FILE, within) as stream:
        text = stream.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise SessionError(f"{SESSION_FILE} is too large for a manifest")
    try:
        form = msgspec.json.decode(text, type=_Form)
        if form.format != FORMAT:
            raise SessionError(f"it has form {form.format}, of rankscope {form.rankscope:.20}; this one reads {FORMAT}")
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SessionError(f"{SESSION_FILE} is no manifest: {error}") from error


class _Form(msgspec.Struct):
    format: int
    rankscope: str = "of an unknown version"


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Writes or replaces the manifest as a whole. Raises OSError."""
    overwrite(directory / SESSION_FILE, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
