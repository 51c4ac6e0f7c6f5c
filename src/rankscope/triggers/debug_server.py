"""Fetches flight recorders and stacks of a running job from its `torch.distributed.debug` server.

The server of rank 0 (port 25999) asks the processes of all ranks and shows their answers on pages. They hold no stacks
of operations; for NCCL a process itself gives its recorder's pickle, with stacks, where it can be reached from here.

Since torch 2.15 a hook records backends into a ring each ("nccl" is nccl2 there): the page of JSON has to be told
which, and nothing lists them. Two pages are never asked for: `fr_dump_file`, and `c10d_health_check` where a rank is
unhealthy, have all ranks write dumps without stacks over those that a timeout left.
"""

from __future__ import annotations

import html
import http.client
import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

PAGE_TIMEOUT_S = 75.0
"""The server itself waits 60 s for processes that do not answer."""
PROCESS_TIMEOUT_S = 5.0
LARGEST_ANSWER = 1 << 30
"""Bytes of one answer that are read at most."""
PARALLEL_REQUESTS = 32
HOOKED_BACKENDS = ("nccl2", "nccl-lazy", "ucc", "mpi")
"""Backends that a hook records and that are asked for; `?backend=NAME` in the address names another."""
_KNOWS_RINGS = 'href="/fr_dump_file"'
"""Stands on every page of a server whose pages take the name of a backend."""
_ENTRY = b"profiling_name"
"""Stands in the pickle of a recorder that holds any operation."""
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NOT_THERE = 404
_FAILED = 500
_FOUND = 200


class ServerError(Exception):
    """The server cannot be asked; the message says why."""


@dataclass(frozen=True)
class PollResult:
    """What came of asking once."""

    ranks: int
    dumps: int
    stacks: int
    problems: tuple[str, ...]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any) -> None:
        """A debug server sends nobody anywhere else."""


# nodes of a cluster are reached without the proxy that leads out of it
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


