"""The real program on a real pty, on the sample dumps."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.tui.terminal import Terminal

pytestmark = pytest.mark.pty

SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"
ENV = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
VERDICT = "ROOT  rank 3 never issued"
CARD = "do now"
"""A rule of the card, which comes after the lanes."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rankscope", str(SAMPLE), *arguments]


def drawn(terminal: Terminal, keys: str) -> int:
    """The bytes that some keys take from the first screen on, each of them drawn before the next."""
    terminal.until(VERDICT)
    terminal.until(CARD)
    begin = len(terminal.received)
    for key in keys:
        before = len(terminal.received)
        terminal.press(key)
        terminal.until(lambda _, before=before: len(terminal.received) > before)  # type: ignore[misc]
    return begin


def test_opens_walks_and_quits() -> None:
    with Terminal(command(), ENV) as terminal:
        terminal.until(VERDICT)
        terminal.until(CARD)
        terminal.press("\x1b[A")
        terminal.until(lambda text: "\n> 0" in text)
        terminal.press("j")
        terminal.until(lambda text: "\n>!3" in text)
        terminal.press("/")
        terminal.until("\n /")
        terminal.press("reduce\r")
        terminal.until("find 'reduce': ")
        terminal.press("?")
        terminal.until("This view")
        terminal.press("\x1b")
        terminal.until(VERDICT)
        terminal.press("q")
        assert terminal.wait() == 0
        left = terminal.received.rpartition(b"\x1b[?1049l")[2].decode()
        assert "HANG: rank 3 never issued all_reduce #19 of default_pg" in left
        assert f"rankscope report {SAMPLE}" in left


def test_the_rule_below_the_lanes_follows_its_words() -> None:
    with Terminal(command(), ENV, (130, 40)) as terminal:
        terminal.until(CARD)
        terminal.until(lambda text: "by distance" not in text)
        terminal.press("g")
        terminal.until("rows by distance")
        terminal.press("d")
        terminal.until(lambda text: any("by distance" in line and len(line) == 130 for line in text.splitlines()))
        terminal.press("q")
        assert terminal.wait() == 0


def test_changed_cells_show_what_whole_frames_show_in_half_of_the_bytes() -> None:
    keys = "hhlhllh"  # each moves the cursor, whatever else the machine does
    full = {**ENV, "RANKSCOPE_FULL_FRAMES": "1"}
    with Terminal(command(), ENV) as changed, Terminal(command(), full) as whole:
        begins = [drawn(terminal, keys) for terminal in (changed, whole)]
        # what follows the last key may come later at one of them
        whole.until(lambda text: changed.read(0.05) == 0 and text == changed.text)
        few, many = (len(t.received) - begin for t, begin in zip((changed, whole), begins, strict=True))
        # a busy program draws once for several keys, so a frame counts as a byte for each of its cells
        assert few < many
        assert few * 2 < len(keys) * 80 * 24
        for terminal in (changed, whole):
            terminal.press("q")
            assert terminal.wait() == 0


def test_over_ssh_the_terminal_is_waited_for_and_no_mouse_is_taken() -> None:
    with Terminal(command(), {**ENV, "SSH_CONNECTION": "1 2 3 4"}) as terminal:
        terminal.until(VERDICT)
        terminal.press("kjkjhhll")
        terminal.until(lambda text: "\n>!3" in text)
        terminal.press("q")
        assert terminal.wait() == 0
        assert b"\x1b[6n" in terminal.received
        assert b"\x1b[?1000h" not in terminal.received


def test_a_terminal_that_never_answers_is_not_waited_for() -> None:
    with Terminal(command(), {**ENV, "SSH_CONNECTION": "1 2 3 4"}, answers=False) as terminal:
        terminal.until(VERDICT)
        terminal.press("k")
        terminal.until(lambda text: "\n> 0" in text)
        asked = terminal.received.count(b"\x1b[6n")
        terminal.press("j")
        terminal.until(lambda text: "\n>!3" in text)
        assert terminal.received.count(b"\x1b[6n") == asked
        terminal.press("q")
        assert terminal.wait() == 0


def test_resizing_draws_everything_anew() -> None:
    with Terminal(command(), ENV) as terminal:
        terminal.until(VERDICT)
        terminal.until(CARD)
        terminal.resize(130, 40)
        terminal.until(lambda text: VERDICT in text and "stack of what it issued last" in text)
        terminal.resize(80, 24)
        terminal.until(lambda text: VERDICT in text and "stack of what it issued last" not in text)
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "vt100"}, {"LANG": "C", "LC_ALL": "C"}])
def test_poor_terminals_get_the_answer_too(extra: dict[str, str]) -> None:
    with Terminal(command(), {**ENV, **extra}) as terminal:
        terminal.until(VERDICT)
        terminal.until("never arrived")
        drawn = terminal.received
        if "LANG" in extra:
            assert drawn.isascii()
        else:
            styles = {part for style in re.findall(rb"\x1b\[([0-9;]*)m", drawn) for part in style.split(b";")}
            assert styles <= {b"", b"0", b"1", b"2", b"4", b"7"}
        terminal.press("q")
        assert terminal.wait() == 0


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with Terminal([sys.executable, "-m", "rankscope", str(tmp_path)], ENV) as terminal:
        assert terminal.wait() == 2
        after = terminal.received.rpartition(b"\x1b[?1049l")[2]
        assert b"rankscope: " in after
        assert b"Traceback" not in terminal.received


@pytest.mark.parametrize("extra", [{}, {"SSH_CONNECTION": "1 2 3 4"}])
def test_the_screen_is_whole_again_after_the_editor(extra: dict[str, str], tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "\\033[2J\\033[Hediting %s" "$*"\nsleep 0.5\n')
    editor.chmod(0o755)
    env = {**ENV, **extra, "EDITOR": str(editor), "VISUAL": str(editor)}
    with Terminal(command("--path-map", f"/job={SAMPLE.parent}"), env) as terminal:
        terminal.until(VERDICT)
        terminal.press("3")
        terminal.until("to blame")
        terminal.press("o")
        terminal.until("editing ")
        terminal.until("to blame")
        terminal.until("esc back")
        assert "editing" not in terminal.text
        terminal.press("\x1b")
        terminal.until(VERDICT)
        terminal.press("q")
        assert terminal.wait() == 0
