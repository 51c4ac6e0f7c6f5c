"""Asking a job for dumps from the screen: only after asking who sits before it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from tests.tui.drive import PLAIN, act, bar, opened, press, screen_text
from tests.tui.jobs import hang


@dataclass
class Answering:
    """Pipes of two ranks."""

    there: list[int]
    asked: list[int] = field(default_factory=list)

    def ranks(self) -> list[int]:
        """Ranks that can be asked."""
        return self.there

    def ask(self) -> str:
        """Asks them."""
        self.asked += self.there
        return "2 of 2 ranks asked for dumps"


async def test_it_asks_first() -> None:
    pipes = Answering([0, 3])
    async with opened(hang(), options=replace(PLAIN, pipes=pipes)) as (app, pilot):
        await act(app, pilot, "ask_dumps")
        assert "ask 2 ranks" in screen_text(app) and not pipes.asked
        await press(app, pilot, "escape")
        assert not pipes.asked
        await act(app, pilot, "ask_dumps")
        await press(app, pilot, "down", "enter")
        assert not pipes.asked
        await act(app, pilot, "ask_dumps")
        await press(app, pilot, "enter")
        assert pipes.asked == [0, 3]
        assert "2 of 2 ranks asked" in bar(app, "keys")


async def test_without_pipes_it_says_what_to_set() -> None:
    async with opened(hang(), options=replace(PLAIN, pipes=Answering([]))) as (app, pilot):
        await act(app, pilot, "ask_dumps")
        assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in bar(app, "keys")


def of_backends(*names: str) -> tuple[Dataset, Analysis]:
    """The hang with operations of these backends."""
    job, analysis = hang()
    libraries = pl.Series(values=[names[i % len(names)] for i in range(job.ops.height)], dtype=pl.Categorical)
    return replace(job, ops=job.ops.with_columns(library=libraries)), analysis


async def test_a_backend_that_makes_no_pipes_is_said_to_make_none() -> None:
    async with opened(of_backends("nccl2"), options=replace(PLAIN, pipes=Answering([]))) as (app, pilot):
        await act(app, pilot, "ask_dumps")
        assert "nccl2 makes no trigger pipes: run rankscope.capture" in bar(app, "keys")


async def test_pipes_are_said_to_be_of_the_legacy_backend_only() -> None:
    pipes = Answering([0, 3])
    async with opened(of_backends("nccl", "nccl2"), options=replace(PLAIN, pipes=pipes)) as (app, pilot):
        await act(app, pilot, "ask_dumps")
        assert "ask 2 ranks: NCCL's own recorder only, not nccl2" in screen_text(app)
