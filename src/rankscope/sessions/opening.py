"""Opening of a session: its tables as a Dataset, or its parts, which are assembled as if one task had read them all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.assemble.held_sources import NoMemoryError, RingRoom
from rankscope.sessions.manifest import Manifest, ReadingOptions, read_manifest
from rankscope.sessions.parquet_tables import SessionError
from rankscope.sessions.session_files import read_dataset
from rankscope.sessions.shares import Share

if TYPE_CHECKING:
    from rankscope.assemble.load import LoadOptions
    from rankscope.schema import Dataset
    from rankscope.sessions.shard_parts import ShardPart

LATE = "it came after its part of the session was written"


def open_session(
    directory: Path, options: LoadOptions, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Dataset:
    """The Dataset of a session; `progress` gets the parts done and all. Raises SessionError, with its directory."""
    try:
        within = "" if options.follow_links else os.path.realpath(directory)
        manifest = read_manifest(directory, within)
        if options.errors is not None:
            raise SessionError("its logs are read already: --errors goes with ingest")
        if manifest.parts:
            return _merged(directory, manifest, options, progress, within)
        if options.attempt is not None and options.attempt != manifest.attempt:
            raise SessionError(f"it holds attempt {manifest.attempt} only; ingest the files with --attempt")
        for name in ("rank_from", "world_size"):
            asked = getattr(options, name)
            if asked is not None and asked != getattr(manifest.asked, name):
                raise SessionError(f"it was read without this --{name.replace('_', '-')}; give it to ingest")
        return read_dataset(directory, manifest, options.memory, within)
    except SessionError as error:
        raise SessionError(f"{directory}: this session cannot be opened: {error}") from error


def asked_of(options: LoadOptions) -> ReadingOptions:
    """The options that decide what a session of tables holds."""
    ranks = None if options.ranks is None else tuple(sorted(options.ranks))
    return ReadingOptions(
        options.rank_from,
        options.world_size,
        options.attempt,
        ranks,
        tuple(options.groups),
        options.last,
        options.follow_links,
    )


def _as_asked(options: LoadOptions, asked: ReadingOptions) -> LoadOptions:
    """The options for the assembly of parts: those of now, else those that the parts were read with."""
    given_now = {name: getattr(options, name) for name in ("rank_from", "world_size", "attempt")}
    rest = {name: getattr(asked, name) for name, value in given_now.items() if value is None}
    ranks = None if asked.ranks is None else frozenset(asked.ranks)
    return replace(options, **rest, ranks=ranks, groups=asked.groups, last=asked.last)


def _merged(
    directory: Path, manifest: Manifest, options: LoadOptions, progress: Callable[[int, int], None], within: str
) -> Dataset:
    """The parts that are there, assembled; files of others are told as unread."""
    from rankscope.assemble.load import InputError, assemble_sources, part_of, place_of, undisturbed
    from rankscope.sessions.shard_parts import missing_sources

    room = RingRoom(options.memory)
    parts, missing = _read_parts(directory, manifest.parts, room, progress, within)
    if not parts:
        raise SessionError(f"none of its parts can be read: {missing[0]}")
    with undisturbed():
        sources = sorted((source for part in parts for source in part.sources), key=place_of)
        if not any(source.tells for source in sources):
            listed_sources = {source.shown: source for part in parts for source in part.others}
            sources = [listed_sources.get(source.shown, source) for source in sources]
        unread = missing_sources([part.head for part in parts], "; ".join(missing) or LATE)
        sources = sorted([*sources, *unread], key=place_of)
        try:
            options = _as_asked(options, manifest.asked)
            roots = list(dict.fromkeys(part.head.root for part in parts))
            if len(roots) > 1:
                raise SessionError(f"its parts are of different paths: {roots[0]} and {roots[1]}")
            dataset = assemble_sources(sources, roots[0], options)
            cut = options.is_part or room.last is not None
            return part_of(dataset, options, room.last) if cut else dataset
        except InputError as error:
            raise SessionError(str(error)) from error


def _read_parts(
    directory: Path, count: int, room: RingRoom, progress: Callable[[int, int], None], within: str
) -> tuple[list[ShardPart], list[str]]:
    """The parts that can be read, and why the others cannot. Raises SessionError without memory."""
    from rankscope.sessions.shard_parts import read_part

    parts: list[ShardPart] = []
    missing: list[str] = []
    for share in (Share(index, count) for index in range(count)):
        path, rings_before = directory / share.file_name, len(room)
        try:
            if os.path.lexists(path):
                parts.append(read_part(path, room, within))
            else:
                missing.append(f"{share} of the session is missing")
        except NoMemoryError as error:
            raise SessionError(str(error)) from error
        except SessionError as error:
            room.forget(rings_before)
            missing.append(f"{share} of the session cannot be read: {error}")
        progress(share.index + 1, count)
    return parts, missing
