"""Collector of a Snapshot: each frame and each stack once, within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rankscope.features.stacks.py_spy.model import PY_SPY, Identity, SampledProcess, SampledThread, Snapshot
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.safe_values import INT64_LIMIT, TEXT_LIMIT
from rankscope.text.secrets import clip

THREAD_LIMIT = 1 << 18
"""Threads kept of one file: 16,384 processes with 16 each. py-spy stops at 4,096 for a process."""
FRAME_LIMIT = 512
"""Frames kept of one stack, the innermost."""
PROCESS_LIMIT = 1 << 16
_PID_LIMIT = 1 << 31


def clip_text(value: str) -> str:
    """Text of bounded length that any output can encode."""
    text = clip(value, TEXT_LIMIT)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def valid_pid(value: int | None) -> int | None:
    """A process id; None for a number that cannot be one."""
    return value if value is not None and 0 <= value < _PID_LIMIT else None


class SnapshotCollector:
    """Collector of the processes and threads of a Snapshot."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.cut_stacks = 0
        self.full = False
        """Whether a bound is reached, so that the rest is left out."""
        self.lines: dict[str, StackFrame | None] = {}
        """Frames by their text: most texts repeat."""
        self._frames: dict[StackFrame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def process(
        self, pid: int | None, parent_pid: int | None, command: str, parent_command: str,
        rank: int | None = None, local_rank: int | None = None, tool: str = PY_SPY,
        taken_ns: int | None = None,
    ) -> int:  # fmt: skip
        """Adds a process; returns its index."""
        processes = self.snapshot.processes
        self.full |= len(processes) >= PROCESS_LIMIT
        if not self.full:
            processes.append(
                SampledProcess(
                    pid, parent_pid, clip_text(command), clip_text(parent_command), 0, rank, local_rank, tool, taken_ns
                )
            )
        return len(processes) - 1

    def thread(
        self,
        process: int,
        name: str,
        thread_id: int | None,
        state: tuple[bool | None, bool | None],
        frames: Iterable[StackFrame],
    ) -> None:
        """Adds a thread with its (active, gil); `frames` innermost first."""
        self.full |= len(self.snapshot.threads) >= THREAD_LIMIT
        if self.full:
            return
        places = [self._frames.setdefault(frame, len(self._frames)) for frame in frames]
        self.cut_stacks += len(places) > FRAME_LIMIT
        stack = self._stacks.setdefault(tuple(places[:FRAME_LIMIT]), len(self._stacks))
        if thread_id is not None and not 0 <= thread_id <= INT64_LIMIT:
            thread_id = None
        self.snapshot.threads.append(SampledThread(process, clip_text(name), thread_id, *state, stack))

    def result(self, notes: Iterable[str]) -> Snapshot:
        """The Snapshot, with notes on unreadable parts."""
        snapshot = self.snapshot
        snapshot.processes = number_frames(snapshot)
        snapshot.frames = list(self._frames)
        snapshot.stacks = list(map(list, self._stacks))
        limits = [
            f"only the first {len(snapshot.threads)} threads kept" if self.full else "",
            f"only the innermost {FRAME_LIMIT} frames kept of {self.cut_stacks} stacks" if self.cut_stacks else "",
            "no thread in it" if not snapshot.threads else "",
        ]
        snapshot.problem = "; ".join(note for note in (*notes, *limits) if note) or None
        return snapshot


def process_trees(processes: list[SampledProcess]) -> list[int]:
    """For each process the index of the first one of its tree: parents come before children, and no process twice."""
    roots: list[int] = []
    tree: set[int] = set()
    for i, process in enumerate(processes):
        follows = process.parent_pid in tree and process.pid not in tree
        tree = tree if follows else set()
        roots.append(roots[-1] if follows else i)
        if process.pid is not None:
            tree.add(process.pid)
    return roots


def number_frames(snapshot: Snapshot) -> list[SampledProcess]:
    """The processes, with the number of later dumps of their tree."""
    processes, identities = snapshot.processes, snapshot.identities
    roots = process_trees(processes)
    later: Counter[Identity] = Counter()
    before: dict[int, int] = {}
    for root in sorted(set(roots), reverse=True):
        before[root] = later[identities[root]]
        later[identities[root]] += 1
    return [process._replace(later=before[root]) for process, root in zip(processes, roots, strict=True)]
