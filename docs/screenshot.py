"""Draws the picture in the README with the real app: `make screenshot` writes docs/screenshot.svg."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

import polars as pl

from rankscope.assemble.load import load
from rankscope.commands.source import JobSource
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import ViewOptions

ROOT = Path(__file__).parents[1]
HANG = ROOT / "sample_data" / "two_groups"
PICTURE = ROOT / "docs" / "screenshot.svg"
SIZE = (120, 36)
STILL_S = 600
"""How long after its last event the job was dumped, in the picture: a checkout forgets when files were written."""


async def draw(dumps: Path) -> str:
    """The screen of the app on the hang, as SVG, once everything is on it."""
    app = RankscopeApp(load=JobSource((str(dumps),)).load, title=f"{dumps}/", options=ViewOptions(palette="true"))
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(300):
            await pilot.pause(0.1)
            if app.screen is not app.opening and not app.lanes.detail_is_due:
                break
        await app.workers.wait_for_complete()
        await pilot.pause(0.5)
        return app.export_screenshot(title=f"rankscope {dumps}/")


def copy(dumps: Path) -> None:
    """Copies the dumps, written `STILL_S` after the last thing that happened."""
    shutil.copytree(HANG, dumps)
    dataset = load([dumps])
    written = dataset.ops.select(pl.col("created_ns").max()).item() / 1e9 + STILL_S
    for path in dumps.iterdir():
        os.utime(path, (written, written))


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        copy(Path("dumps"))
        PICTURE.write_text(asyncio.run(draw(Path("dumps"))))
