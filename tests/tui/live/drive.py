"""Drives the screen of a job that is watched: updates come when a test says so."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

from textual.pilot import Pilot

from rankscope.analysis import analyse
from rankscope.analysis.freeze import Freeze
from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import CollectiveRate, LiveState, with_state
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.live.following import Following
from rankscope.tui.options import ViewOptions
from rankscope.watching.update import FollowProgress, JobUpdate
from tests.builders import JobBuilder
from tests.tui import drive
from tests.tui.drive import PLAIN

RATES = (CollectiveRate("0", "default_pg", 12.3),)


class Told:
    """What follows a job, as far as the screen knows."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[JobUpdate | FollowProgress | None] = queue.SimpleQueue()
        self.count = 0
        self.stopped = False

    def run(self, publish: Callable[[JobUpdate | FollowProgress], None]) -> None:
        """Passes on what it is told."""
        while (news := self._news.get()) is not None:
            publish(news)

    def stop(self) -> None:
        """Ends `run`."""
        self.stopped = True
        self._news.put(None)

    def say(self, reading: FollowProgress) -> None:
        """How following goes."""
        self._news.put(reading)

    def put(self, dataset: Dataset, state: JobState = "progressing", alarm: bool = False, said: str = "") -> None:
        """The job is now like this."""
        update = update_of(dataset, state, self.count + 1, alarm)
        self.give(replace(update, reading=replace(update.reading, said=said)))

    def give(self, update: JobUpdate) -> None:
        """The job is now as this says."""
        self.count += 1
        self._news.put(update)


def update_of(dataset: Dataset, state: JobState, number: int, alarm: bool = False) -> JobUpdate:
    """An update of a job that was seen to be in a state."""
    live = LiveState(state, "operations go on", rates=RATES if state == "progressing" else ())

    def settle(freeze: Freeze) -> Freeze:
        return replace(freeze, stopped=state == "frozen", watched=True)

    analysis = with_state(analyse(dataset, settle), live, len(dataset.seen_ranks))
    return JobUpdate(number, dataset, analysis, live, FollowProgress(files=4), 4, monotonic(), alarm)


def job(done: int, waiting: bool = False, first: int = 0, ranks: int = 4, ahead: int | None = None) -> Dataset:
    """A job after so many collectives, of which the rings have let go the `first`; then rank 2 does not come.

    One rank may be a collective ahead of the others.
    """
    builder = JobBuilder(ranks)
    for at in range(done):
        builder.collective(op="all_reduce" if at % 3 else "broadcast")
    if waiting:
        builder.collective(ranks=[rank for rank in range(ranks) if rank != 2], state="started")
    if ahead is not None:
        builder.collective(ranks=[ahead], state="started")
    dataset = builder.build()
    return replace(dataset, ops=dataset.ops.filter(dataset.ops["seq"] > first))


@asynccontextmanager
async def watched(
    first: Dataset | None, options: ViewOptions = PLAIN, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[RankscopeApp, Pilot[None], Told]]:
    """The app once it shows the first update, or at once if there is none."""
    told = Told()
    app = RankscopeApp(None, "dumps", options, watch=told)
    async with app.run_test(size=size, notifications=True) as pilot:
        if first is not None:
            told.put(first)
            await until(app, pilot, lambda: app.screen is not app.opening)
            await until(app, pilot, lambda: live_of(app).shown.update.number == 1 and not app.lanes.detail_is_due)
        yield app, pilot, told


def live_of(app: RankscopeApp) -> Following:
    """Following, as the main screen does it."""
    assert isinstance(app.lanes.news, Following)
    return app.lanes.news


async def until(app: RankscopeApp, pilot: Pilot[None], ready: Callable[[], bool]) -> None:
    """Waits until something is so."""
    await drive.until(pilot, ready)
    await pilot.pause()


async def shown(app: RankscopeApp, pilot: Pilot[None], told: Told) -> None:
    """Waits until the last update is on the screen."""
    await until(app, pilot, lambda: live_of(app).shown.update.number == told.count)
    await until(app, pilot, lambda: not app.lanes.detail_is_due)


async def press(app: RankscopeApp, pilot: Pilot[None], *keys: str) -> None:
    """Presses keys and waits for what follows them."""
    await pilot.press(*keys)
    await until(app, pilot, lambda: app.screen is not app.lanes or not app.lanes.detail_is_due)


async def act(app: RankscopeApp, pilot: Pilot[None], name: str) -> None:
    """Does an action that has no key of its own, as the command palette does."""
    app.lanes.action_command(name) if name in app.lanes.commands else app.lanes.lanes.action_move(name)
    await press(app, pilot)
