"""Session of the recording in this process: its steps, its rows, and what all hooks share.

No error of the recording reaches the job: hooks call `guarded`, which counts what was lost and names the reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..progress import issued_operations
from ..recorder import OTHER, read_ring
from ..settings import RECORDED_OPERATIONS, recorder_off
from .declared_shards import DeclaredShards
from .linear_hash import SAMPLES, sampled
from .part_writer import PartWriter, StepRows
from .run_facts import random_states
from .step_budget import BUDGET, StepBudget
from .tensor_summary import RowBuffer, has_values, located, short_name

_LOG = logging.getLogger("rankscope.capture")
LEVELS = ("collectives", "modules")
MOST_ROWS = 16_384
"""Rows of a step: 10 MB of a device; later ones are dropped and counted."""
MOST_FRAMES = 12
MOST_STACKS = 4096
"""Different stacks that are kept."""
_MOST_PROBLEMS = 16
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 - compared with co_filename
_RUNNER = os.path.join(os.path.dirname(_HERE), "__main__.py")  # noqa: PTH118, PTH120 - compared with co_filename
_OURS = (_HERE, _RUNNER)
"""Files whose frames are left out: those of the hooks, and the runner of a script."""
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))  # noqa: PTH120, PTH100 - compared with co_filename
_PYTHON = os.path.dirname(os.__file__)  # noqa: PTH120 - compared with co_filename
_FROZEN = "<frozen "
"""Begins the names of files of modules that the interpreter holds, as of runpy."""
_PACKAGES, _WRAPPER = "site-packages", "typing_extensions.py"


@dataclass(frozen=True)
class NumbersSettings:
    """Settings of the recording."""

    directory: str
    every: int | None = None
    """One step in so many is recorded; 0 for none but `steps`; None for as many as the budget allows."""
    steps: Container[int] = ()
    """Further steps that are recorded."""
    level: str = LEVELS[0]
    limit_mb: int = 256
    """Size of the files of a rank, in MB."""
    budget: float = BUDGET
    """Largest share of the job's time that recorded steps may cost, without `every`."""
    replay_step: int | None = None
    """Step, recorded as well, whose first forward pass runs again; None for no such step."""

    def records(self, step: int, plan: StepBudget) -> bool:
        """Whether a step is recorded."""
        if step == self.replay_step:
            return True
        if self.every is None:
            return plan.allows(step) or step in self.steps
        return (self.every > 0 and step % self.every == 0) or step in self.steps


class GroupMembers(NamedTuple):
    """A process group."""

    name: str
    ranks: list[int]
    """Global ranks; the position is the rank within the group."""
    place: int
    """Rank of this process within the group."""
    key: int
    """The id of its object: a name may be used again."""
    sends_before: int
    """Sends and receives before the recording that gloo counts as operations of the group."""


@dataclass
class TensorRow:
    """A row that waits for the end of its step."""

    facts: dict[str, Any]
    buffer: RowBuffer | None = None
    """The buffer that holds its summary; None without one."""
    number: int = 0
    samples: tuple[int, ...] = ()
    """Numbers k of its samples."""
    is_part: bool = False
    """Whether `samples` are not all: they are written then."""


