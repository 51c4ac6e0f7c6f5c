"""What the stacks of many hosts show together: a cleanup deadlock, different call sites, or one place for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope.analysis.host_stacks import HostStack, Site, sites
from rankscope.analysis.host_words import site_text
from rankscope.analysis.wording import plural, ranks_text

SHOWN = 4
"""Places that are told one by one."""


@dataclass(frozen=True)
class Pattern:
    """How the hosts stand to each other; the letters are those of AReaL's guide to debugging."""

    letter: Literal["A", "B", "C"]
    """A: some leave their groups and others do not; B: they are at different places; C: all are at one."""
    text: str
    sites: tuple[Site, ...]
    """All places, that of most ranks first."""
    leaving: tuple[int, ...] = ()
    """Ranks in destroy_process_group."""


def find_pattern(hosts: Mapping[int, HostStack]) -> Pattern | None:
    """The pattern of at least two hosts."""
    if len(hosts) < 2:
        return None
    found = tuple(sites(hosts.values()))
    leaving = tuple(sorted(rank for rank, host in hosts.items() if host.activity.doing == "exit"))
    if leaving and len(leaving) < len(hosts):
        return Pattern("A", _leaving_text(hosts, leaving), found, leaving)
    if len(found) == 1:
        return Pattern("C", f"all {len(hosts)} hosts have the same stack: {site_text(found[0])}", found)
    return Pattern("B", f"{plural(len(hosts), 'host')} at {plural(len(found), 'place')}: {places_text(found)}", found)


def places_text(found: tuple[Site, ...]) -> str:
    """The places in words, those of most ranks first."""
    more = f"; and {plural(len(found) - SHOWN, 'more place')}" if len(found) > SHOWN else ""
    return "; ".join(map(site_text, found[:SHOWN])) + more


def _leaving_text(hosts: Mapping[int, HostStack], leaving: tuple[int, ...]) -> str:
    others = [rank for rank in hosts if rank not in set(leaving)]
    are = "is" if len(leaving) == 1 else "are"
    return (
        f"cleanup deadlock: {ranks_text(leaving)} {are} in destroy_process_group while {ranks_text(sorted(others))} "
        f"{'is' if len(others) == 1 else 'are'} not; who leaves alone most often had an exception"
    )
