"""A debug server that drips, floods, redirects or lies ends in a message, by the clock that the caller hands in."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rankscope.triggers.debug_server import DEFAULT_LIMITS, AnswerLimits, DebugServer, ServerError
from tests.triggers.pages import page, recorded, serving

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@dataclass
class TurnedClock:
    """A clock that a test turns."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that gives each caller this answer, until the caller goes away."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller, contextlib.suppress(OSError):
                    caller.recv(1 << 16)
                    answer(caller)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def refusal(
    address: str, tmp_path: Path, limits: AnswerLimits = DEFAULT_LIMITS, now: Callable[[], float] = lambda: 0.0
) -> str:
    """The reason why a server is given up."""
    with pytest.raises(ServerError) as raised:
        DebugServer(address, limits, now).poll(tmp_path)
    assert str(raised.value).startswith(address)
    return str(raised.value)


@pytest.mark.parametrize("head", [b"\r\n", b"X-Dripping: ", b"Content-Length: 99999999\r\n\r\n"])
def test_an_answer_that_drips(head: bytes, tmp_path: Path) -> None:
    clock = TurnedClock()

    def drip(caller: socket.socket) -> None:
        caller.sendall(HEAD + head)
        while True:
            caller.sendall(b"H")
            clock.seconds += 1

    with answering(drip) as address:
        # the drops may come faster than they are read, and then the clock has run out before the answer began
        assert re.search(
            "did not end within 60 s: given up|no answer in time: given up", refusal(address, tmp_path, now=clock.now)
        )


def wait(caller: socket.socket) -> None:
    """Says nothing."""
    caller.recv(1)


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    limits = replace(DEFAULT_LIMITS, page_s=0.05)
    with answering(wait) as address:
        assert "no answer in time: given up" in refusal(address, tmp_path, limits)


@pytest.mark.parametrize(
    "head", [b"\r\n", b"Content-Length: 9999999999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n"]
)
def test_an_answer_without_an_end(head: bytes, tmp_path: Path) -> None:
    def flood(caller: socket.socket) -> None:
        caller.sendall(HEAD + head)
        while True:
            caller.sendall(bytes(1 << 16))

    with answering(flood) as address:
        limits = replace(DEFAULT_LIMITS, largest=1 << 18)
        assert "the answer is larger than 256 KiB: given up" in refusal(address, tmp_path, limits)


def test_headers_without_an_end(tmp_path: Path) -> None:
    def flood(caller: socket.socket) -> None:
        caller.sendall(HEAD)
        while True:
            caller.sendall(b"X-More: of it\r\n")

    with answering(flood) as address:
        assert "headers" in refusal(address, tmp_path)


@pytest.mark.parametrize("to", ["{}/fr_trace_json", "file:///etc/passwd", "http://127.0.0.1:9/", "gopher://x"])
def test_a_redirect_is_not_followed(to: str, tmp_path: Path) -> None:
    callers = []

    def redirect(caller: socket.socket) -> None:
        callers.append(caller)
        caller.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + to.format(address).encode() + b"\r\n\r\n")

    with answering(redirect) as address:
        assert "302 Found" in refusal(address, tmp_path)
    assert len(callers) == 1


@pytest.mark.parametrize("length", [b"1000000", b"4097"])
def test_an_answer_shorter_than_it_says(length: bytes, tmp_path: Path) -> None:
    sent = HEAD + b"Content-Length: " + length + b"\r\n\r\n" + bytes(4096)
    with answering(lambda caller: caller.sendall(sent)) as address:
        assert "before its announced length" in refusal(address, tmp_path)


@pytest.mark.parametrize("length", [b"-5", b"many", b"1e9", b""])
def test_a_length_that_is_none(length: bytes, tmp_path: Path) -> None:
    sent = HEAD + b"Content-Length: " + length + b"\r\n\r\nno page of torch"
    with answering(lambda caller: caller.sendall(sent)) as address:
        assert "no rank answered" in refusal(address, tmp_path)


def test_a_later_page_that_fails_costs_nothing_that_came_before(tmp_path: Path) -> None:
    with serving({"fr_trace_json": page(recorded(2, missing=1), "fr_trace_json"), "stacks": "failed: no"}) as address:
        limits = replace(DEFAULT_LIMITS, round_s=20.0)
        clock = TurnedClock()
        server = DebugServer(address, limits, clock.now)
        page_of = server._page

        def late(name: str) -> object:
            answers = page_of(name)
            clock.seconds += 15.0
            return answers

        server._page = late  # type: ignore[method-assign, assignment]
        polled = server.poll(tmp_path)
    assert polled.dumps == 2 and (tmp_path / "fr_trace_rank_1.json").exists()
    assert any("the round took longer than 20 s" in problem for problem in polled.problems)
