"""Ends of processes, from their sidecars: rows of `messages`, and times for the tracebacks beside them.

A traceback of the capture has no time; the sidecar of the same process has it. Known errors of the exceptions are
looked up here, and not in workers, whose memory is too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema.tables import CODE_SOURCE, MESSAGES, SETTINGS

if TYPE_CHECKING:
    from rankscope.features.logs.read.c10d.known_errors import KnownErrors

KIND = "process-end"
END_WORDS = {
    "exit": "came to the end of its program",
    "exception": "an exception ended it",
    "interrupted": "was interrupted (SIGINT)",
    "terminated": "was ended by SIGTERM",
}
TRACEBACK = "exception_rank_"
"""Prefix of the capture's file with the traceback."""
EARLIER = "earlier-end"
LONGEST_EARLIER = 160
"""Characters that are told of the end of an earlier attempt."""
Row = dict[str, Any]
Ends = dict[int, tuple[int, SourceFile]]
"""By rank: the row of `files` of its sidecar, and the sidecar."""


def add_ends(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the ends of processes to `messages`; returns the number of ranks that these know, 0 without an end."""
    ends = attempt_ends(sources, max(0, run.attempt))
    if ends:
        tables["messages"] = with_ends(tables.get("messages"), ends, sources, run.errors)
    add_earlier(tables, noted_ends(sources, run.attempt, run.errors))
    if any(_card(source).settings for _, source in ends.values()):
        rows = code_rows(ends)
        tables["settings"] = pl.concat([tables["settings"], rows]) if "settings" in tables else rows
    return sidecar_world(ends) if ends else 0


def code_rows(ends: Ends) -> pl.DataFrame:
    """Rows of `settings` that tell the code of processes: command line, commit, files and packages."""
    cards = [(place, _card(source)) for place, source in ends.values()]
    rows = [
        (card.rank, card.host or None, card.pid, name, value, CODE_SOURCE, place, None)
        for place, card in cards
        for name, value in card.settings
    ]
    return pl.DataFrame(rows, schema=SETTINGS, orient="row")


def noted_ends(sources: Sequence[SourceFile], attempt: int, errors: str | None) -> dict[int, Row]:
    """By earlier attempt a row for the first exception that one of its processes noted and that is no harm.

    `errors` is the path of the user's own table of known errors.
    """
    cards = [
        (source.attempt, _card(source).ended_ns or 0, place)
        for place, source in enumerate(sources)
        if isinstance(source.content, Sidecar) and source.attempt is not None and source.attempt < attempt
    ]
    found: dict[int, Row] = {}
    for number, ended_ns, place in sorted(cards):
        card = _card(sources[place])
        if number not in found and card.ended == "exception" and not is_harm(card.error, card.cause, errors):
            found[number] = earlier_row(number, place, card.rank, card.error, time_ns=ended_ns or None)
    return found


def earlier_row(attempt: int, place: int, rank: int | None, text: str, **more: Any) -> Row:
    """The end of an earlier attempt, in the file `place`. The row has no rank: it is of no process that is judged."""
    from rankscope.features.logs.read.log_record import shown_text

    who = f"rank {rank}: " if rank is not None and not text.startswith("rank ") else ""
    row = {"time_ns": None, "resolution_ns": None, "offset": 0, "line": 1, **more}
    return {
        **row, "rank": None, "host": None, "pid": None, "file": place, "severity": EVENTS[EARLIER].severity,
        "kind": EARLIER, "role": "", "pattern": "", "group": None, "text": f"{who}{shown_text(text[:LONGEST_EARLIER])}",
        "values": orjson.dumps({"attempt": attempt}).decode(), "torn": False,
    }  # fmt: skip


def add_earlier(tables: dict[str, pl.DataFrame], ends: Mapping[int, Row]) -> None:
    """Adds rows of earlier attempts, but for those of which `messages` has one."""
    messages = tables.get("messages")
    known = set() if messages is None else set(messages.filter(kind=EARLIER)["values"])
    rows = [row for row in ends.values() if row["values"] not in known]
    if rows:
        made = pl.DataFrame(rows, schema=MESSAGES, infer_schema_length=None)
        joined = made if messages is None else pl.concat([messages, made])
        tables["messages"] = joined.sort("file", "offset", maintain_order=True)


def is_harm(error: str, cause: str, errors: str | None) -> bool:
    """Whether an exception only tells of another process. `errors` is the path of the user's own table."""
    return known_error(error, cause, errors).get("role") == "victim"


def attempt_ends(sources: Sequence[SourceFile], attempt: int) -> Ends:
    """The newest sidecar of each rank of an attempt; one without dumps only if nothing shows that it is older."""
    found: Ends = {}
    cards = [(place, source) for place, source in enumerate(sources) if isinstance(source.content, Sidecar)]
    mine = [_card(source) for _, source in cards if source.attempt == attempt]
    for place, source in sorted(cards, key=lambda row: _card(row[1]).started_ns or 0):
        loose = source.attempt is None and not any(_ended_before(_card(source), card) for card in mine)
        if source.attempt == attempt or loose:
            found[_card(source).rank] = place, source
    return found


def _card(source: SourceFile) -> Sidecar:
    assert isinstance(source.content, Sidecar)
    return source.content


def _ended_before(card: Sidecar, other: Sidecar) -> bool:
    """Whether a process belongs to an earlier run than another: by the launcher's count, or by its earlier end."""
    if card.job and other.job and card.job != other.job:
        return True
    if card.attempt is not None and other.attempt is not None and card.attempt != other.attempt:
        return True
    same_clock = card.host != "" and card.host == other.host
    return same_clock and (card.ended_ns or 0) < (other.started_ns or 0)


def sidecar_world(ends: Ends) -> int:
    """The number of ranks that these processes know."""
    return max((_card(source).world_size or 1 + rank for rank, (_, source) in ends.items()), default=0)


def with_ends(
    messages: pl.DataFrame | None, ends: Ends, files: Sequence[SourceFile], errors: str | None = None
) -> pl.DataFrame:
    """`messages` with a row for each ended process, and with times for the lines of their tracebacks.

    `errors` is the path of the user's own table of known errors.
    """
    beside = _tracebacks(ends.values(), {source.shown: i for i, source in enumerate(files)})
    bare = {card.rank for card in beside.values()}
    rows = [
        _row(place, _card(source), rank in bare, errors)
        for rank, (place, source) in ends.items()
        if _card(source).ended
    ]
    table = pl.DataFrame(rows, schema=MESSAGES)
    if messages is None or messages.is_empty():
        return table.sort("file")
    return pl.concat([_timed(messages, beside), table]).sort("file", "offset", maintain_order=True)


def _row(place: int, card: Sidecar, beside: bool, errors: str | None) -> dict[str, Any]:
    """A row; an exception with a traceback `beside` it is no second cause, and no second consequence."""
    from rankscope.features.logs.read.log_record import shown_text

    text = END_WORDS.get(card.ended, shown_text(card.ended))
    failed, known = card.ended == "exception" and not beside, _known(card, errors)
    values = {"reason": card.ended, "error": card.error, "cause": card.cause, "torch": card.torch, **known, "utc": True}
    return {
        "time_ns": card.ended_ns, "resolution_ns": None if card.ended_ns is None else 1, "rank": card.rank,
        "host": card.host or None, "pid": card.pid, "file": place, "offset": 0, "line": 1,
        "severity": "error" if failed else "info", "kind": KIND, "role": known.get("role", "") if failed else "context",
        "pattern": known.get("id", "") if failed else "", "group": None,
        "text": shown_text(f"{text}: {card.error}" if card.error else text), "values": orjson.dumps(values).decode(),
        "torn": False,
    }  # fmt: skip


def _known(card: Sidecar, errors: str | None) -> Mapping[str, Any]:
    if not card.error:
        return {}
    # a job without a failed process needs no table

    return known_error(card.error, card.cause, errors)


def _timed(messages: pl.DataFrame, beside: Mapping[int, Sidecar]) -> pl.DataFrame:
    """Gives lines without a time in a traceback file of the capture the time at which the exception ended the
    process."""
    if not beside:
        return messages
    ends = pl.DataFrame(
        [(file, card.ended_ns, card.host or None, card.pid) for file, card in beside.items()],
        schema={"file": pl.UInt32, "at": pl.Int64, "on": pl.String, "of": pl.Int64},
        orient="row",
    )
    bare = pl.col("time_ns").is_null() & pl.col("at").is_not_null()
    in_utc = pl.col("values").str.replace(r"^\{", '{"utc":true,').str.replace(r",\}$", "}")
    return (
        messages.join(ends, on="file", how="left", maintain_order="left")
        .with_columns(
            time_ns=pl.coalesce("time_ns", "at"),
            host=pl.coalesce("host", "on"),
            pid=pl.coalesce("pid", "of"),
            resolution_ns=pl.when(bare).then(pl.lit(1, pl.Int64)).otherwise("resolution_ns"),
            values=pl.when(bare).then(in_utc).otherwise("values"),
        )
        .drop("at", "on", "of")
    )


def _tracebacks(ends: Iterable[tuple[int, SourceFile]], places: Mapping[str, int]) -> dict[int, Sidecar]:
    """By row of `files`: the sidecar beside each traceback."""
    found = {}
    for _, source in ends:
        card = _card(source)
        if card.ended != "exception":
            continue
        name = PurePosixPath(source.shown.replace("!", "/")).name
        path = f"{source.shown.removesuffix(name)}{TRACEBACK}{card.rank}.log"
        if path in places:
            found[places[path]] = card
    return found


_EXCEPTION_ENDS = ("id", "role", "accuses", "named", "traits", "title", "layer", "meaning", "next", "source")


@lru_cache(4096)
def known_error(error: str, cause: str, users: str | None = None) -> dict[str, Any]:
    """The entry that an exception matches, else the one of its cause if that is a victim's error; or empty.

    `users` is the path of the user's own table. Other causes do not count: the program handled them before it raised
    another exception.
    """
    own = _look_up(error, users)
    if own.get("role") in ("root", "victim") or not cause:
        return own
    first = _look_up(cause, users)
    return first if first.get("role") == "victim" else own


def _look_up(text: str, users: str | None) -> dict[str, Any]:
    from rankscope.features.logs.read.log_record import Record

    # the table matches lines
    lines = [Record(0, i, line) for i, line in enumerate(text.splitlines(), 1)]
    found = [event.values for event in _table(users).events(lines)]
    strongest = next((values for role in ("root", "victim") for values in found if values["role"] == role), None)
    return {key: strongest[key] for key in _EXCEPTION_ENDS if key in strongest} if strongest is not None else {}


@cache
def _table(users: str | None) -> KnownErrors:
    from rankscope.features.logs.read.c10d.known_errors import KnownErrors, current_table

    return KnownErrors(current_table(users)[0])
