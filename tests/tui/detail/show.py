"""Runs one widget or screen in an app of its own and reads the screen back as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from rankscope.tui.detail.screens.page import Page, Result

UNSET = object()


class OneScreen(App[None]):
    """Opens a screen, and keeps what it dismissed with."""

    CSS = "Screen { background: ansi_default; }"

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.page = page
        self.result: Any = UNSET

    def on_mount(self) -> None:
        """Opens the screen."""
        self.push_screen(self.page, self._keep)

    def _keep(self, result: Result) -> None:
        self.result = result


class OneWidget(App[None]):
    """Shows a widget over the whole screen."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        """The widget."""
        yield self.widget


@asynccontextmanager
async def opened(page: Page, size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[OneScreen, Pilot[None]]]:
    """A screen that is open and drawn."""
    app = OneScreen(page)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def screen_text(app: App[Any]) -> str:
    """What the screen shows, line by line, without blanks at the end."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips[:height]]
    assert all(len(line) <= width for line in lines)
    return "\n".join(lines) + "\n"
