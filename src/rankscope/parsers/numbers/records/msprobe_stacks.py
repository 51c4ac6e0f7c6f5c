"""stack.json and construct.json of msprobe, which lie beside a dump.json: where each entry was called.

stack.json: {"0": [[names], [lines]]}, older {name: [lines]}; a line is "File f, line 3, in g, \\n code", innermost
first. construct.json: {name: name of the module around it}, newer [name, level]; null at the top. It is only counted:
names of modules hold their parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import safe_text

MOST_FRAMES = 64
"""Most frames of a stack that are kept, the innermost ones."""
_OWN = "site-packages/msprobe/"
"""Part of the path of the tool's own frames, which are left out."""
_LINE = re.compile(r"File (.{1,1024}?), line (\d{1,9}), in ([^,\n]{1,256})")


@dataclass
class StackDocument:
    """Stacks of entries of a dump.json by name."""

    stacks: list[list[StackFrame]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """The place of the stack of each entry."""
    others: int = 0
    """Entries without a stack."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """The number of entries."""
        return len(self.places) + self.others

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {
            "stacks": [[list(frame) for frame in one] for one in self.stacks], "places": self.places,
            "others": self.others, "problem": self.problem, "is_stack_document": True,
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """No arrays."""
        return []


def stack_document_from(header: dict[str, Any]) -> StackDocument:
    """The content whose `header()` this is."""
    stacks = [[StackFrame(*frame) for frame in one] for one in header["stacks"]]
    return StackDocument(stacks, header["places"], header["others"], header["problem"])


def decode_stack_document(data: bytes) -> StackDocument:
    """The stacks of a stack.json, or the number of entries of a construct.json. Raises NotThisKindError without any."""
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotThisKindError(f"a file of msprobe that cannot be read, or is cut off: {error}") from error
    if not isinstance(told, dict):
        raise NotThisKindError("a file of msprobe that holds no mapping")
    found = StackDocument()
    for names, value in _named(told):
        if isinstance(value, list) and all(isinstance(one, str) and one.startswith("File ") for one in value):
            frames = [frame for line in value[:MOST_FRAMES] if (frame := _frame(line)) is not None]
            found.places.update(dict.fromkeys(names, len(found.stacks)))
            found.stacks.append(frames)
        else:
            found.others += len(names)
    return found


def _named(told: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """Values with the names of their entries."""
    for key, value in told.items():
        if key.isdigit() and isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
            yield [safe_text(name) or "" for name in value[0] if isinstance(name, str)], value[1]
        else:
            yield [safe_text(key) or ""], value


def _frame(line: str) -> StackFrame | None:
    match = _LINE.match(line)
    own = match is not None and _OWN in match[1]
    return (
        None
        if match is None or own
        else StackFrame(safe_text(match[3]) or "", safe_text(match[1]) or "", int(match[2]))
    )
