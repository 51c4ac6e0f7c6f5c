"""Fetcher of flight recorders and stacks of a running job from its `torch.distributed.debug` server.

The server of rank 0 (port 25999) asks the processes of all ranks and shows their answers on pages. The pages hold no
stacks of operations; for NCCL each process itself serves its recorder's pickle, with stacks, if it can be reached from
here. Since torch 2.15 a hook records each backend into a separate ring ("nccl" is nccl2 there): the page of JSON needs
the name of a ring, and nothing lists the names. Two pages are never requested: `fr_dump_file`, and `c10d_health_check`
if a rank is unhealthy, make all ranks write dumps without stacks over those of a timeout.
"""

from __future__ import annotations

import html
import http.client
import io
import json
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from rankscope.text.wording import byte_count, plural

LARGEST_ANSWER = 1 << 30
"""Most bytes of one answer."""
CHUNK_BYTES = 1 << 20
PARALLEL_REQUESTS = 32
HOOKED_BACKENDS = ("nccl2", "nccl-lazy", "ucc", "mpi")
"""Backends with a hook that are requested; `?backend=NAME` in the address names another."""
_KNOWS_RINGS = 'href="/fr_dump_file"'
"""Text on every page of a server whose pages take the name of a backend."""
_ENTRY = b"profiling_name"
"""Text in the pickle of a recorder with any operation."""
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NOT_THERE = 404
_FAILED_STATUS = 500
_FOUND = 200


class ServerError(Exception):
    """The server cannot be asked; the message says why."""


@dataclass(frozen=True)
class PollResult:
    """The result of one round of requests."""

    ranks: int
    dumps: int
    stacks: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class AnswerLimits:
    """How long a server may take, in seconds."""

    page_s: float = 75.0
    """Until a page begins; the server itself waits 60 s for silent processes."""
    process_s: float = 5.0
    """Until the answer of a process of the job begins."""
    rest_s: float = 60.0
    """From the beginning of an answer to its end, however steadily it drips."""
    round_s: float = 600.0
    """For all answers of one round together."""
    largest: int = LARGEST_ANSWER
    """Most bytes of one answer."""


DEFAULT_LIMITS = AnswerLimits()


