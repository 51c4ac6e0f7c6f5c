"""The pane and the screens, character by character."""

from __future__ import annotations

import pytest

from tests.tui.detail.goldens import FOLDER, NAMES, make


@pytest.mark.parametrize("name", NAMES)
async def test_screens_look_as_they_did(name: str) -> None:
    assert await make(name) == (FOLDER / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_goldens_are_printable_and_where_they_must_be_ascii(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert all(line.isprintable() for line in text.splitlines())
    # wide ones are drawn without the wish for ASCII, so their rules are lines
    assert text.isascii() or name.endswith("-wide")


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)
