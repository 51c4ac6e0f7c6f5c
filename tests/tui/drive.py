"""Drives the app in tests: opens it on a dataset that is there already, and reads its screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.worker import WorkerCancelled

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.board import Board
from rankscope.tui.options import Load, ProgressLike, ViewOptions

LONGEST_S, LOOK_S = 300.0, 0.02
"""So long a test waits for what has to come, and so often it looks: a machine may be busy."""
PLAIN = ViewOptions(ascii_only=True, palette="none")


def loads(dataset: Dataset, analysis: Analysis) -> Load:
    """A loader that has it all."""

    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        return dataset, analysis

    return load


@asynccontextmanager
async def opened(
    job: tuple[Dataset, Analysis],
    size: tuple[int, int] = (80, 24),
    options: ViewOptions = PLAIN,
    at_start: type[Screen[Any]] | None = None,
) -> AsyncIterator[tuple[RankscopeApp, Pilot[None]]]:
    """The app after loading; `at_start` is the page that it opens on instead of the lanes."""
    app = RankscopeApp(loads(*job), "dumps", options)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot, at_start)
        yield app, pilot


async def loaded(app: RankscopeApp, pilot: Pilot[None], at_start: type[Screen[Any]] | None = None) -> None:
    """Waits until the main screen is there, or the page over it."""
    await until(pilot, lambda: app.screen is not app.opening)
    if at_start is None:
        assert app.screen is app.lanes
    else:
        await until(pilot, lambda: isinstance(app.screen, at_start))
    await settle(app, pilot)


async def until(pilot: Pilot[None], ready: Callable[[], object]) -> None:
    """Waits until something is so."""
    end = monotonic() + LONGEST_S
    while not ready():
        assert monotonic() < end, f"it did not come about:\n{screen_text(pilot.app)}"
        await pilot.pause(LOOK_S)


async def settle(app: RankscopeApp, pilot: Pilot[None]) -> None:
    """Waits until threads are done and the detail has followed."""
    await workers_done(app)
    await pilot.pause()
    await pilot.pause()
    await until(pilot, lambda: app.screen is not app.lanes or not app.lanes.detail_is_due)


async def workers_done(app: App[Any]) -> None:
    """Waits until no thread runs; one that another replaced is done, too."""
    while any(not worker.is_finished for worker in app.workers):
        with suppress(WorkerCancelled):
            await app.workers.wait_for_complete()


async def press(app: RankscopeApp, pilot: Pilot[None], *keys: str) -> None:
    """Presses keys and waits for what they start."""
    await pilot.press(*keys)
    await settle(app, pilot)


async def act(app: RankscopeApp, pilot: Pilot[None], name: str) -> None:
    """Does an action that has no key of its own, as the command palette does, and waits for what it starts."""
    app.lanes.action_command(name) if name in app.lanes.commands else app.lanes.lanes.action_move(name)
    await settle(app, pilot)


def board_of(app: RankscopeApp) -> Board:
    """The lanes of operations of the main screen."""
    return app.lanes.boards.operations


def screen_text(app: App[Any]) -> str:
    """The screen as lines of text, without blanks at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def bar(app: RankscopeApp, name: str) -> str:
    """One of the lines of text of the main screen."""
    return app.lanes.bar(name).text