class DebugServer:
    """A server at `http://host:port`."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if not parts.hostname:
            raise ServerError(f"{address}: no host in it")
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        named = [name for text in parse_qs(parts.query).get("backend", []) for name in text.split(",") if name]
        self._backends = tuple(dict.fromkeys([*named, *HOOKED_BACKENDS]))
        """Whose rings are asked for: those that told something, once one did."""
        self._knows_rings = False
        self._failed = ""
        """What the server said of the last page that it failed to make."""

    def poll(self, directory: Path) -> PollResult:
        """Writes what each rank answers to `directory`, in the place of what it answered before. Raises ServerError."""
        recorded = {"fr_trace": self._page("fr_trace_json"), "nccl_trace": self._page("fr_trace_nccl_json")}
        if not any(recorded.values()):
            why = self._failed or "is it a torch.distributed.debug server?"
            raise ServerError(f"{self.address}: no rank answered; {why}")
        recorded |= self._rings()
        names: dict[int, list[str]] = {}
        for prefix, found in recorded.items():
            with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
                written = list(pool.map(lambda answer, p=prefix: _dump(directory, p, answer), found))
            for answer, name in zip(found, written, strict=True):
                names.setdefault(answer.rank, []).extend([name] if name else [])
        everybody = recorded["fr_trace"] or recorded["nccl_trace"]
        for answer in everybody:
            _card(directory, answer, len(everybody), names[answer.rank])
        stacks = self._stacks(directory)
        # a rank that is away is away on every page
        failed = {
            a.rank: a for found in recorded.values() for a in found if a.status not in (_FOUND, _NOT_THERE)
        }.values()
        problems = tuple(f"rank {a.rank} did not answer: {' '.join(a.text.split())[:200]}" for a in failed)
        return PollResult(len(everybody), sum(map(len, names.values())), stacks, problems)

    def _rings(self) -> dict[str, list[RankAnswer]]:
        """What hooks have recorded, by the beginning of the names of its dumps."""
        if not self._knows_rings:
            return {}
        found = {name: self._page(f"fr_trace_json?backend={quote(name, safe='')}") for name in self._backends}
        told = {name: page for name, page in found.items() if any(map(_tells_of_groups, page))}
        self._backends = tuple(told) or self._backends
        return {f"{_NO_FILE_NAME.sub('_', name)}_trace": page for name, page in told.items()}

    def _stacks(self, directory: Path) -> int:
        """py-spy's where the job has it, else what Python says itself; how many ranks."""
        written = set()
        for answer in self._page("pyspy_dump"):
            if answer.status == _FOUND and answer.text.strip():
                _write(directory / f"pyspy_rank_{answer.rank}.txt", answer.text.encode())
                written.add(answer.rank)
        for answer in self._page("stacks") if not written else []:
            text = py_spy_text(answer.text) if answer.status == _FOUND else ""
            if text:
                _write(directory / f"stacks_rank_{answer.rank}.txt", text.encode())
                written.add(answer.rank)
        return len(written)

    def _page(self, name: str) -> list[RankAnswer]:
        """The answers on a page; none if the server does not have it."""
        address = f"{self.address}/{name}"
        try:
            page = _get(urllib.request.Request(address), PAGE_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            if error.code in (_NOT_THERE, _FAILED):
                if error.code == _FAILED:
                    self._failed = f"the server failed: {_said(error)}"
                return []
            raise ServerError(f"{address}: {error.code} {error.reason}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            reason = getattr(cause, "strerror", None) or cause
            raise ServerError(f"{address}: {reason}") from error
        text = page.decode("utf-8", "replace")
        self._knows_rings = self._knows_rings or _KNOWS_RINGS in text
        return read_answers(text)


def _said(error: urllib.error.HTTPError) -> str:
    """What stands on the page of an error, in one line, without tags."""
    text = re.sub(r"<[^>]*>", " ", error.read(10_000).decode("utf-8", "replace"))
    return " ".join(text.split())[:200] or str(error.reason)


def _tells_of_groups(answer: RankAnswer) -> bool:
    """Whether a ring has process groups: it then tells how far each has come, also where nothing is active."""
    document = answer.document() if answer.status == _FOUND else None
    return document is not None and bool(document.get("pg_config") or document.get("entries"))


def _is_of_ring(prefix: str) -> bool:
    return prefix not in ("fr_trace", "nccl_trace")


def _dump(directory: Path, prefix: str, answer: RankAnswer) -> str | None:
    """Writes a recorder's dump; its name, None if there is none."""
    if answer.status != _FOUND:
        return None
    pickled = _pickle(answer) if prefix == "nccl_trace" else None
    document = answer.document() if pickled is None else None
    if pickled is None and (document is None or not (document.get("entries") or _is_of_ring(prefix))):
        return None
    name = f"{prefix}_rank_{answer.rank}{'' if pickled else '.json'}"
    _write(directory / name, pickled if pickled is not None else json.dumps(document).encode())
    (directory / f"{prefix}_rank_{answer.rank}{'.json' if pickled else ''}").unlink(missing_ok=True)
    return name


def _pickle(answer: RankAnswer) -> bytes | None:
    """The whole recorder with stacks, from the process itself; the page has only what is active, and no stacks."""
    if not answer.address:
        return None
    request = urllib.request.Request(f"{answer.address}/handler/dump_nccl_trace_pickle", data=b"", method="POST")
    try:
        data = _get(request, PROCESS_TIMEOUT_S)
        # torch has this recorder whether a job uses it or not
        return data if _ENTRY in data else None
    except (OSError, ValueError, http.client.HTTPException):
        return None


def _card(directory: Path, answer: RankAnswer, world: int, names: list[str]) -> None:
    """Says of the dumps whose they are, in the form of docs/capture.md."""
    failed = answer.status not in (_FOUND, _NOT_THERE)
    told = {
        "rankscope_capture": 1, "rank": answer.rank, "world_size": world, "host": answer.host, "dumps": names,
        "problems": [f"did not answer: {' '.join(answer.text.split())[:200]}"] if failed else [], "groups": [],
    }  # fmt: skip
    _write(directory / f"server_rank_{answer.rank}.json", json.dumps(told).encode())


def _get(request: urllib.request.Request, timeout: float) -> bytes:
    with _OPENER.open(request, timeout=timeout) as response:
        data: bytes = response.read(LARGEST_ANSWER + 1)
    if len(data) > LARGEST_ANSWER:
        raise ValueError("the answer is too large")
    return data


def _write(path: Path, data: bytes) -> None:
    """In one step, so that nobody reads half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


# The pages of a `torch.distributed.debug` server: a section for each rank, with what its process answered.

_SECTION = re.compile(r"<h2>Rank (\d{1,7}): ([^<\n]{0,1000})</h2>")
_FAILED_PAGE = re.compile(r"\s*<p>Failed to fetch: status=(\d{1,5})</p>")
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class RankAnswer:
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


def read_answers(page: str) -> list[RankAnswer]:
    """The sections of a page."""
    heads = list(_SECTION.finditer(page))
    ends = [*(head.start() for head in heads[1:]), len(page)][: len(heads)]
    return [_answer(head, page[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def _answer(head: re.Match[str], body: str) -> RankAnswer:
    failed = _FAILED_PAGE.match(body)
    begin, end = body.find("<pre>"), body.rfind("</pre>")
    text = body[begin + len("<pre>") : end] if 0 <= begin < end else ""
    return RankAnswer(int(head[1]), _address(html.unescape(head[2])), int(failed[1]) if failed else 200, text)


def _address(url: str) -> str:
    """The server in it; empty if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme == "http" and parts.hostname else ""


def py_spy_text(text: str) -> str:
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
