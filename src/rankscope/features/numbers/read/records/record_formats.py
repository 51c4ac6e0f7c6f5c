"""Registry of the records of other tools: first bytes that tell each, and its reader, which is imported when needed.

Every file of a job is tested here, and most jobs have no such record.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rankscope.kinds.functions import function
from rankscope.parsers.contents import DecodedFile, NotThisKindError


class RecordFormat(NamedTuple):
    """A format of another tool."""

    begins: re.Pattern[bytes]
    """Beginning of a file."""
    decode: str
    """Function (bytes) -> content, as in `kinds.input_kinds`."""
    holds: re.Pattern[bytes] | None = None
    """Bytes that stand somewhere in the beginning as well; None without such a test."""


_ENTRY = rb'"(?:[A-Z]\w{1,20}\.)[^"\n]{1,400}\.(?:forward|backward|parameters_grad|\d{1,9})"'
_STACKS = rb'"\d{1,9}"\s*:\s*\[\s*\[\s*' + _ENTRY + rb"|" + _ENTRY + rb'\s*:\s*\[\s*"File '
_TREE = _ENTRY + rb'\s*:\s*(?:null|"(?:Module|Cell)\.|' + _ENTRY + rb"|\[\s*(?:null|\"))"
_PACKAGE = "features.numbers.read.records"
FORMATS = (
    RecordFormat(
        re.compile(rb'\s*\{\s*"task"\s*:\s*"[\w \-]{1,40}"\s*,\s*"level"\s*:\s*"'),
        f"{_PACKAGE}.msprobe_dumps:decode_dump_document",
    ),
    RecordFormat(
        re.compile(rb"\s*\{\s*(?:" + _STACKS + rb"|" + _TREE + rb")"), f"{_PACKAGE}.msprobe_dumps:decode_stack_document"
    ),
    RecordFormat(
        re.compile(rb"(?:\xef\xbb\xbf)?vpp_stage,(?:\w{1,40},){0,20}(?:name|module_name)(?:,|\r?\n|$)"),
        f"{_PACKAGE}.msprobe_dumps:decode_monitor_table",
    ),
    RecordFormat(
        re.compile(rb"\s*(?:[\d\-:, .T]{8,32} - )?[A-Z]{4,8} - [^\n]{1,400}\siteration=\d{1,12}\s{1,60}value="),
        f"{_PACKAGE}.text_records:decode_inspect_log",
    ),
    RecordFormat(
        re.compile(rb"\s*Total captured activations: \d{1,12}\r?\n"), f"{_PACKAGE}.text_records:decode_activation_log"
    ),
    RecordFormat(
        re.compile(rb"\s*(?:\[nn\.Mod\] |# File: |\[?\w{1,60}::[\w.]{1,200}\]?\(|redistribute_input)"),
        f"{_PACKAGE}.text_records:decode_debug_text",
        re.compile(rb"::[\w.]{1,200}\([^\n]{0,400}?\b(?:dt|ft|t)(?:\$\d{1,12})?: [a-z]\w{0,16}\["),
    ),
)
HEAD_BYTES = 512
"""First bytes by which a file is recognised."""


def _format_of(head: bytes) -> RecordFormat | None:
    fit = (one for one in FORMATS if one.begins.match(head) is not None)
    return next((one for one in fit if one.holds is None or one.holds.search(head) is not None), None)


def looks_like_record(head: bytes) -> bool:
    """Whether a file with these first bytes is a record of another tool."""
    return _format_of(head) is not None


def decode_record(data: bytes) -> DecodedFile:
    """The content of a record. Raises NotThisKindError for a file that holds no row."""
    found = _format_of(data[:HEAD_BYTES])
    if found is None:
        raise NotThisKindError("not a record of a tool that is known")
    content: DecodedFile = function(found.decode)(data)
    return content


def record_from(header: dict[str, Any], body: memoryview, rows: int) -> DecodedFile:
    """The content whose `header()` and `body()` these are."""
    from rankscope.features.numbers.read.model import numbers_from
    from rankscope.features.numbers.read.records.msprobe_dumps import stack_document_from

    return stack_document_from(header) if "is_stack_document" in header else numbers_from(header, body, rows)
