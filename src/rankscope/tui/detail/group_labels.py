"""Names of groups on the screen."""

from __future__ import annotations

from rankscope.schema import Group
from rankscope.text.escaping import plain
from rankscope.text.wording import group_name


def group_label(group: Group | None) -> str:
    """The label of a group for people: "mesh_tp (group 4)", "group 4"; "no group" without one."""
    return "no group" if group is None else plain(group_name(group.name, group.description))


def group_short(group: Group | None) -> str:
    """The description of a group, or its name where it has none."""
    return "no group" if group is None else plain(group.description or f"group {group.name or '?'}")
