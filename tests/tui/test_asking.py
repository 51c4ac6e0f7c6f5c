"""Asking a job for dumps from the screen: only after asking who sits before it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.tui.drive import PLAIN, bar, opened, press, screen_text
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
        await press(app, pilot, "D")
        assert "ask 2 ranks" in screen_text(app) and not pipes.asked
        await press(app, pilot, "escape")
        assert not pipes.asked
        await press(app, pilot, "D", "down", "enter")
        assert not pipes.asked
        await press(app, pilot, "D", "enter")
        assert pipes.asked == [0, 3]
        assert "2 of 2 ranks asked" in bar(app, "keys")


async def test_without_pipes_it_says_what_to_set() -> None:
    async with opened(hang(), options=replace(PLAIN, pipes=Answering([]))) as (app, pilot):
        await press(app, pilot, "D")
        assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in bar(app, "keys")
