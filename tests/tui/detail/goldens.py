"""What goldens show: texts of the pane and of the screens at 80x24 and wide.

`python -m tests.tui.detail.goldens` writes the files anew.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.logs.page.messages_page import MessagesScreen
from rankscope.features.memory.page.memory_page import MemoryScreen
from rankscope.features.numbers.page.numbers_page import NumbersScreen
from rankscope.features.stacks.hosts_page import HostsScreen
from rankscope.schema import Dataset
from rankscope.tui.detail.detail_text import compact, expanded
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.screens.files_page import FilesScreen
from rankscope.tui.detail.screens.findings_page import FindingsScreen
from rankscope.tui.detail.screens.groups_page import GroupsScreen
from rankscope.tui.detail.screens.member_page import MemberScreen
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.detail.screens.settings_page import SettingsScreen
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line
from tests.features.memory.rules.test_memory_findings import leak
from tests.logs import line, setting, with_logs
from tests.memory_writer import sampled_job
from tests.tui.detail.number_jobs import flipped, referenced
from tests.tui.detail.samples import CULPRIT, DP, HOSTILE, LAST_SEQ, TP, hang, hostile, looked
from tests.tui.detail.show import opened, screen_text
from tests.tui.drive import workers_done

FOLDER = Path(__file__).parent / "golden"
NARROW, WIDE = (80, 24), (130, 40)
BARE = ViewOptions(ascii_only=True, palette="none")

Make = Callable[[], Awaitable[str]]


def absent() -> Selection:
    """The cell of the culprit."""
    return Selection(CULPRIT, None, TP, LAST_SEQ, finding=0, absence="never issued")


def present(dataset: Dataset, rank: int, group: int, seq: int) -> Selection:
    """A cell with an operation."""
    return Selection(rank, OpIndex(dataset).position(rank, group, seq), group, seq, finding=0)


def logged() -> tuple[Dataset, Analysis]:
    """The hang with logs: the culprit ran out of memory, all others were told of it by the watchdog; and settings."""
    dataset, analysis = hang()
    others = [rank for rank in range(8) if rank != CULPRIT]
    out_of_memory = line(
        CULPRIT, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "root", 0.006, kind="traceback",
        pattern="cuda-oom", values='{"launcher": false, "frames": [["forward", "model/attention.py", 211]]}',
    )  # fmt: skip
    lines = [
        *(line(r, "NCCL INFO Bootstrap : Using eth0", at_s=0.001 * r, kind="nccl-info") for r in range(8)),
        line(CULPRIT, "saving step 31", at_s=0.004, role="", kind="print"),
        out_of_memory,
        line(CULPRIT, "Failed to initialize NVML", "noise", 0.007),
        *(line(r, f"[Rank {r}] Watchdog caught collective operation timeout", "victim", 0.2, kind="watchdog-timeout")
          for r in others),
        line(None, "Broken pipe", "context", None, host=None, kind="nccl-warning"),
    ]  # fmt: skip
    settings = [
        *(setting(r, "NCCL_ALGO", "Tree" if r == CULPRIT else "Ring") for r in range(8)),
        *(setting(r, "NCCL_DEBUG", "INFO") for r in range(8)),
        *(setting(r, "NCCL_IB_DISABLE", "1") for r in others),
        *(setting(r, "version:nccl", "2.27.3") for r in range(8)),
    ]  # fmt: skip
    return with_logs(dataset, lines, settings), analysis


def leaking() -> tuple[Dataset, Analysis]:
    """Samples of 32 ranks, of which rank 2 leaks."""
    dataset = sampled_job(leak, ranks=32)
    return dataset, analyse(dataset)


def joined(lines: list[Line]) -> str:
    """Lines as one text."""
    return "".join(parts.plain.rstrip() + "\n" for parts in lines)


def pane_text(case: tuple[Dataset, Analysis], selection: Selection, width: int, *, full: bool = False) -> str:
    """What the pane says of a selection."""
    dataset, analysis = case
    detail = look_up(OpIndex(dataset), analysis, selection)
    return joined(expanded(detail, analysis, width) if full else compact(detail, width))


async def page_text(page: Page, size: tuple[int, int], *keys: str) -> str:
    """What a screen shows after some keys."""
    async with opened(page, size) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        return screen_text(app)


def _panes() -> dict[str, Callable[[], str]]:
    case = hang()
    whole = absent()
    pending, done = present(case[0], 4, TP, LAST_SEQ), present(case[0], 0, DP, 2)
    return {
        "pane-absent": lambda: pane_text(case, whole, 80),
        "pane-pending": lambda: pane_text(case, pending, 80),
        "pane-done": lambda: pane_text(case, done, 80),
        "pane-rank-only": lambda: pane_text(case, Selection(3), 80),
        "pane-narrow": lambda: pane_text(case, whole, 40),
        "pane-full-absent": lambda: pane_text(case, whole, 46, full=True),
        "pane-full-pending": lambda: pane_text(case, pending, 46, full=True),
        "pane-host": lambda: pane_text(looked(), whole, 80),
        "pane-full-host": lambda: pane_text(looked(), whole, 46, full=True),
        "pane-logs": lambda: pane_text(logged(), whole, 80),
        "pane-full-logs": lambda: pane_text(logged(), pending, 60, full=True),
        "pane-hostile": lambda: pane_text(hostile(), replace(whole, rank=1, group=1, seq=2), 80, full=True),
    }


def _pages() -> dict[str, Make]:
    (dataset, analysis), (evil, verdict) = hang(), hostile()
    return {
        "members-80x24": lambda: page_text(MemberScreen(dataset, analysis, absent(), BARE), NARROW),
        "members-open-80x24": lambda: page_text(MemberScreen(dataset, analysis, absent(), BARE), NARROW, "j", "enter"),
        "stacks-80x24": lambda: page_text(
            MemberScreen(dataset, analysis, absent(), BARE), NARROW, "tab", "j", "k", "h"
        ),
        "members-wide": lambda: page_text(MemberScreen(dataset, analysis, absent()), WIDE),
        "findings-80x24": lambda: page_text(FindingsScreen(dataset, analysis, BARE), NARROW),
        "findings-wide": lambda: page_text(FindingsScreen(dataset, analysis), WIDE),
        "hosts-80x24": lambda: page_text(HostsScreen(*looked(), BARE), NARROW),
        "hosts-all-80x24": lambda: page_text(HostsScreen(*looked(), BARE), NARROW, "g", "a", "down"),
        "hosts-internals-80x24": lambda: page_text(HostsScreen(*looked(), BARE), NARROW, "g", "i"),
        "hosts-wide": lambda: page_text(HostsScreen(*looked()), WIDE),
        "hosts-none": lambda: page_text(HostsScreen(dataset, analysis, BARE), NARROW),
        "hosts-hostile": lambda: page_text(HostsScreen(evil, verdict, BARE), NARROW),
        "groups-80x24": lambda: page_text(GroupsScreen(dataset, analysis, BARE), NARROW),
        "groups-wide": lambda: page_text(GroupsScreen(dataset, analysis), WIDE),
        "files-80x24": lambda: page_text(FilesScreen(dataset, analysis, BARE), NARROW),
        "memory-80x24": lambda: page_text(MemoryScreen(*leaking(), BARE), NARROW),
        "messages-80x24": lambda: page_text(MessagesScreen(*logged(), BARE), NARROW),
        "messages-narrowed-80x24": lambda: page_text(
            MessagesScreen(*logged(), BARE), NARROW, "g", "n", "f", *"4-", "enter", "slash", *"caught", "enter"
        ),
        "messages-120x36": lambda: page_text(MessagesScreen(*logged(), BARE), (120, 36)),
        "messages-hostile": lambda: page_text(MessagesScreen(_evil_logs(), verdict, BARE), NARROW),
        "numbers-80x24": lambda: page_text(NumbersScreen(*flipped(), BARE), NARROW),
        "numbers-reference-80x24": lambda: page_text(NumbersScreen(*referenced(), BARE), NARROW, "n"),
        "numbers-none-80x24": lambda: page_text(NumbersScreen(dataset, analysis, BARE), NARROW),
        "record-80x24": lambda: page_text(MessagesScreen(*logged(), BARE), NARROW, "g", "r", "enter"),
        "settings-80x24": lambda: page_text(SettingsScreen(*logged(), BARE), NARROW),
        "settings-120x36": lambda: page_text(SettingsScreen(*logged(), BARE), (120, 36), "g", "a"),
        "settings-hostile": lambda: page_text(SettingsScreen(_evil_logs(), verdict, BARE), NARROW),
        "findings-hostile": lambda: page_text(FindingsScreen(evil, verdict, BARE), NARROW),
        "members-hostile": lambda: page_text(MemberScreen(evil, verdict, Selection(1, None, 1, 2), BARE), NARROW),
        "stacks-hostile": lambda: page_text(MemberScreen(evil, verdict, Selection(1, None, 1, 2), BARE), NARROW, "tab"),
        "groups-hostile": lambda: page_text(GroupsScreen(evil, verdict, BARE), NARROW),
        "files-hostile": lambda: page_text(FilesScreen(evil, verdict, BARE), NARROW),
    }


def _evil_logs() -> Dataset:
    said = line(1, HOSTILE, "root", host=HOSTILE, kind=HOSTILE, pattern=HOSTILE, values=HOSTILE)
    return with_logs(hostile()[0], [said], [setting(r, HOSTILE, f"{HOSTILE}{r}") for r in range(2)])


async def make(name: str) -> str:
    """The text of a golden."""
    panes = _panes()
    return panes[name]() if name in panes else await _pages()[name]()


NAMES = (*_panes(), *_pages())
"""Every golden."""


def main() -> None:
    """Writes every golden anew."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text(asyncio.run(make(name)), "utf-8")


if __name__ == "__main__":
    main()
