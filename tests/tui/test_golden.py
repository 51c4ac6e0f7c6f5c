"""The screen as text, at several sizes; `RANKSCOPE_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest

from rankscope.tui.options import ViewOptions
from tests.tui.drive import PLAIN, opened, press, screen_text
from tests.tui.jobs import SHOWN_FAULTS, ShownFault, hang, healthy

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parents[2] / "docs"
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


@pytest.mark.parametrize("shown", SHOWN_FAULTS, ids=lambda shown: shown.name)
async def test_a_fault_looks_as_its_picture_in_the_docs(shown: ShownFault) -> None:
    async with opened(shown.job(), shown.screen, ViewOptions(palette="none")) as (app, _):
        text = screen_text(app)
    compare(f"fault_{shown.name}", text)
    drawn = [re.sub(r"\s", "", line) for line in text.splitlines()]
    assert picture_lines(DOCS / f"{shown.name}.svg", len(drawn)) == drawn, "`make screenshot` draws it anew"


def picture_lines(path: Path, count: int) -> list[str]:
    """The first lines of the text of a picture, without blanks."""
    lines = [""] * count
    for at, words in re.findall(r'<text [^>]*-line-(\d+)\)">([^<]*)</text>', path.read_text()):
        lines[int(at)] += re.sub(r"\s", "", html.unescape(words))
    return lines


async def test_a_healthy_job() -> None:
    async with opened(healthy()) as (app, _):
        compare("healthy_80x24", screen_text(app))


async def test_a_dump_that_is_missing() -> None:
    async with opened(hang(16, 10, no_dump=(6,))) as (app, _):
        compare("no_dump_80x24", screen_text(app))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("time", ["t", "plus", "plus"]), ("wide_cells", ["plus", "plus"]), ("whole_run", ["0"]),
        ("unfolded", ["j", "u"]), ("search", ["slash", *"scatter", "enter"]), ("help", ["question_mark"]),
        ("choice", ["g"]), ("prompt", ["colon"]),
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
