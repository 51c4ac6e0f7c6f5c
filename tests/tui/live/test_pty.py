"""The real program on a real pty, watching files that another process writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.tui.terminal import Terminal
from tests.watching.jobs import Running, target
from tests.watching.writer import Writer

pytestmark = pytest.mark.pty

ENV = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
LONGEST_S = 300.0


def put(writer: Writer, running: Running, dumps: Path) -> None:
    for rank in range(len(running.ranks)):
        writer.do("replace", running.draft(rank), target(dumps, rank))


def rung(terminal: Terminal) -> bool:
    """Whether the bell was rung; the same byte ends sequences for the terminal's system."""
    return b"\x07" in re.sub(rb"\x1b\][^\x07]*\x07", b"", terminal.received)


def read(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def test_a_job_moves_freezes_and_rings(tmp_path: Path) -> None:
    dumps, running = tmp_path / "dumps", Running(tmp_path / "drafts")
    dumps.mkdir()
    paged = tmp_path / "paged"
    command = [sys.executable, "-m", "rankscope", str(dumps), "--watch", "--freeze-after", "2"]
    with Writer() as writer, Terminal([*command, "--on-freeze", f"cat > '{paged}'"], ENV, (100, 30)) as terminal:
        terminal.until("no files yet", LONGEST_S)
        running.step(5)
        put(writer, running, dumps)
        terminal.until("WATCHING", LONGEST_S)
        for _ in range(3):
            running.step(5)
            put(writer, running, dumps)
            terminal.until(f"#{len(running.ranks[0].entries)} ", LONGEST_S)
        assert "FOLLOWING" in terminal.text and not rung(terminal)
        terminal.press("h")
        terminal.until("F follow", LONGEST_S)
        running.step(without=2)
        for _ in range(round(LONGEST_S)):
            # dumps come again and again, and show the same
            put(writer, running, dumps)
            terminal.read(0.5)
            if "FROZEN" in terminal.text:
                break
        terminal.until("FROZEN", LONGEST_S)
        terminal.until("rank 2 never issued", LONGEST_S)
        assert rung(terminal)
        terminal.until(lambda _: b'"culprit_ranks"' in read(paged))
        terminal.press("q")
        assert terminal.wait() == 0
