"""Decoder of logs: a file, or a range of its bytes, to a LogContent; only one block of lines is in memory at a time."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import re
from typing import IO, Any

import orjson

from rankscope.features.logs.read import ras_output
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.record_reader import NCCL_HEAD
from rankscope.parsers.line_blocks import line_blocks
from rankscope.parsers.streams import STREAM_ERRORS, TooLargeError, stream_problem

DOCUMENT_BYTES = 256 << 20
SEARCH_BYTES = 1 << 16
"""Bytes in which a head is searched for the cut of a range, so that it cuts no traceback; else it cuts at a line
end."""
_HEAD = re.compile(NCCL_HEAD.encode())
_UNPARTED = re.compile(rb'([\d"\]}el])(\s*\n\s*"[^"\n]{1,100}"\s*:)')
"""A value and a key in the next line, without the comma between them."""


def decode_log(stream: IO[bytes], first: bytes = b"") -> LogContent:
    """A log from its beginning on; `first` holds bytes that were already read."""
    first = first or stream.read(SEARCH_BYTES)
    if ras_output.looks_like_document(first):
        data = first + stream.read(DOCUMENT_BYTES - len(first))
        return _document(data) or decode_range(io.BytesIO(data), 0, None)
    return decode_range(stream, 0, None, first)


def decode_part(stream: IO[bytes], size: int, part: int, parts: int) -> LogContent:
    """One of `parts` ranges of a seekable file; ranges meet at beginnings of lines."""
    start = line_start(stream, size * part // parts) if part else 0
    end = line_start(stream, size * (part + 1) // parts) if part + 1 < parts else size
    stream.seek(start)
    return decode_range(stream, start, max(start, end), ranged=True)


def decode_range(
    stream: IO[bytes], start: int, end: int | None, first: bytes = b"", ranged: bool = False
) -> LogContent:
    """The bytes from `start`, where the stream stands, to `end`."""
    # with polars, which a process that reads only dumps starts without
    from rankscope.features.logs.read.log_decoder import LogDecoder

    decoder, problem = LogDecoder(ranged), None
    try:
        for block in line_blocks(stream, start, end, first):
            decoder.block(*block)
    except TooLargeError as error:
        problem = str(error)
    except STREAM_ERRORS as error:
        problem = stream_problem(error)
    content = decoder.result()
    content.problem = problem or content.problem
    return content


def line_start(stream: IO[bytes], at: int) -> int:
    """The beginning of a line at or behind a place, preferably of a line with a head."""
    if at <= 0:
        return 0
    stream.seek(at - 1)
    text = stream.read(SEARCH_BYTES)
    line = text.find(b"\n") + 1
    if not line:
        return _next_line(stream, at - 1 + len(text))
    head = _HEAD.search(text, line)
    return at - 1 + (max(text.rfind(b"\n", 0, head.start()) + 1, line) if head else line)


def _next_line(stream: IO[bytes], at: int) -> int:
    stream.seek(at)
    while text := stream.read(SEARCH_BYTES):
        found = text.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(text)
    return at


def _mended(data: bytes) -> Any:
    """The JSON of NCCL 2.28, which lacks a comma between two lines; None for any other damage."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(_UNPARTED.sub(rb"\1,\2", data))
    return None


def _document(data: bytes) -> LogContent | None:
    """The JSON of queries to RAS, one after the other; None for anything else."""
    reader, problem = ras_output.RasReader(), None
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        documents = [orjson.loads(data)]
    except orjson.JSONDecodeError:
        mended = _mended(data)
        documents, problem = ([mended], None) if mended is not None else _one_by_one(data.decode("utf-8", "replace"))
    if not [document for document in documents if reader.document(document)]:
        return None
    content = LogContent(ras=reader.result())
    content.problem = problem
    return content


MOST_DOCUMENTS = 4096


def _one_by_one(text: str) -> tuple[list[Any], str | None]:
    """The JSON documents at the beginning of a text, of the first damaged one its whole parts, and the damage."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Any] = []
    while len(found) < MOST_DOCUMENTS and (begin := text.find("{", at)) >= 0 and not text[at:begin].strip():
        try:
            document, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            with contextlib.suppress(ValueError, RecursionError):
                found.append(json.loads(_closed(text[begin:])))
            return found, "cut off or damaged: whole ranks kept"
        found.append(document)
    return found, None


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_CLOSERS = {"{": "}", "[": "]"}


def _closed(text: str) -> str:
    """A torn document up to its last whole object or list, with the brackets closed that are open there."""
    opened: list[str] = []
    end, left = 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in _CLOSERS:
            opened.append(_CLOSERS[token[0]])
        elif token[0][0] != '"':
            if not opened or opened.pop() != token[0]:
                break
            end, left = token.end(), "".join(reversed(opened))
    return text[:end] + left