class DebugServer:
    """A debug server at `http://host:port`. `now` are the seconds of a clock that never goes back."""

    def __init__(
        self, address: str, limits: AnswerLimits = DEFAULT_LIMITS, now: Callable[[], float] = time.monotonic
    ) -> None:
        parts = urlsplit(address)
        if not parts.hostname:
            raise ServerError(f"{address}: no host in it")
        if "@" in parts.netloc:
            host = parts.netloc.rpartition("@")[2]
            raise ServerError(f"{host}: a debug server takes no user and password: leave them out of its address")
        self._limits, self._now = limits, now
        self._round_ends = 0.0
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        named = [name for text in parse_qs(parts.query).get("backend", []) for name in text.split(",") if name]
        self._backends = tuple(dict.fromkeys([*named, *HOOKED_BACKENDS]))
        """Names of the requested rings; once some had content, only those."""
        self._knows_rings = False
        self._failed = ""
        """The server's message on the last page that it failed to make."""
        self._lost: list[str] = []
        """The pages of this round that did not come, and why."""

    def poll(self, directory: Path) -> PollResult:
        """Writes the answers of all ranks to `directory`, over the earlier ones.

        A page that fails is a problem. Raises ServerError if the first one does, or if no page tells of ranks.
        """
        self._round_ends, self._lost = self._now() + self._limits.round_s, []
        recorded = {"fr_trace": self._page("fr_trace_json")}
        if self._lost:
            raise ServerError(self._lost[0])
        recorded["nccl_trace"] = self._page("fr_trace_nccl_json")
        if not any(recorded.values()):
            why = self._failed or "is it a torch.distributed.debug server?"
            raise ServerError(f"{self.address}: no rank answered; {why}")
        recorded |= self._rings()
        names: dict[int, list[str]] = {}
        for prefix, found in recorded.items():
            with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
                written = list(pool.map(lambda answer, p=prefix: self._dump(directory, p, answer), found))
            for answer, name in zip(found, written, strict=True):
                names.setdefault(answer.rank, []).extend([name] if name else [])
        everybody = recorded["fr_trace"] or recorded["nccl_trace"]
        for answer in everybody:
            _card(directory, answer, len(everybody), names[answer.rank])
        stacks = self._stacks(directory)
        # an absent rank is absent on every page
        failed = {
            a.rank: a for found in recorded.values() for a in found if a.status not in (_FOUND, _NOT_THERE)
        }.values()
        silent = [f"rank {a.rank} did not answer: {' '.join(a.text.split())[:200]}" for a in failed]
        return PollResult(len(everybody), sum(map(len, names.values())), stacks, (*self._lost, *silent))

    def _rings(self) -> dict[str, list[RankAnswer]]:
        """The records of hooks, by the prefix of their dumps' names."""
        if not self._knows_rings:
            return {}
        pages = {name: self._page(f"fr_trace_json?backend={quote(name, safe='')}") for name in self._backends}
        grouped = {name: page for name, page in pages.items() if any(map(_tells_of_groups, page))}
        self._backends = tuple(grouped) or self._backends
        return {f"{_NO_FILE_NAME.sub('_', name)}_trace": page for name, page in grouped.items()}

    def _stacks(self, directory: Path) -> int:
        """Writes stacks of py-spy if the job has it, else Python's own; returns the number of ranks."""
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
        """The answers on a page; none if the server lacks it, or does not send it whole."""
        address = f"{self.address}/{name}"
        try:
            status, reason, page = self._get(address, "GET", self._limits.page_s)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._lost.append(f"{address}: {getattr(error, 'strerror', None) or error or type(error).__name__}")
            return []
        if status == _FOUND:
            text = page.decode("utf-8", "replace")
            self._knows_rings = self._knows_rings or _KNOWS_RINGS in text
            return read_answers(text)
        if status == _FAILED_STATUS:
            self._failed = f"the server failed: {_error_text(page) or reason}"
        elif status != _NOT_THERE:
            self._lost.append(f"{address}: {status} {reason}")
        return []

    def _get(self, address: str, method: str, begin_s: float) -> tuple[int, str, bytes]:
        """Status, its reason and content of an answer; none of a redirect is followed: a debug server sends none."""
        now = self._now()
        if now >= self._round_ends:
            raise TimeoutError(f"not asked: the round took longer than {self._limits.round_s:g} s")
        parts = urlsplit(address)
        begins = min(now + begin_s, self._round_ends)
        connection = _connection(parts, begins - now)
        # a header that never ends is read by the same clock as the content
        connection.response_class = lambda sock, **how: http.client.HTTPResponse(  # type: ignore[assignment]
            cast(socket.socket, _TimedSocket(sock, self._limits, begins, self._round_ends, self._now)), **how
        )
        try:
            target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            connection.request(method, target, body=b"" if method == "POST" else None)
            with connection.getresponse() as response:
                return response.status, response.reason, self._content(response)
        finally:
            connection.close()

    def _content(self, response: http.client.HTTPResponse) -> bytes:
        parts, left = [], self._limits.largest
        while chunk := response.read1(CHUNK_BYTES):
            parts.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise ValueError(f"the answer is larger than {byte_count(self._limits.largest)}: given up")
        if response.length:
            raise ValueError(f"the answer ends {plural(response.length, 'byte')} before its announced length")
        return b"".join(parts)

    def _dump(self, directory: Path, prefix: str, answer: RankAnswer) -> str | None:
        """Writes a recorder's dump; returns its name, None without one."""
        if answer.status != _FOUND:
            return None
        pickled = self._pickle(answer) if prefix == "nccl_trace" else None
        document = answer.document() if pickled is None else None
        if pickled is None and (document is None or not (document.get("entries") or _is_of_ring(prefix))):
            return None
        name = f"{prefix}_rank_{answer.rank}{'' if pickled else '.json'}"
        _write(directory / name, pickled if pickled is not None else json.dumps(document).encode())
        (directory / f"{prefix}_rank_{answer.rank}{'.json' if pickled else ''}").unlink(missing_ok=True)
        return name

    def _pickle(self, answer: RankAnswer) -> bytes | None:
        """The whole recorder with stacks, from the process itself; the page has active ones only, without stacks."""
        if not answer.address:
            return None
        try:
            address = f"{answer.address}/handler/dump_nccl_trace_pickle"
            status, _, data = self._get(address, "POST", self._limits.process_s)
        except (OSError, ValueError, http.client.HTTPException):
            return None
        # torch has this recorder in every job, used or not
        return data if status == _FOUND and _ENTRY in data else None


