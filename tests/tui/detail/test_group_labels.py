"""Names of groups on the screen."""

from __future__ import annotations

from rankscope.schema import Group
from rankscope.tui.detail.operation_text import group_label, group_short


def test_groups_go_by_their_description() -> None:
    group = Group(1, "41", "mesh_tp", (0, 1), "config", False)
    assert group_label(group) == "mesh_tp (group 41)"
    assert group_short(group) == "mesh_tp"
    bare = Group(1, "41", "", (0, 1), "config", False)
    assert group_label(bare) == group_short(bare) == "group 41"
    assert group_label(None) == group_short(None) == "no group"
