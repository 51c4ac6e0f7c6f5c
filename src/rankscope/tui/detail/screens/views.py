"""The views there are beside the lanes, in the order in which they are offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.detail.screens.breakdown import BreakdownScreen
from rankscope.tui.detail.screens.files import FilesScreen
from rankscope.tui.detail.screens.findings import FindingsScreen
from rankscope.tui.detail.screens.groups import GroupsScreen
from rankscope.tui.detail.screens.heat import HeatScreen
from rankscope.tui.detail.screens.hosts import HostsScreen
from rankscope.tui.detail.screens.mesh import MeshScreen
from rankscope.tui.detail.screens.messages import MessagesScreen
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.detail.screens.settings import SettingsScreen
from rankscope.tui.options import ViewOptions

View = tuple[str, Callable[[Dataset, Analysis, ViewOptions | None], Page]]
"""A name, and the screen that it opens."""

TRACES: Sequence[View] = [("heat map", HeatScreen), ("breakdown", BreakdownScreen)]
"""Those of profiler traces."""
VIEWS: Sequence[View] = [
    ("findings", FindingsScreen), ("messages", MessagesScreen), ("settings", SettingsScreen),
    ("groups", GroupsScreen), ("host stacks", HostsScreen), ("mesh", MeshScreen), ("files", FilesScreen),
]  # fmt: skip
"""Those of every job."""
