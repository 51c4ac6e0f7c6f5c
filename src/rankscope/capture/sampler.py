"""Thread that writes dumps, at every interval and on request. A slow disk delays only this thread."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import identity, recorder
from .card import SidecarRecord
from .fault_file import FaultFile
from .files import DumpFiles
from .memory_record import MemoryRecord
from .progress import issued
from .settings import CaptureSettings
from .thread_stacks import ThreadStacks, stacks_file
from .writers import choose_place, described

_LOG = logging.getLogger("rankscope.capture")
INTERVAL_REASON = "interval"
REMEMBERED_EVERY = 3
"""Interval dumps per kept earlier one; the first of several equal dumps is also kept."""
_MOST_WAITING = 8
"""Most waiting requests; beyond that only the last is kept, as earlier ones ask for the same."""
_COST_DUMPS = 3
STILL_DUMPS = 2
"""Equal dumps in a row after which a rank stands still."""
COPY_NS = 1_000_000_000
"""Time for the copy of the operations, which the recorder makes first; the rest is for names of frames and imports."""
EMPTY_DUMPS = 3
"""Empty interval dumps in a row after which the sidecar says that nothing is recorded."""
JOINING_INTERVAL_S = 0.2
"""Interval of the check for a first process group."""


@dataclass
class DumpRequest:
    """A request for a dump."""

    reason: str
    stacks: bool
    """Whether stacks are worth the time of the first ones."""
    traceback: str = ""
    """The traceback of the exception that ends the process."""
    last: bool = False
    """Whether it is the last dump: a later one could be cut by the end of the process."""
    done: threading.Event = field(default_factory=threading.Event)


class Sampler(threading.Thread):
    """The writing thread; a process has one."""

    def __init__(self, settings: CaptureSettings, card: SidecarRecord) -> None:
        super().__init__(name="rankscope-capture", daemon=True)
        self.settings = settings
        self.card = card
        card.interval_s = settings.interval
        self.memory = MemoryRecord(settings.memory)
        self.model: bytes | None = None
        """The record of the model that is to be written."""
        self.joined = threading.Event()
        """Set with the first process group."""
        self.look: Callable[[], None] = _do_nothing
        """Function that is called before each dump, to note further facts."""
        self.faults: FaultFile | None = None
        """The writer of stacks at a crash; None for a process that takes none."""
        self.moves = 0
        """Dumps that held something new."""
        self._stacks: ThreadStacks | None = None
        """The stacks of the last standstill; None without one, and once it is over."""
        self._stacks_turn = self._stacks_written = 0
        """How often they changed, and the last of these changes that is on the disk."""
        self._files: DumpFiles | None = None
        self._yields = False
        """Whether a process with a process group has taken the place of this one, which has none."""
        self._placing = threading.Lock()
        """Lock for the choice of the directory and the write of the sidecar."""
        self._requests: queue.Queue[DumpRequest] = queue.Queue(_MOST_WAITING)
        self._last: dict[recorder.Recorder, bytes] = {}
        self._still: dict[recorder.Recorder, int] = {}
        self._costs: list[float] = []
        self._written = b""
        self._told = False
        """Whether the traceback is written."""
        self._rounds = 0
        self._empty = 0
        """Dumps in a row without operations in any recorder."""

    def ask(self, reason: str, stacks: bool, wait: float, traceback: str = "", last: bool = False) -> bool:
        """Requests a dump, the `last` one or not; returns whether it was written within `wait` seconds."""
        until = time.monotonic() + wait
        request = DumpRequest(reason, stacks, traceback, last)
        try:
            self._requests.put(request, last, wait)
        except queue.Full:
            return False
        return request.done.wait(max(0.0, until - time.monotonic()))

    def keep_stacks(self, stacks: ThreadStacks) -> None:
        """Writes these stacks with the next dump, in the place of earlier ones."""
        self._stacks, self._stacks_turn = stacks, self._stacks_turn + 1

    def forget_stacks(self) -> None:
        """Empties the file of stacks with the next dump: what they show is over."""
        self._stacks, self._stacks_turn = None, self._stacks_turn + 1

    def run(self) -> None:
        """Writes dumps until the last one."""
        while True:
            due = time.monotonic() + (pause := self._pause())
            try:
                request = self._requests.get(timeout=pause)
            except queue.Empty:
                request = DumpRequest(INTERVAL_REASON, False)
                self.card.delayed(time.monotonic() - due)
            try:
                self._serve(request)
            except Exception as error:  # noqa: BLE001 - no error here may reach the job
                self.card.problem(f"{type(error).__name__}: {error}")
            request.done.set()
            if request.last:
                return

    def _pause(self) -> float:
        """Seconds to the next multiple of the interval that leaves enough time between dumps."""
        rest = min(self._costs, default=0.0) / self.settings.share
        now, interval = time.time(), self.settings.interval
        if not self.joined.is_set():
            return min(interval, JOINING_INTERVAL_S)
        return interval - now % interval + interval * max(0, -(-rest // interval) - 1)

    def _serve(self, request: DumpRequest) -> None:
        files = self._place()
        if files is None:
            return
        self._rounds += 1
        self.look()
        # each may find room on the disk; the last reports the failures
        for write in (self._dumps, self._exception, self._threads, self._samples, self._model, self._card):
            self._try(write, files, request)
        if request.last:
            with self._placing:
                faults, self.faults = self.faults, None
                if faults is not None:
                    faults.close()

    def _model(self, files: DumpFiles, _: DumpRequest) -> None:
        data = self.model
        if data is not None:
            files.put(files.model, data, False)
            # the trainer may have described a newer one meanwhile
            self.model = None if self.model is data else self.model

    def tell(self, request: DumpRequest) -> None:
        """Writes why and how the process ends, quickly and without a dump; in any thread."""
        files = self._place()
        if files is not None:
            self._try(self._exception, files, request)
            self._try(self._threads, files, request)
            self._try(self._card, files, request)

    def _place(self) -> DumpFiles | None:
        """The files of this rank; None before its rank is known."""
        self.memory.attach()
        with self._placing:
            self.card.update()
            if self._files is not None and self._files.is_lost(self.card.writer):
                self._files, self._yields, self._written = None, not self.card.joined, b""
                self.memory.write_anew()
                self._files = None if self._yields else self._taken_place(self.card.rank or 0, anew=True)
            elif self._files is None and self.card.rank is not None and (self.card.joined or not self._yields):
                self._files = self._taken_place(self.card.rank, anew=self._yields)
            return self._files

    def _taken_place(self, rank: int, anew: bool) -> DumpFiles:
        """The files of this rank, where no other live process writes; the sidecar there says so at once."""
        place = choose_place(self.settings.directory, rank, self.card.process, self.card.joined, anew)
        files = DumpFiles(place.directory, rank, self.settings.keep)
        if place.other is not None:
            text = f"another job writes rank {rank} here: {described(place.other)}; this one writes to "
            if self.card.problem(text + place.directory.name):
                _LOG.warning("rankscope.capture: %s%s", text, place.directory)
        with contextlib.suppress(OSError):
            files.set_aside([recorder.NCCL_FILE, recorder.OTHER_FILE], self.card.writer, place.stand_in)
            files.put(files.card, self.card.content(), False)
            self._put_stacks(files)
        return files

    def _put_stacks(self, files: DumpFiles) -> None:
        """Writes the file of stacks, which a crash goes on writing; it stays without any: somebody may be reading."""
        turn, stacks = self._stacks_turn, self._stacks
        if self.faults is None and stacks is None:
            # the process ends, maybe while another thread tells why: a file without stacks is gone
            return
        files.put(files.stacks, stacks_file(self.card.process, stacks), False, stacks and stacks.time_ns)
        if self.faults is not None:
            self.faults.follow(files.stacks, stacks is not None)
        self._stacks_written = turn

    def _try(self, write: Callable[[DumpFiles, DumpRequest], None], files: DumpFiles, request: DumpRequest) -> None:
        try:
            write(files, request)
        except OSError as error:
            text = f"cannot write: {error.strerror or error}"
            if self.card.problem(text):
                # if nothing can be written, no sidecar reports it
                _LOG.warning("rankscope.capture: %s: %s", files.directory, text)
        except Exception as error:  # noqa: BLE001 - if a recorder cannot be read, the rest is still written
            self.card.problem(f"{type(error).__name__}: {error}")

    def _dumps(self, files: DumpFiles, request: DumpRequest) -> None:
        if identity.initialized():
            self.joined.set()
        if not self.card.groups:
            return
        recorders = recorder.recorders(self.card.backends, not identity.initialized())
        # an empty dump is only written if all are empty: it shows that
        recorded = [self._dump(files, ring, request, False) for ring in recorders[1:]]
        recorded += [self._dump(files, ring, request, not any(recorded)) for ring in recorders[:1]]
        self._note_nothing(any(recorded), request)

    def _note_nothing(self, recorded: bool, request: DumpRequest) -> None:
        """Notes the reason for empty recorders, once it is certain or somebody waits for the dump."""
        self._empty = 0 if recorded else self._empty + 1
        if recorded or not identity.initialized():
            self.card.nothing = None if recorded else self.card.nothing
        elif (
            request.reason != INTERVAL_REASON
            or self._empty > EMPTY_DUMPS
            or not recorder.recorders(self.card.backends, False)
        ):
            why = recorder.why_nothing(self.card.backends, issued().values())
            if why not in (self.card.nothing, *self.card.problems):
                _LOG.warning("rankscope.capture: %s", why)
            self.card.nothing = why

    def _dump(self, files: DumpFiles, one: recorder.Recorder, request: DumpRequest, empty: bool) -> bool:
        """Writes a recorder's dump, at first without stacks if they take long; returns whether it holds any operation.

        `empty`: it is written even without operations.
        """
        allowed = self.settings.stacks != "never"
        cheap = allowed and (recorder.stacks_are_cheap() or self.settings.stacks == "always")
        data, taken_ns = self._read(one, cheap)
        self._still[one] = self._still.get(one, 0) + 1 if self._says_same(one, data) else 0
        self.moves += self._still[one] == 0
        wanted = request.stacks or (request.reason == INTERVAL_REASON and self._still[one] >= STILL_DUMPS)
        due = request.reason != INTERVAL_REASON or self._rounds % REMEMBERED_EVERY == 0
        # the first of several equal dumps is kept as long as they repeat: it shows since when
        remember = self._still[one] == 1 or (due and self._still[one] == 0)
        path = files.path(one.file)
        before, self._last[one] = self._last.get(one, b""), data
        recorded = recorder.has_entries(data)
        if not recorded and not empty:
            return False
        self.card.dumps.add(path.name)
        files.put(path, data, remember and recorder.has_entries(before), taken_ns)
        if allowed and not cheap and wanted:
            begin = time.time_ns()
            data = recorder.read_ring(one, True)
            files.put(path, data, False, _taken_ns(begin))
        return recorded

    def _says_same(self, one: recorder.Recorder, data: bytes) -> bool:
        """Whether a recorder repeats its last dump; the comparison counts as part of the dump's cost."""
        begin = time.perf_counter()
        same = recorder.says_same(self._last.get(one, b""), data)
        self._costs[-1] += time.perf_counter() - begin
        return same

    def _read(self, one: recorder.Recorder, stacks: bool) -> tuple[bytes, int]:
        """The content of a recorder, and its time."""
        begin, begin_ns = time.perf_counter(), time.time_ns()
        data = recorder.read_ring(one, stacks)
        took = time.perf_counter() - begin
        self._costs = [*self._costs, took][-_COST_DUMPS:]
        self.card.delayed(took)
        return data, _taken_ns(begin_ns)

    def _exception(self, files: DumpFiles, request: DumpRequest) -> None:
        with self._placing:
            if request.traceback and not self._told:
                files.put(files.traceback, request.traceback.encode("utf-8", "replace"), False)
                self._told = True

    def _threads(self, files: DumpFiles, _request: DumpRequest) -> None:
        with self._placing:
            if self._stacks_turn != self._stacks_written or not files.stacks.exists():
                self._put_stacks(files)

    def _samples(self, files: DumpFiles, _request: DumpRequest) -> None:
        self.memory.look()
        if self.memory.problem:
            self.card.problem(self.memory.problem)
        self.memory.write(files.memory, self.card.process)

    def _card(self, files: DumpFiles, _request: DumpRequest) -> None:
        with self._placing:
            content = self.card.content()
            if content != self._written or not files.card.exists():
                files.put(files.card, content, False)
                self._written = content


def _do_nothing() -> None:
    """Does nothing."""


def _taken_ns(begin_ns: int) -> int:
    """The approximate copy time of operations that were read from `begin_ns` until now; later on a busy machine."""
    return min(time.time_ns(), begin_ns + COPY_NS)
