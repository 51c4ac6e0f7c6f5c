"""The pages of a `torch.distributed.debug` server: a section for each rank, with what its process answered.

Form: the templates in torch/distributed/debug/_frontend.py and _debug_handlers.py of torch 2.13.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_SECTION = re.compile(r"<h2>Rank (\d{1,7}): ([^<\n]{0,1000})</h2>")
_FAILED = re.compile(r"\s*<p>Failed to fetch: status=(\d{1,5})</p>")
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class Answer:
    """What one rank answered."""

    rank: int
    address: str
    """Of the server in its process: "http://node07:41234"; empty if it is none."""
    status: int
    """As in HTTP; 200 if it answered, 404 if it has no such handler."""
    text: str

    @property
    def host(self) -> str:
        """Where it runs."""
        return urlsplit(self.address).hostname or ""

    def document(self) -> dict[str, Any] | None:
        """The JSON object in it; None if it is none."""
        for text in (self.text, html.unescape(self.text)):
            try:
                told = json.loads(text)
            except (ValueError, RecursionError):
                continue
            return told if isinstance(told, dict) else None
        return None


def answers(page: str) -> list[Answer]:
    """The sections of a page."""
    heads = list(_SECTION.finditer(page))
    ends = [*(head.start() for head in heads[1:]), len(page)][: len(heads)]
    return [_answer(head, page[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def _answer(head: re.Match[str], body: str) -> Answer:
    failed = _FAILED.match(body)
    begin, end = body.find("<pre>"), body.rfind("</pre>")
    text = body[begin + len("<pre>") : end] if 0 <= begin < end else ""
    return Answer(int(head[1]), _address(html.unescape(head[2])), int(failed[1]) if failed else 200, text)


def _address(url: str) -> str:
    """The server in it; empty if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme == "http" and parts.hostname else ""


def as_py_spy(text: str) -> str:
    """A traceback of all threads, as Python's faulthandler writes it, in the form in which py-spy writes one.

    The main thread is the last. The process id is not told: it is 0. Empty if there is no thread in `text`.
    """
    threads: list[tuple[str, str, list[str]]] = []
    for line in html.unescape(text).splitlines():
        if head := _THREAD.match(line):
            threads.append((head[1], head[2] or "", []))
        elif threads and (frame := _FRAME.match(line)):
            threads[-1][2].append(f"    {frame[3]} ({frame[1]}:{frame[2]})")
    shown = [thread for thread in reversed(threads) if thread[2]]
    if not shown:
        return ""
    lines = ["Process 0: ", "Python v3", ""]
    for place, (number, name, frames) in enumerate(shown):
        lines += [f'Thread {number} (idle): "{"MainThread" if place == 0 else name or "Thread"}"', *frames]
    return "\n".join(lines) + "\n"
