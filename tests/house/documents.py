"""The commands that README, CONTRIBUTING and the pages of docs show, and what stands beside them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md", "CONTRIBUTING.md", "sample_data/README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
)  # fmt: skip
_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:rankscope|python -m) [^`]+)`")
_OPERATORS = frozenset(("|", "||", "&&", ";", "&"))
_WRITES = frozenset((">", ">>"))


@dataclass(frozen=True)
class ShownCommand:
    """A line of a block, or a command in a sentence."""

    page: str
    line: int
    text: str
    output: str = ""
    """Lines below it, up to the next command of its block; a line of three points stands for any others."""
    is_inline: bool = False
    calls: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    """The words of each program that it starts, without redirections."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def shown_commands() -> Iterator[ShownCommand]:
    """All commands of all pages, in their order."""
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        for block in _BLOCK.finditer(text):
            yield from _of_block(page, text.count("\n", 0, block.start()) + 2, *block.groups())
        outside = _FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
        for match in _INLINE.finditer(outside):
            # a bar in a table has a backslash before it
            words = " ".join(match[1].replace("\\|", "|").split())
            yield ShownCommand(page, outside.count("\n", 0, match.start()) + 1, words, "", True, tuple(_calls(words)))


def _of_block(page: str, first: int, kind: str, body: str) -> Iterator[ShownCommand]:
    lines = body.splitlines()
    prompts = [at for at, line in enumerate(lines) if kind == "sh" or line.startswith("$ ")]
    for at, end in zip(prompts, [*prompts[1:], len(lines)], strict=True):
        text, output = lines[at].removeprefix("$ "), "\n".join(lines[at + 1 : end])
        yield ShownCommand(page, first + at, text, output, False, tuple(_calls(text)))


def _calls(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each program of a line, as a shell parts them. Raises ValueError for an open quote."""
    words: list[str] = []
    is_target = False
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.wordchars += "$@%:,+[]{}"
    for word in lexer:
        if word in _OPERATORS:
            yield tuple(words)
            words = []
        elif word in _WRITES:
            is_target = True
        elif is_target:
            is_target = False
        else:
            words.append(word)
    if words:
        yield tuple(words)
