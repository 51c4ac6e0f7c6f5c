"""The views beside the lanes, in the order of the menu."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.detail.screens.breakdown_page import BreakdownScreen
from rankscope.tui.detail.screens.files_page import FilesScreen
from rankscope.tui.detail.screens.findings_page import FindingsScreen
from rankscope.tui.detail.screens.groups_page import GroupsScreen
from rankscope.tui.detail.screens.heat_page import HeatScreen
from rankscope.tui.detail.screens.hosts_page import HostsScreen
from rankscope.tui.detail.screens.mesh_page import MeshScreen
from rankscope.tui.detail.screens.messages_page import MessagesScreen
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.detail.screens.path_page import PathScreen, PatternScreen
from rankscope.tui.detail.screens.settings_page import SettingsScreen
from rankscope.tui.options import ViewOptions

View = tuple[str, Callable[[Dataset, Analysis, ViewOptions | None], Page]]
"""A name, and the screen that it opens."""

TRACES: Sequence[View] = [
    ("heat map", HeatScreen), ("breakdown", BreakdownScreen), ("critical path", PathScreen),
    ("kernel patterns", PatternScreen),
]  # fmt: skip
"""Views of profiler traces."""
VIEWS: Sequence[View] = [
    ("findings", FindingsScreen), ("messages", MessagesScreen), ("settings", SettingsScreen),
    ("groups", GroupsScreen), ("host stacks", HostsScreen), ("mesh", MeshScreen), ("files", FilesScreen),
]  # fmt: skip
"""Views of every job."""
