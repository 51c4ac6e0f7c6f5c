"""Lines of text in parts that each have a role; the widgets give roles their colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len, set_cell_size

Role = Literal[
    "text", "dim", "bold", "head", "bad", "warn", "good", "mark", "heat0", "heat1", "heat2", "heat3", "heat4"
]  # fmt: skip
"""What a part of a line is: plain, secondary, strong, a heading, wrong, odd, fine, under the inner cursor, or a cell of
a heat map, the hottest last."""


class Span(NamedTuple):
    """A part of a line. `text` holds no control characters."""

    text: str
    role: Role = "text"


Line = tuple[Span, ...]
"""One line of the screen."""

BLANK: Line = ()
"""An empty line."""


def line(*parts: Span | str) -> Line:
    """A line of spans; bare strings are plain text, empty ones are left out."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts if part not in ("", Span("")))


def text_of(parts: Line) -> str:
    """The characters of a line."""
    return "".join(span.text for span in parts)


def width_of(parts: Line) -> int:
    """The cells a line takes."""
    return sum(cell_len(span.text) for span in parts)


def cut(parts: Line, width: int) -> Line:
    """The line in at most `width` cells, with ".." where something had to go."""
    if width_of(parts) <= width:
        return parts
    kept: list[Span] = []
    left = max(width - 2, 0)
    for span in parts:
        size = cell_len(span.text)
        if size > left:
            kept.append(Span(set_cell_size(span.text, left), span.role))
            break
        kept.append(span)
        left -= size
    return (*kept, Span(".." if width >= 2 else "." * width, "dim"))


def wrap(parts: Line, width: int, indent: int = 0) -> list[Line]:
    """The line broken at spaces into lines of at most `width` cells, all but the first indented."""
    lines: list[list[Span]] = [[]]
    used = start = 0
    for word, role in _words(parts, max(width - indent, 1)):
        shown = word
        if used > start and used + cell_len(word.rstrip()) > width:
            lines.append([Span(" " * indent)] if indent else [])
            used = start = indent
            shown = word.lstrip()
        if shown:
            lines[-1].append(Span(shown, role))
            used += cell_len(shown)
    return [_joined(spans) for spans in lines]


def wrapped(lines: Iterable[Line], width: int, indent: int = 0) -> list[Line]:
    """Many lines, each wrapped."""
    return [piece for parts in lines for piece in wrap(parts, width, indent)]


def _words(parts: Line, longest: int) -> Iterable[tuple[str, Role]]:
    for span in parts:
        for word in span.text.replace(" ", " \0").split("\0"):
            yield from ((piece, span.role) for piece in _pieces(word, longest))


def _pieces(word: str, longest: int) -> list[str]:
    if cell_len(word.rstrip()) <= longest:
        return [word]
    # Half the cells in characters always fit, wide ones too; cut by characters where all are narrow.
    step = longest if cell_len(word) == len(word) else max(longest // 2, 1)
    return [word[at : at + step] for at in range(0, len(word), step)]


def _joined(spans: Sequence[Span]) -> Line:
    out: list[Span] = []
    for span in spans:
        if out and out[-1].role == span.role:
            out[-1] = Span(out[-1].text + span.text, span.role)
        else:
            out.append(span)
    if out:
        out[-1] = Span(out[-1].text.rstrip(), out[-1].role)
    return line(*out)
