"""Registry of the records of other tools: how each is recognised by its first bytes, and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rankscope.parsers.contents import DecodedFile, NotThisKindError
from rankscope.parsers.numbers.model import numbers_from
from rankscope.parsers.numbers.records.activation_logs import decode_activation_log, looks_like_activation_log
from rankscope.parsers.numbers.records.debug_mode_texts import decode_debug_text, looks_like_debug_text
from rankscope.parsers.numbers.records.inspect_logs import decode_inspect_log, looks_like_inspect_log
from rankscope.parsers.numbers.records.monitor_tables import decode_monitor_table, looks_like_monitor_table
from rankscope.parsers.numbers.records.msprobe_dumps import decode_dump_document, looks_like_dump_document
from rankscope.parsers.numbers.records.msprobe_stacks import (
    decode_stack_document,
    looks_like_stack_document,
    stack_document_from,
)


class RecordFormat(NamedTuple):
    """A format of another tool."""

    begins: Callable[[bytes], bool]
    decode: Callable[[bytes], DecodedFile]


FORMATS = (
    RecordFormat(looks_like_dump_document, decode_dump_document),
    RecordFormat(looks_like_stack_document, decode_stack_document),
    RecordFormat(looks_like_monitor_table, decode_monitor_table),
    RecordFormat(looks_like_inspect_log, decode_inspect_log),
    RecordFormat(looks_like_activation_log, decode_activation_log),
    RecordFormat(looks_like_debug_text, decode_debug_text),
)
HEAD_BYTES = 512
"""First bytes by which a file is recognised."""


def looks_like_record(head: bytes) -> bool:
    """Whether a file with these first bytes is a record of another tool."""
    return any(one.begins(head) for one in FORMATS)


def decode_record(data: bytes) -> DecodedFile:
    """The content of a record. Raises NotThisKindError for a file that holds no row."""
    for one in FORMATS:
        if one.begins(data[:HEAD_BYTES]):
            return one.decode(data)
    raise NotThisKindError("not a record of a tool that is known")


def record_from(header: dict[str, Any], body: memoryview, rows: int) -> DecodedFile:
    """The content whose `header()` and `body()` these are."""
    return stack_document_from(header) if "is_stack_document" in header else numbers_from(header, body, rows)
