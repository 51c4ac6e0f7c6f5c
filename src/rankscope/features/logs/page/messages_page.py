"""The log messages: a list in the order of time, limited by rank, role and text, and whole records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import orjson
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.analysis.model import Analysis
from rankscope.features.logs.page.message_list import (
    LEGEND,
    MESSAGE_COLUMNS,
    ROLE_CHOICES,
    MessageList,
    Wanted,
    date,
    letter,
    when,
)
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide, value_of
from rankscope.text.tensors import LONGEST_JSON
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.actions import bound
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.operation_text import group_label
from rankscope.tui.detail.screens.page import Page, TablePage, Way
from rankscope.tui.detail.stack_tree import place
from rankscope.tui.filters import parse_ranks
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import BLANK, Line, Span, line, wrap, wrapped


class MessagesScreen(TablePage[dict[str, Any]]):
    """The messages; dismisses with the last operation of the rank of the chosen message, at its time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("filter", "ranks", "ranks"),
    ]
    WAYS = (
        Way("r", "roles", "causes only, or noise too"),
        Way("n", "turn", "the newest first, or the oldest"),
        Way("l", "rank", "go to the lane of the rank"),
    )
    VIEW = "logs"
    ENTER = "record"
    COLUMNS = MESSAGE_COLUMNS
    FIND_HINT = "part of a message, of its kind, its host or its file"

    def __init__(self, dataset: Dataset, analysis: Analysis | None = None, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset = dataset
        # without lanes this may be the first screen, which has to be the answer
        self.verdict = plain(analysis.verdict) if analysis is not None and dataset.ops.is_empty() else ""
        self.messages = MessageList(dataset)
        self.asked = Wanted()
        """The filter of the list."""

    def begin(self) -> None:
        """Lists everything but noise; the cursor starts on the first root cause."""
        self.fill()
        self.call_after_refresh(self.listing.move_to, self.messages.first_root())

    def heading(self) -> list[Line]:
        """The number of all and of listed messages, the letters, and the columns."""
        if self.dataset.messages.is_empty():
            return [line(Span(" logs", "head"), "  none")]
        counts = self.messages.counts()
        roots = counts.get("root", 0)
        order = "newest first" if self.asked.newest else "oldest first"
        shown, total = len(self.messages), sum(counts.values())
        number = plural(total, "line") if shown == total else f"{shown:,} of {plural(total, 'line')}"
        roles = "" if self.asked.roles == "without noise" else f", {self.asked.roles}"
        what = f"  {number}{roles}, {order}; "
        causes = Span(plural(roots, "root cause") if roots else "no root cause", "bad" if roots else "dim")
        titles = self.titles().plain
        legend = LEGEND.rjust(self.size.width - len(titles) - 1)
        verdict = [line(" ", Span(self.verdict, "bold"))] if self.verdict else []
        return [line(Span(" logs", "head"), what, causes), *verdict, line(Span(titles + legend, "dim"))]

    def search(self, text: str) -> int:
        """Lists the messages with `text` in them, of the wanted ranks and roles."""
        self.asked = replace(self.asked, text=text)
        return self.messages.choose(self.asked)

    def limits(self) -> list[str]:
        """Limits by ranks and text."""
        return self.asked.in_words()

    def row(self, at: int) -> dict[str, Any]:
        """A message of the list."""
        return self.messages.row(at)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The place of a message, and its text."""
        return summary(self.messages.row(at), width)

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to get logs, or which limit hides all messages."""
        if self.wanted or self.dataset.messages.is_empty():
            return super().nothing()
        limits = ", ".join([self.asked.roles, *self.limits()])
        return wrapped([line(f"no message passes the limits ({plain(limits)}); f and g change them")], self.size.width)

    def choose(self, at: int) -> None:
        """Opens the whole record."""
        self.open_over(RecordScreen(self.dataset, self.messages.row(at), self.options))

    def _again(self, asked: Wanted) -> None:
        self.asked = asked
        self.fill()
        self.draw_bars()

    def action_ranks(self) -> None:
        """Asks which ranks to list."""
        ranks = self.asked.ranks
        text = "" if ranks is None else rank_ranges(ranks, 10_000)
        self.ask("ranks", "ranks", "0-7,64   8- to the end   empty: all", text)

    def answered(self, kind: str, text: str) -> None:
        """Finds a text, or limits the list to some ranks."""
        if kind != "ranks":
            self.find(text)
            return
        try:
            ranks = parse_ranks(text, max(self.dataset.world_size - 1, 0)) if text else None
        except ValueError as error:
            self.note(str(error))
        else:
            self._again(replace(self.asked, ranks=ranks))

    def action_roles(self) -> None:
        """Lists only causes, or noise too."""
        at = ROLE_CHOICES.index(self.asked.roles)
        self._again(replace(self.asked, roles=ROLE_CHOICES[(at + 1) % len(ROLE_CHOICES)]))

    def action_turn(self) -> None:
        """Lists the newest first, or the earliest."""
        self._again(replace(self.asked, newest=not self.asked.newest))

    def action_rank(self) -> None:
        """Goes to the lane of the rank, at its last operation before the message."""
        if not self.listing.count:
            self.note("no message here")
            return
        selection = selection_at(self.dataset, self.messages.row(self.listing.cursor))
        if selection is None:
            self.note("the rank that printed it is not known")
            return
        self.dismiss(selection)

    def action_back(self) -> None:
        """Ends finding, then lists all ranks, then closes the screen."""
        if not self.wanted and self.asked.ranks is not None:
            self._again(replace(self.asked, ranks=None))
        else:
            super().action_back()


class RecordScreen(Page):
    """One message in full; dismisses with the last operation of its rank at its time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("open", "rank"),
    ]
    ENTER = "lane"
    TITLE = "one message"
    TAB = 7

    def __init__(self, dataset: Dataset, row: dict[str, Any], options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.row = dataset, row

    def body(self) -> Iterable[Widget]:
        """The text."""
        yield Container(Lines(self.options, id="text"), id="body")

    def heading(self) -> list[Line]:
        """The kind of the record."""
        who = "unknown rank" if self.row["rank"] is None else f"rank {self.row['rank']}"
        return [line(Span(" message", "head"), f"  of {who}")]

    def fill(self) -> None:
        """Shows the record."""
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self._draw()

    def _draw(self) -> None:
        text = self.query_one("#text", Lines)
        key = self.row["group"]
        group = "" if key is None else group_label(index_of(self.dataset).group(key))
        if text.size.width:
            text.show_lines(record_text(self.row, group, text.size.width))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables finding and the other pane: a single record has neither."""
        del parameters
        return action not in ("find", "other_pane")

    def action_rank(self) -> None:
        """Goes to the lane of the rank, at its last operation before the message."""
        selection = selection_at(self.dataset, self.row)
        if selection is None:
            self.note("the rank that printed it is not known")
            return
        self.dismiss(selection)


def selection_at(dataset: Dataset, row: dict[str, Any]) -> Selection | None:
    """The last operation of the rank of a message, at its time; None if the rank is not known."""
    rank, time_ns = row["rank"], row["time_ns"]
    if rank is None:
        return None
    index = index_of(dataset)
    span = index.of_rank(rank)
    if not span or time_ns is None:
        return index.last_operation(rank)
    created = dataset.ops.slice(span.start, len(span))["created_ns"]
    before = (created <= time_ns).fill_null(False).arg_true()
    return index.selection(span.start + int(before[-1]) if len(before) else span.start)


_MOST = 400
"""Lines of a text, values of a record and frames of a stack that are shown."""
_LONGEST = 20_000
"""Characters of a text that are shown."""
_LABEL = 10


def record_text(row: dict[str, Any], group: str, width: int) -> list[Line]:
    """A row of `messages` with its `path`, in lines of `width` cells: where and when, the whole text, its values."""
    lines = [*_labelled(_facts(row, group), width), BLANK]
    lines += [piece for text in _text(row["text"]) for piece in wrap(line(text), width)]
    values = _values(row["values"])
    rest = {name: value for name, value in values.items() if value not in (None, "", [], {}) and name != "frames"}
    shown = [(name, hide(value_of(name, _shown(value)))) for name, value in rest.items()]
    lines += [BLANK, line(Span("read from it", "head")), *_labelled(shown[:_MOST], width)] if shown else []
    frames = _frames(values.get("frames"))
    return [*lines, *([BLANK, line(Span("stack", "head")), *frames] if frames else [])]


def summary(row: dict[str, Any], width: int) -> list[Line]:
    """The place of a message, and as much of its text as there is room for."""
    who = "unknown rank" if row["rank"] is None else f"rank {row['rank']}"
    torn = Span("  a part is missing", "warn") if row["torn"] else ""
    known = Span(f"  {plain(row['pattern'])}" if row["pattern"] else "", "dim")
    head = line(letter(row["role"]), Span(f" {who}", "head"), f"  {_place(row)}", known, torn)
    return [*wrap(head, width, 2), *wrap(line(plain(hide(row["text"] or ""))), width)]


def _facts(row: dict[str, Any], group: str) -> list[tuple[str, str]]:
    pid = "" if row["pid"] is None else f"process {row['pid']}"
    stamp = f"{date(row['time_ns'])} {when(row['time_ns'], row['resolution_ns'])}" if row["time_ns"] is not None else ""
    kind = [row["kind"] or "", row["role"] or "no known error", row["severity"] or ""]
    facts = [
        ("kind", ", ".join(filter(None, kind))),
        ("pattern", row["pattern"] or ""),
        ("rank", "unknown" if row["rank"] is None else str(row["rank"])),
        ("on", ", ".join(filter(None, (row["host"] or "", pid)))),
        ("time", stamp or "not told"),
        ("group", group),
        ("file", _place(row)),
        ("torn", "a part of it is missing" if row["torn"] else ""),
    ]
    return [(name, text) for name, text in facts if text]


def _place(row: dict[str, Any]) -> str:
    number = "" if row["line"] is None else f", line {row['line']}"
    return f"{plain(row['path'])}{number}"


def _labelled(rows: Iterable[tuple[str, str]], width: int) -> list[Line]:
    parts = (line(Span(f"{plain(name):<{_LABEL}} ", "dim"), plain(text)) for name, text in rows)
    return [piece for row in parts for piece in wrap(row, width, _LABEL + 1)]


def _text(text: str | None) -> list[str]:
    """The whole text, line by line, each made harmless."""
    whole = hide(text or "")[:_LONGEST].split("\n")
    left = len(whole) - _MOST
    shown = [plain(part, None) for part in whole[:_MOST]]
    return [*shown, f"({plural(left, 'line')} more)"] if left > 0 else shown


def _values(text: str | None) -> dict[str, Any]:
    try:
        parsed = orjson.loads((text or "{}")[:LONGEST_JSON])
    except orjson.JSONDecodeError:
        return {"values": text}
    return parsed if isinstance(parsed, dict) else {"values": parsed}


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _frames(rows: object) -> list[Line]:
    """The frames of a traceback: rows of function, file and line, innermost first."""
    if not isinstance(rows, list):
        return []
    frames = [
        Frame(str(row[0]), str(row[1]), row[2])
        for row in rows[:_MOST]
        if isinstance(row, list) and len(row) == 3 and isinstance(row[2], int)
    ]
    return [line("  ", Span(plain(frame.function), "bold"), Span(f"  {place(frame)}", "text")) for frame in frames]