@dataclass
class Session:
    """The recording of one process."""

    settings: NumbersSettings
    writer: PartWriter
    recording: bool = False
    """Whether the current step is recorded. Hooks do nothing else while it is not."""
    step: int = 0
    unwaited: int = 0
    """Outputs of operations that nobody was seen to wait for."""
    issued: int = 0
    """Collectives, sends and receives in all steps, as far as hooks see them."""
    thread_of_replay: int | None = None
    """The thread in which a forward pass runs again now."""
    sends: Counter[str] = field(default_factory=Counter)
    """Sends and receives by group that have counted as operations of it since the recording was started."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """Functions that are called before the rows of a recorded step are taken."""
    shards: DeclaredShards = field(default_factory=DeclaredShards)
    plan: StepBudget = field(default_factory=StepBudget)
    _dropped: int = 0
    _rows: list[TensorRow] = field(default_factory=list)
    _order: int = 0
    _counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    _buffers: dict[Any, RowBuffer] = field(default_factory=dict)
    _groups: dict[str, GroupMembers] = field(default_factory=dict)
    _stacks: dict[tuple[object, ...], int] = field(default_factory=dict)
    _heads: list[dict[str, Any]] = field(default_factory=list)
    """Lines of groups and stacks that the writer does not have yet."""
    _problems: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Begins with step 0."""
        self.plan.share = self.settings.budget
        self.recording = self.settings.records(0, self.plan)

    def end(self) -> None:
        """Hands over what there is of a step that does not end, and records no more."""
        if self.recording and self._rows:
            self.end_step()
        self.mute()

    def mute(self) -> None:
        """Records no more, as in a forked process."""
        self.recording, self.settings = False, replace(self.settings, every=0, steps=(), replay_step=None)

    @contextlib.contextmanager
    def guarded(self, lost: int = 1) -> Iterator[None]:
        """Keeps errors of the recording from the job; `lost` rows are counted as dropped then."""
        try:
            with self.lock, torch.no_grad(), torch._C.DisableTorchFunctionSubclass(), no_modes():
                yield
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self._dropped += lost
            self.problem(f"{type(error).__name__}: {error}")

    def problem(self, text: str) -> None:
        """Logs a problem, once."""
        text = text[:300]
        if text not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems.add(text)
            _LOG.warning("rankscope.capture.numbers: %s", text)

    def count_issue(self) -> None:
        """Counts a collective, send or receive before it is issued.

        Raises RuntimeError in a forward pass that runs again: other ranks may not issue it.
        """
        if self.thread_of_replay == threading.get_ident():
            raise RuntimeError("it would issue a collective that the first pass did not")
        self.issued += 1

    def add(self, tensor: Any, site: str, slot: str, most_samples: int = SAMPLES, **facts: Any) -> TensorRow | None:
        """The added row of a tensor, whose summary is computed now, on its device; None where it cannot be read.

        Called within `guarded`.
        """
        if len(self._rows) >= MOST_ROWS:
            self._dropped += 1
            return None
        found = located(tensor)
        if found is None or _is_capturing(found.local):
            return None
        local, place, placed = found
        if not placed:
            place = self.shards.place(place, site, facts.get("name", ""), slot)
        base = {"step": self.step, "order": self._order, "site": site, **facts, "slot": slot, **placed}
        base |= {"dtype": short_name(local.dtype), "numel": local.numel(), "shape": list(place.shape)}
        if not place.is_whole:
            base |= {"offsets": list(place.offsets), "global_shape": list(place.global_shape)}
        row = TensorRow(base)
        if has_values(local):
            row.buffer = self._buffers.setdefault(local.device, RowBuffer(local.device))
            row.samples = sampled(place, most_samples)[1]
            row.is_part = not place.is_whole or len(row.samples) < min(SAMPLES, local.numel())
            row.number = row.buffer.add(local, place, most_samples)
        self._order += 1
        self._rows.append(row)
        return row

    @property
    def counted(self) -> Container[tuple[object, ...]]:
        """The keys that came in this step."""
        return self._counts

    def occurrence(self, *key: object) -> int:
        """The number of times that a key came before in this step."""
        self._counts[key] += 1
        return self._counts[key] - 1

    def group(self, group: Any) -> GroupMembers:
        """The facts of a process group; its line is written before its first use."""
        name = str(group.group_name)
        known = self._groups.get(name)
        if known is None or known.key != id(group):
            ranks = list(map(int, torch.distributed.get_process_group_ranks(group)))
            before = _recorded_surplus(group) - self.sends[name]
            known = self._groups[name] = GroupMembers(name, ranks, int(group.rank()), id(group), max(before, 0))
            self._heads.append({"group": name, "ranks": ranks, "description": str(group.group_desc)})
        return known

    def sequence_number(self, group: Any) -> int | None:
        """The flight recorder's number of the last collective of a group; None where its backend has none.

        It is read, not counted: operations that are not recorded have numbers, too. Gloo counts sends and
        receives as well, which its recorder does not, and of which members make different numbers.
        """
        known = self.group(group)
        count = issued_operations(group)
        return None if count is None else count - known.sends_before - self.sends[known.name]

    def caller(self) -> dict[str, Any]:
        """The stack of the user's call, and its innermost line outside of torch, as keys of a row."""
        frames = tuple(_frames(sys._getframe(1)))
        if not frames:
            return {}
        number = self._stacks.get(frames)
        if number is None:
            if len(self._stacks) >= MOST_STACKS:
                return {}
            number = self._stacks[frames] = len(self._stacks)
            self._heads.append({"stack": number, "frames": [list(frame) for frame in frames]})
        frame_of_job = next((frame for frame in frames if not _is_library(frame[1])), None)
        return {"stack_id": number} | ({"file": frame_of_job[1], "line": frame_of_job[2]} if frame_of_job else {})

    def end_step(self) -> None:
        """Ends the current step: hands its rows to the writer, and begins the next one."""
        if self.recording:
            for function in self.at_end:
                function()
            with self.guarded(len(self._rows)):
                self._hand_over()
            self._rows, self._counts = [], Counter()
            for buffer in self._buffers.values():
                buffer.count = 0
        self.plan.end_step(self.step, time.monotonic(), was_recorded=self.recording)
        self.step += 1
        self.recording = self.settings.records(self.step, self.plan)

    def _hand_over(self) -> None:
        # as numbers of Python: a thread that frees a tensor or is in torch while the process ends would abort it
        taken = {id(buffer): buffer.take() for buffer in self._buffers.values()}
        rows = [(row, None if row.buffer is None else taken[id(row.buffer)][row.number]) for row in self._rows]
        for row in self._rows:
            row.buffer = None
        # the job may set its seed behind the start of the recording: only here it is that of the step
        facts = {"rng": random_states(), "seed": torch.initial_seed()}
        end = {"end_of_step": self.step, "time_ns": time.time_ns(), **facts}
        self.writer.put(StepRows(self._heads, rows, end, self._dropped, self.unwaited))
        self._heads, self._dropped = [], 0


