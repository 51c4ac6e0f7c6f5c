"""What py-spy saw of the hosts as lines of trees: a tree for each kind of thread, and of who holds the GIL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rankscope.analysis.host_stacks import HostStack, HostThread
from rankscope.schema import Frame
from rankscope.tui.detail.format import counted, plain
from rankscope.tui.detail.line import Span, line
from rankscope.tui.detail.stacktree import TreeLine, draw, merge, remark

_NUMBER = re.compile(r"\d+")
_LONGEST = 60
HOLDER = "another thread, which holds the GIL"


def host_forest(
    hosts: Iterable[HostStack], width: int, *, everything: bool = False, internals: bool = False
) -> list[TreeLine]:
    """The trees with a line over each, for `width` cells: of the threads that train, or of all threads."""
    kinds: dict[str, list[tuple[int, HostThread]]] = {}
    for host in hosts:
        for kind, thread in _all(host) if everything else _telling(host):
            kinds.setdefault(kind, []).append((host.rank, thread))
    lines: list[TreeLine] = []
    for kind, threads in kinds.items():
        lines += _tree(kind, threads, width, internals)
    return lines


def _telling(host: HostStack) -> list[tuple[str, HostThread]]:
    held = [(HOLDER, host.holder)] if host.holder is not None else []
    return [(_kind(host.trains), host.trains), *held]


def _all(host: HostStack) -> list[tuple[str, HostThread]]:
    return [(_kind(thread), thread) for thread in host.threads]


def _kind(thread: HostThread) -> str:
    """The name of the thread without numbers, which differ from rank to rank."""
    return "main thread" if thread.is_main else plain(_NUMBER.sub("#", thread.label[:_LONGEST]))


def _tree(kind: str, threads: Sequence[tuple[int, HostThread]], width: int, internals: bool) -> list[TreeLine]:
    by_stack: dict[tuple[Frame, ...], list[int]] = {}
    for rank, thread in threads:
        by_stack.setdefault(shown_frames(thread, internals), []).append(rank)
    ranks = tuple(sorted({rank for rank, _ in threads}))
    return [
        TreeLine(line(Span(f"{counted(len(ranks), 'rank')}, {kind}", "head")), (), (), ranks),
        *draw(merge(by_stack.items(), internals=True), width),
    ]


def shown_frames(thread: HostThread, internals: bool) -> tuple[Frame, ...]:
    """What the tree has of a stack, innermost first: who holds the GIL, what it does, and the frames of the job."""
    held = (remark("holds the GIL"),) if thread.gil else ()
    if internals or not thread.own:
        return (*held, *(thread.stack or (remark("no frame"),)))
    return (*held, remark(thread.activity.words), *thread.own)
