"""The host stacks of the ranks a finding is about, for reports for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.analysis.frames import is_native, kind_of, short_name
from rankscope.analysis.host_stacks import HostThread, host_stacks, sites
from rankscope.analysis.model import Finding
from rankscope.analysis.wording import plural, ranks_text
from rankscope.schema import Dataset, Frame

MOST_PLACES = 2
"""Places of hosts that are shown of one finding."""
MOST_FRAMES = 14
"""Frames shown of a stack: the innermost, for they say what the host does."""


def host_sections(finding: Finding, dataset: Dataset) -> Iterator[tuple[str, list[str]]]:
    """(whose, by what tool; lines innermost first) of the culprits, or else the candidates; and who held the GIL."""
    for ranks in (finding.culprit_ranks, finding.candidates):
        found = sites(host_stacks(dataset, ranks).values()) if ranks else []
        for site in found[:MOST_PLACES]:
            who = ranks_text(site.ranks)
            by = f"by {site.first.tool}"
            yield f"{who}, {_thread(site.first.trains)}, {by}", frame_lines(site.first.trains.stack)
            if site.first.holder is not None:
                yield f"{who}, {_thread(site.first.holder)}, {by}", frame_lines(site.first.holder.stack)
        if found:
            return


def _thread(thread: HostThread) -> str:
    return f"{thread.label}{', which holds the GIL' if thread.gil else ''}"


def frame_lines(stack: Sequence[Frame]) -> list[str]:
    """The frames, native ones by their library, without those of the interpreter at the outer end."""
    outer = next((i for i in reversed(range(len(stack))) if kind_of(stack[i]) == "user"), len(stack) - 1)
    lines = [frame_line(frame) for frame in stack[: min(outer + 1, MOST_FRAMES)]]
    left = len(stack) - len(lines)
    return [*lines, f"({plural(left, 'frame')} left out)"] if left else lines or ["no frame"]


def frame_line(frame: Frame) -> str:
    """A frame: "save  ckpt.py:77", "take_gil  python3.11 (native)"."""
    return (
        f"{short_name(frame)}  {frame.file} (native)"
        if is_native(frame)
        else f"{frame.function}  {frame.file}:{frame.line}"
    )
