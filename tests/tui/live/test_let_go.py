"""What was on the screen before an update is let go at once: a search for cycles that would find it is seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from rankscope.schema import Dataset
from tests.tui.live.drive import job, press, shown, until, watched


@pytest.fixture
def no_search() -> Iterator[None]:
    """Nothing looks for cycles."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("axis", ["sequence", "time"])
async def test_datasets_that_were_replaced_are_gone(axis: str) -> None:
    known: list[ref[Dataset]] = []
    async with watched(job(5)) as (app, pilot, told):
        if axis == "time":
            await press(app, pilot, "t")
            await until(app, pilot, lambda: app.lanes.boards.operations.view.kind == "time")
        for number in range(6, 10):
            dataset = job(number)
            known.append(ref(dataset))
            told.put(dataset)
            del dataset
            await shown(app, pilot, told)
            await press(app, pilot, "h")
        await until(app, pilot, lambda: [each() is not None for each in known] == [False, False, False, True])
