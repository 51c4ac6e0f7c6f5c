"""How often the screen may be drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.tui.app import FRAMES, SLOW_FRAMES
from tests.tui.drive import PLAIN, opened
from tests.tui.jobs import hang


@pytest.mark.parametrize(("slow_link", "frames"), [(False, FRAMES), (True, SLOW_FRAMES), (False, FRAMES)])
async def test_a_screen_waits_for_its_next_frame_as_the_link_bears(slow_link: bool, frames: int) -> None:
    options = replace(PLAIN, slow_link=slow_link, changed_cells=False)
    async with opened(hang(), options=options) as (app, _):
        assert app.screen._update_timer._interval == pytest.approx(1 / frames)
