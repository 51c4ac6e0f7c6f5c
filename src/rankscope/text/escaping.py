"""Makes text from files harmless for where it goes: a terminal, a Markdown page.

Names, log lines and stacks come from files nobody vouches for. Every one of them passes through here on its way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

LONGEST = 2_000
"""Characters kept of one piece of text from a file; a function name of a megabyte is an attack or a mistake."""

_BENIGN = re.compile(r"""(?:["'(]?[^\W_]+(?:['%+=-][^\W_]+|[.,:](?<=\d.)\d+)*%?|%)[)"']?[.,;:!?]?""")
"""A word that no Markdown dialect reads as anything but text, or a percent sign by itself."""
_SIGNED = re.compile(r"\(?[-+]\d+(?:\.\d+)?%?\)?[.,;:]?|->|\.\.")
"""Signed numbers, arrows and dots of ranges, which begin no list and no quote: those need a space behind their sign."""
_LINKABLE = re.compile(r"www\d*\b|[a-z]+-\d|[0-9a-f]{7,}\b", re.IGNORECASE)
"""Plain words that GitHub turns into links all the same: hosts, ticket numbers, commits."""
_LIST_NUMBER = re.compile(r"\d+[.)]$")
_STOPS = ".;:!?"
_BACKTICKS = re.compile(r"`+")


def plain(text: str | None, limit: int | None = LONGEST) -> str:
    """`text` on one line without anything invisible: controls, direction marks, odd spaces become `\\x1b`, `\\u202e`.

    It is cut to `limit` characters, `...` included; with None it stays whole.
    """
    text = text or ""
    cut = text if limit is None else text[: limit + 1]
    shown = cut if cut.isprintable() else "".join(map(_visible, cut))
    if limit is None or len(shown) <= limit:
        return shown
    return shown[: max(0, limit - 3)] + "..."[:limit]


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace() and char not in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "
    return char.encode("unicode_escape").decode("ascii")


@cache
def _whole_command() -> re.Pattern[str]:
    """A command between spaces, with the punctuation behind it; only Markdown asks for it."""
    from rankscope.text.step_commands import COMMAND

    return re.compile(rf"(?<!\S)(?P<command>{COMMAND.pattern})(?P<stop>[,.;:]?)(?!\S)")


def markdown(text: str, limit: int | None = None) -> str:
    """`text` as inline Markdown without markup, links, mentions, HTML or table cells: odd words stand in code spans."""
    shown, end = " ".join(plain(text, limit).replace("|", "\u00a6").split()), 0
    parts: list[str] = []
    for found in _whole_command().finditer(shown):
        parts += [*_spans(shown[end : found.start()].split()), f"{code_span(found['command'])}{found['stop']}"]
        end = found.end()
    return " ".join([*parts, *_spans(shown[end:].split())])


def _spans(words: list[str]) -> Iterator[str]:
    """Words as they are, neighbours that could be markup together in one code span."""
    code: list[str] = []
    for i, word in enumerate(words):
        odd = not _is_text(word, first=i == 0)
        if odd:
            code.append(word)
        if code and (not odd or word[-1] in _STOPS):
            yield _closed(code)
            code = []
        if not odd:
            yield word
    if code:
        yield _closed(code)


def _closed(code: list[str]) -> str:
    """A code span of words; the punctuation at its end stays outside."""
    text = " ".join(code)
    stem = text.rstrip(_STOPS + ",") or text
    if stem[-1] == ")" and stem.count(")") > stem.count("("):
        stem = stem[:-1] or stem
    return code_span(stem) + text[len(stem) :]


def _is_text(word: str, first: bool) -> bool:
    if _SIGNED.fullmatch(word):
        return True
    if not _BENIGN.fullmatch(word) or _LINKABLE.search(word):
        return False
    return not (first and _LIST_NUMBER.match(word))


def code_span(text: str) -> str:
    """`text` as a Markdown code span, whatever backticks it holds."""
    shown = plain(text, None)
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def code_block(lines: Iterable[str]) -> str:
    """`lines` as a fenced Markdown code block that none of them can close."""
    shown = [plain(line, None) for line in lines]
    fence = "`" * max(3, 1 + max(map(_longest_run, shown), default=0))
    return "\n".join([fence, *shown, fence])


def _longest_run(text: str) -> int:
    return max((len(m.group()) for m in _BACKTICKS.finditer(text)), default=0)
