"""Progress is told to a person on stderr, and to nobody else."""

from __future__ import annotations

import io

import pytest

from rankscope.commands.output import ProgressLine
from rankscope.commands.source import LoadStep


class Terminal(io.StringIO):
    """A stderr that somebody watches."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_a_terminal_sees_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressLine() as narrator:
        for done in range(3):
            narrator(LoadStep(done, 256, "reading\x1b[2J"))
    assert terminal.getvalue() == "\rreading\\x1b[2J 0/256\x1b[K\r\x1b[K"


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with ProgressLine() as narrator:
        narrator(LoadStep(1, 2, "reading"))
    assert pipe.getvalue() == ""
