"""A driver that sends only the cells that changed, and over a slow link waits until the terminal has drawn them."""

from __future__ import annotations

import re
import threading
from asyncio import TimerHandle
from typing import Any

from textual import events
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from rankscope.tui.cell_diff import Cells

ASK = "\x1b[2;1H\x1b[6n"
"""Asks the terminal where its cursor is: it answers once it has drawn what came before.

In the second line, for in the first the answer would look like a function key.
"""
_MOVES = re.compile(r"\x1b\[[0-9;]*H")
PATIENCE = 2.0
"""Seconds after which a terminal that does not answer is taken for one that never does."""


class ChangedCellsDriver(LinuxDriver):
    """Keeps what the terminal shows, and sends the difference."""

    waits = False
    """Whether to wait for the terminal before the next frame."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._cells: Cells | None = None
        self._synchronized = False
        self._timer: TimerHandle | None = None
        """Runs while the terminal has been asked and has not answered."""
        self._answer = threading.Event()

    def write(self, data: str) -> None:
        """Sends data to the terminal: frames in part, everything else as it is."""
        if data in (SYNC_START, SYNC_END):
            self._synchronized = True
            return
        if "\x1b[" in data and self._grid().draw(data):
            self._send()
            return
        if _MOVES.search(data):
            self.forget()
        super().write(data)

    def _grid(self) -> Cells:
        """The cells of the terminal, unknown ones after its size has changed."""
        width, height = self._app.size
        if self._cells is None or (self._cells.width, self._cells.height) != (width, height):
            self._cells = Cells(width, height)
        return self._cells

    def _send(self) -> None:
        if self._timer is not None or self._cells is None:
            return
        changes = self._cells.changes()
        if not changes:
            return
        ask = ASK if self.waits else ""
        start, end = (SYNC_START, SYNC_END) if self._synchronized else ("", "")
        self._answer.clear()
        super().write(f"{start}{changes}{end}{ask}")
        if self.waits:
            self._timer = self._loop.call_later(PATIENCE, self._lost_patience)

    def _lost_patience(self) -> None:
        self.waits = False
        self._timer = None
        self._send()

    def _answered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._send()

    def process_message(self, message: Message) -> None:
        """Takes the answers of the terminal out of what it says; this runs in the thread that reads keys."""
        if isinstance(message, events.CursorPosition):
            self._answer.set()
            self._loop.call_soon_threadsafe(self._answered)
            return
        super().process_message(message)

    def start_application_mode(self) -> None:
        """Takes the terminal, of which nothing is known then."""
        self.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Gives the terminal back, its last answer awaited: it would end up on the command line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._answer.wait(PATIENCE)
        super().stop_application_mode()

    def forget(self) -> None:
        """Sends everything again with the next frame."""
        if self._cells is not None:
            self._cells.forget()


def driver_for(*, waits: bool) -> type[ChangedCellsDriver]:
    """The class of driver for a link: over a slow one it waits for the terminal."""
    return type("ChangedCellsDriver", (ChangedCellsDriver,), {"waits": waits})