def _recorded_surplus(group: Any) -> int:
    """The operations of a gloo group beyond the collectives in its flight recorder; 0 where it cannot tell."""
    count = issued_operations(group)
    try:
        if not count or group._get_backend_name() != "gloo" or recorder_off():
            return 0
        every = pickle.loads(read_ring(OTHER, False))["entries"]  # noqa: S301 - this process has written it
    except Exception:  # noqa: BLE001 - a recorder of another version of torch; there is none to fit to
        return 0
    name = str(group.group_name)
    numbers = [int(one["collective_seq_id"]) for one in every if one["process_group"][0] == name and not one["is_p2p"]]
    return 0 if not numbers and len(every) >= RECORDED_OPERATIONS else count - max(numbers, default=0)


def no_modes() -> contextlib.AbstractContextManager[object]:
    """No dispatch mode of the job sees operations of the recording."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else contextlib.nullcontext()


def _is_capturing(tensor: Any) -> bool:
    """Whether the device captures a graph: operations of the recording would become part of it."""
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _frames(frame: Any) -> Iterator[tuple[str, str, int]]:
    """The frames of a stack: function, file, line; innermost first. Of torch's own only the innermost one counts."""
    found = 0
    while frame is not None and found < MOST_FRAMES:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and (not found or not _is_library(name)):
            yield frame.f_code.co_name, name, frame.f_lineno
            found += 1
        frame = frame.f_back


def _is_library(file: str) -> bool:
    """Whether a file belongs to torch, to what wraps its functions, or to Python itself."""
    is_python = file.startswith(_PYTHON) and _PACKAGES not in file
    return is_python or file.startswith((_TORCH, _FROZEN)) or file.endswith(_WRAPPER)
