"""Draws the picture in the README with the real app: `make screenshot` writes docs/screenshot.svg."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rankscope.commands.source import Source
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import ViewOptions

ROOT = Path(__file__).parents[1]
HANG = "sample_data/two_groups"
PICTURE = ROOT / "docs" / "screenshot.svg"
SIZE = (100, 24)


async def draw() -> str:
    """The screen of the app on the hang, as SVG, once everything is on it."""
    app = RankscopeApp(load=Source((HANG,)).load, title=HANG, options=ViewOptions(palette="true"))
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause(0.5)
        return app.export_screenshot(title=f"rankscope {HANG}")


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.chdir(ROOT)
    PICTURE.write_text(asyncio.run(draw()))
