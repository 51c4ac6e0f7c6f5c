"""Which group each run loop of gloo serves: a trace does not say it, but threads are numbered as they are made.

ProcessGroupGloo starts its two loops when a group is made (torch's backend options), and the trace lists the groups of
its rank in that order. Only where twice as many loops as groups ran something is it certain which are whose.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.assemble.traces.window import Window

LOOP = "pt_gloo_runloop"
LOOPS = 2
"""Threads of a group, unless the job asked for another number."""


def settle(windows: Sequence[Window]) -> None:
    """Notes in each window which loop serves which group; in none, if that cannot be told of all that have loops."""
    told = [(window, group_of_loop(window)) for window in windows if uses_loops(window)]
    if all(groups for _, groups in told):
        for window, groups in told:
            window.loops = groups


def group_of_loop(window: Window) -> dict[int, str]:
    """The name of the group for each thread that is a run loop; empty where that cannot be told."""
    threads = _loops(window)
    groups = [group.name for group in window.content.about.groups if group.ranks and group.name]
    # a number below the process's own is one that was given out again
    ordered = bool(threads) and window.pid is not None and threads[0] > window.pid
    if not ordered or len(threads) != LOOPS * len(groups):
        return {}
    return {thread: groups[i // LOOPS] for i, thread in enumerate(threads)}


def uses_loops(window: Window) -> bool:
    """Whether anything ran in a loop: sends and receives run where they are issued."""
    runs = (name.partition(":")[2] for name in window.content.names if name.startswith("gloo:"))
    return any(not run.startswith(("send", "recv")) for run in runs)


def _loops(window: Window) -> list[int]:
    # one that was seen before it had its name has two
    titles = [(label.tid, label.text) for label in window.content.labels if label.kind == "thread_name"]
    return sorted({tid for tid, title in titles if tid is not None and LOOP in title})