def _connection(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    """A connection that is not made yet. The nodes of a cluster are reached without the proxy for outside addresses."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port or kind.default_port, timeout=timeout)


class _TimedSocket(io.RawIOBase):
    """The stream of an answer, with a bound on the time until it begins, and on that until it ends."""

    def __init__(
        self, sock: socket.socket, limits: AnswerLimits, begins: float, ends: float, now: Callable[[], float]
    ) -> None:
        # http.client closes the socket before the end of most answers
        self._socket, self._stream = sock, sock.makefile("rb", 0)
        self._limits, self._now = limits, now
        self._until, self._ends = begins, ends
        self._begun = False

    def makefile(self, _mode: str) -> IO[bytes]:
        """The stream, as http.client asks a socket for it."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Closes the socket, too."""
        self._stream.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Reads what is there. Raises TimeoutError."""
        left = self._until - self._now()
        try:
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            count = self._stream.readinto(buffer) or 0
        except TimeoutError as error:
            what = f"the answer did not end within {self._limits.rest_s:g} s" if self._begun else "no answer in time"
            raise TimeoutError(f"{what}: given up") from error
        if not self._begun:
            self._begun = True
            self._until = min(self._now() + self._limits.rest_s, self._ends)
        return count


def _error_text(page: bytes) -> str:
    """The text of an error page, in one line, without tags."""
    text = re.sub(r"<[^>]*>", " ", page[:10_000].decode("utf-8", "replace"))
    return " ".join(text.split())[:200]


def _tells_of_groups(answer: RankAnswer) -> bool:
    """Whether a ring has process groups: it then shows the progress of each, even without active operations."""
    document = answer.document() if answer.status == _FOUND else None
    return document is not None and bool(document.get("pg_config") or document.get("entries"))


def _is_of_ring(prefix: str) -> bool:
    return prefix not in ("fr_trace", "nccl_trace")


def _card(directory: Path, answer: RankAnswer, world: int, names: list[str]) -> None:
    """Writes the sidecar of the dumps, in the form of docs/capture.md."""
    failed = answer.status not in (_FOUND, _NOT_THERE)
    card = {
        "rankscope_capture": 1, "rank": answer.rank, "world_size": world, "host": answer.host, "dumps": names,
        "problems": [f"did not answer: {' '.join(answer.text.split())[:200]}"] if failed else [], "groups": [],
    }  # fmt: skip
    _write(directory / f"server_rank_{answer.rank}.json", json.dumps(card).encode())


def _write(path: Path, data: bytes) -> None:
    """Replaces a file in one step, so that nobody reads half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


# Pages of a `torch.distributed.debug` server: a section for each rank, with the answer of its process.

_SECTION = re.compile(r"<h2>Rank (\d{1,7}): ([^<\n]{0,1000})</h2>")
_FAILED_PAGE = re.compile(r"\s*<p>Failed to fetch: status=(\d{1,5})</p>")
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class RankAnswer:
    """The answer of one rank."""

    rank: int
    address: str
    """Address of the server in its process: "http://node07:41234"; empty without one."""
    status: int
    """HTTP status; 200 for an answer, 404 without such a handler."""
    text: str

    @property
    def host(self) -> str:
        """The host of the rank."""
        return urlsplit(self.address).hostname or ""

    def document(self) -> dict[str, Any] | None:
        """The JSON object in the answer; None without one."""
        for text in (self.text, html.unescape(self.text)):
            try:
                content = json.loads(text)
            except (ValueError, RecursionError):
                continue
            return content if isinstance(content, dict) else None
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
    """The server in a URL; empty without one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme == "http" and parts.hostname else ""


def py_spy_text(text: str) -> str:
    """A traceback of all threads by Python's faulthandler, in the form of py-spy's output.

    The main thread is the last. The process id is unknown, so it is 0. Empty without a thread in `text`.
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
