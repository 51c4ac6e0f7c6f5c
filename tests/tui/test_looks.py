"""Every severity and status looks like something, in colours that the palettes have."""

from __future__ import annotations

from typing import get_args

import pytest

from rankscope.kinds.finding_kinds import FINDINGS, SEVERITIES, STATUSES, BadgeStyle, Severity, Status
from rankscope.tui.options import Palette
from rankscope.tui.palette import badge, named
from rankscope.tui.styled_text import Role

LOOKS = [*SEVERITIES.values(), *STATUSES.values()]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.badge)
def test_colours_are_those_of_the_palettes(look: BadgeStyle) -> None:
    for palette in get_args(Palette):
        assert named(look.colour, palette, bold=True).bold
        assert badge(look.colour, palette) is not None
    assert look.role in get_args(Role)


def test_none_is_left_out() -> None:
    assert list(SEVERITIES) == list(get_args(Severity))
    assert set(STATUSES) == set(get_args(Status))
    assert len({look.badge for look in LOOKS}) == len(LOOKS)
    assert {row.worst for row in FINDINGS.values()} <= set(SEVERITIES)
    assert {word for row in FINDINGS.values() for word in (row.status, row.status_alone)} <= set(STATUSES)
