"""Texts that describe stacks of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope.analysis.host_stacks import HostStack, HostThread, StackActivity, StackSite, function_name, stack_sites
from rankscope.schema import Frame
from rankscope.text.wording import plural, ranks_text

_LONGEST_NAME = 120
"""Longest shown name or path."""
_VERBS = (
    "barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "scatter", "gather", "reduce",
    "send", "recv",
)  # fmt: skip


def frames_text(frames: Sequence[Frame], most: int = 2) -> str:
    """The innermost frames of the job's own code: "save ckpt.py:77 < main train.py:12"; "" without any."""
    return " < ".join(f"{f.function[:_LONGEST_NAME]} {f.file[-_LONGEST_NAME:]}:{f.line}" for f in frames[:most])


def activity_text(thread: HostThread) -> str:
    """The activity of a thread and its place: "in torch.save, from save ckpt.py:77"."""
    where = frames_text(thread.own)
    if not where:
        return thread.activity.words
    return f"{thread.activity.words}, {'at' if thread.own[0] == thread.stack[0] else 'from'} {where}"


def holder_text(host: HostStack) -> str:
    """The thread that held the interpreter lock; "" if it is the shown one."""
    holder = host.holder
    if holder is not None:
        return f"the GIL is held by {holder.label}, {activity_text(holder)}"
    if host.activity.doing == "lock":
        return f"no thread that {host.tool} saw holds it, so a native thread does"
    return ""


def host_text(host: HostStack) -> str:
    """The stacks of a rank in words, without its name."""
    thread = "" if host.trains.is_main else f" ({host.trains.label})"
    return "; ".join(part for part in (f"{activity_text(host.trains)}{thread}", holder_text(host)) if part)


def tools_of(hosts: Iterable[HostStack]) -> str:
    """The tools that took these stacks: "py-spy", "faulthandler and py-spy"."""
    return " and ".join(sorted({host.tool for host in hosts})) or "py-spy"


def site_text(site: StackSite) -> str:
    """ "ranks 0-2 in barrier, from main train.py:30"."""
    return f"{ranks_text(site.ranks)} {host_text(site.first)}"


def same_call(op: str | None, activity: StackActivity) -> bool:
    """Whether a thread was in a call that makes operations like `op`: all_gather_object makes _all_gather_base."""
    frame = activity.frame
    if op is None or frame is None or activity.doing not in ("collective", "p2p"):
        return False
    return _verb(op) == _verb(function_name(frame)) is not None


def _verb(name: str) -> str | None:
    low = name.lower()
    return next((verb for verb in _VERBS if verb in low or verb.replace("_", "") in low), None)


# Patterns over many hosts: a cleanup deadlock, different call sites, or one place for all.

MOST_SITES = 4
"""Most places that are told one by one."""


@dataclass(frozen=True)
class HostPattern:
    """The pattern of all hosts; the letters are those of AReaL's guide to debugging."""

    letter: Literal["A", "B", "C"]
    """A: some leave their groups and others do not; B: hosts are at different places; C: all are at one."""
    text: str
    sites: tuple[StackSite, ...]
    """All places, the place of most ranks first."""
    leaving: tuple[int, ...] = ()
    """Ranks in destroy_process_group."""


def find_pattern(hosts: Mapping[int, HostStack]) -> HostPattern | None:
    """The pattern of at least two hosts."""
    if len(hosts) < 2:
        return None
    found = tuple(stack_sites(hosts.values()))
    leaving = tuple(sorted(rank for rank, host in hosts.items() if host.activity.doing == "exit"))
    if leaving and len(leaving) < len(hosts):
        return HostPattern("A", _leaving_text(hosts, leaving), found, leaving)
    if len(found) == 1:
        return HostPattern("C", f"all {len(hosts):,} hosts have the same stack: {site_text(found[0])}", found)
    return HostPattern(
        "B", f"{plural(len(hosts), 'host')} at {plural(len(found), 'place')}: {places_text(found)}", found
    )


def places_text(found: tuple[StackSite, ...]) -> str:
    """The places in words, the place of most ranks first."""
    more = f"; and {plural(len(found) - MOST_SITES, 'more place')}" if len(found) > MOST_SITES else ""
    return "; ".join(map(site_text, found[:MOST_SITES])) + more


def _leaving_text(hosts: Mapping[int, HostStack], leaving: tuple[int, ...]) -> str:
    others = [rank for rank in hosts if rank not in set(leaving)]
    are = "is" if len(leaving) == 1 else "are"
    return (
        f"cleanup deadlock: {ranks_text(leaving)} {are} in destroy_process_group while {ranks_text(sorted(others))} "
        f"{'is' if len(others) == 1 else 'are'} not; a rank that leaves alone usually had an exception"
    )
