"""The screen as text, at several sizes; `RANKSCOPE_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.tui.options import ViewOptions
from tests.tui.drive import PLAIN, opened, press, screen_text
from tests.tui.jobs import hang, healthy

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "RANKSCOPE_UPDATE_GOLDEN"


def compare(name: str, text: str) -> None:
    """Fails if the screen is not what the file says."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{UPDATE}=1 writes {path.name} anew"


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
async def test_a_hang(size: tuple[int, int]) -> None:
    async with opened(hang(256, 8, culprit=12), size) as (app, _):
        compare(f"hang_{size[0]}x{size[1]}", screen_text(app))


async def test_a_healthy_job() -> None:
    async with opened(healthy()) as (app, _):
        compare("healthy_80x24", screen_text(app))


async def test_a_dump_that_is_missing() -> None:
    async with opened(hang(16, 10, no_dump=(6,))) as (app, _):
        compare("no_dump_80x24", screen_text(app))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("time", ["t", "w", "w"]), ("wide_cells", ["w", "w"]), ("whole_run", ["0"]), ("unfolded", ["u", "k", "u"]),
        ("search", ["slash", *"scatter", "enter"]), ("help", ["question_mark"]), ("choice", ["v"]),
        ("prompt", ["colon"]),
    ],
)  # fmt: skip
async def test_after_some_keys(name: str, keys: list[str]) -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        for key in keys:
            # the axis of time comes from a thread: a key that zooms is for the axis after it
            await press(app, pilot, key)
        lines = screen_text(app).splitlines(keepends=True)
        if app.screen is app.lanes:
            del lines[app.lanes.detail.region.y : app.lanes.detail.region.bottom]
        compare(f"{name}_80x24", "".join(lines))


async def test_lines_are_drawn_where_unicode_is_allowed() -> None:
    async with opened(hang(16, 10), options=ViewOptions()) as (app, _):
        text = screen_text(app)
        assert "\u2500\u2500\u2500" in text
    async with opened(hang(16, 10), options=PLAIN) as (app, _):
        assert screen_text(app).isascii()
