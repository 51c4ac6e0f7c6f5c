"""Pages as torch's debug server makes them, and a server that shows them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.parsers.dumps import Recorder

PORT = 41_234
TRACEBACK = """Current thread 0x00007f963 (most recent call first):
  <no Python frame>

Thread 0x00007f964 (most recent call first):
  File "/venv/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train (new).py", line 12 in <module>
"""
Sections = list[tuple[int, str]]
"""Status and text of each rank."""


def page(sections: Sections, handler: str, host: str = "node07", rings: bool = False) -> str:
    """A page with the answers of ranks 0, 1, ...; `rings`: as torch 2.15 makes it, which knows rings of backends."""
    body = "".join(_section(rank, *section, handler, host) for rank, section in enumerate(sections))
    links = '<a href="/fr_dump_file">FlightRecorder Dump</a>' if rings else ""
    return f'<!doctype html>\n<nav><h1>Debug Server</h1>{links}</nav>\n<section class="content">{body}</section>'


def _section(rank: int, status: int, text: str, handler: str, host: str) -> str:
    failed = f"\n            <p>Failed to fetch: status={status}</p>" if status != 200 else ""
    address = f"http://{host}:{PORT + rank}/handler/{handler}?"
    return f"\n        <h2>Rank {rank}: {address}</h2>\n        {failed}\n            <pre>{text}</pre>\n"


def recorded(ranks: int, missing: int) -> Sections:
    """Dumps of a job in which one rank never issues the last collective, as a page shows them."""
    sections = []
    for rank in range(ranks):
        recorder = Recorder(rank, {"0": ("default_pg", list(range(ranks)))}, library="gloo")
        for _ in range(5):
            recorder.collective("0", state="scheduled", retired=True)
        if rank != missing:
            recorder.collective("0", state="scheduled", retired=False)
        sections.append((200, json.dumps(json.loads(recorder.json()), indent=2)))
    return sections


def ring(pending: Sequence[bool]) -> Sections:
    """What a hook has recorded of each rank, as a page shows it: what is active, and how far each has come."""
    sections = []
    for rank, waits in enumerate(pending):
        recorder = Recorder(rank, {"0": ("default_pg", list(range(len(pending))))}, library="nccl2")
        recorder.collective("0", state="scheduled", retired=False)
        document = json.loads(recorder.json())
        if not waits:
            del document["entries"]
        sections.append((200, json.dumps(document, indent=2)))
    return sections


EMPTY: Sections = [(200, '{"nccl_comm_state": {}, "pg_config": {}, "pg_status": {}, "version": "2.10"}')] * 2
"""The same of a backend that nobody uses, or that no torch knows."""


@contextmanager
def serving(pages: dict[str, str], asked: list[str] | None = None) -> Iterator[str]:
    """A server with these pages; what is not among them is not found, and "failed:" begins an error. Its address.

    `asked` gets the names of the pages that are asked for.
    """

    class Handler(BaseHTTPRequestHandler):
        """Shows the pages."""

        def do_GET(self) -> None:
            """One page."""
            name = self.path.strip("/")
            if asked is not None:
                asked.append(name)
            if name.startswith("to:"):
                self.send_response(302)
                self.send_header("Location", name[3:])
                self.end_headers()
                return
            failed = pages.get(name, "").startswith("failed:")
            self.send_response(404 if name not in pages else 500 if failed else 200)
            self.end_headers()
            self.wfile.write(pages.get(name, "").encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
