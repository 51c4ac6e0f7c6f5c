"""The thread that writes: at every interval, and when asked. Whatever the disk does, only this thread waits for it."""

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
from .files import DumpFiles
from .settings import CaptureSettings

_LOG = logging.getLogger("rankscope.capture")
INTERVAL_REASON = "interval"
REMEMBERED_EVERY = 3
"""Of the dumps at intervals every so many is kept as an earlier one, and the first that the next one only repeats."""
_WAITING = 8
"""Requests that may wait; more are dropped but for the last, for the ones before them say the same."""
_COSTS = 3
STILL_DUMPS = 2
"""A rank stands still if so many dumps in a row say what the one before them said."""
COPY_NS = 1_000_000_000
"""The recorder copies its operations first: what it does for longer is naming frames, and importing what does that."""
EMPTY_DUMPS = 3
"""After so many dumps at intervals without any operation, one after another, it is said that nothing is recorded."""
JOINING_INTERVAL_S = 0.2
"""So often it is looked whether there is a process group yet."""


@dataclass
class DumpRequest:
    """A dump that somebody wants."""

    reason: str
    stacks: bool
    """Whether stacks are worth the time that the first ones take."""
    traceback: str = ""
    """Of the exception that ends the process."""
    last: bool = False
    """Whether no dump comes after it: the process could end in the middle of one, and leave a part of it."""
    done: threading.Event = field(default_factory=threading.Event)


class Sampler(threading.Thread):
    """One for each process."""

    def __init__(self, settings: CaptureSettings, card: SidecarRecord) -> None:
        super().__init__(name="rankscope-capture", daemon=True)
        self.settings = settings
        self.card = card
        card.interval_s = settings.interval
        self.joined = threading.Event()
        """Set with the first process group."""
        self.look: Callable[[], None] = _nothing
        """Called before each dump, to note what is to be told with it."""
        self._files: DumpFiles | None = None
        self._placing = threading.Lock()
        """Held while it is found out where to write, and while what says who writes is written."""
        self._requests: queue.Queue[DumpRequest] = queue.Queue(_WAITING)
        self._last: dict[recorder.Recorder, bytes] = {}
        self._still: dict[recorder.Recorder, int] = {}
        self._costs: list[float] = []
        self._written = b""
        self._told = False
        """Whether the traceback is written."""
        self._rounds = 0
        self._empty = 0
        """Dumps in a row that found no operation in any recorder."""

    def ask(self, reason: str, stacks: bool, wait: float, traceback: str = "", last: bool = False) -> bool:
        """Has a dump written, the `last` one or not; whether it was, within `wait` seconds."""
        until = time.monotonic() + wait
        request = DumpRequest(reason, stacks, traceback, last)
        try:
            self._requests.put(request, last, wait)
        except queue.Full:
            return False
        return request.done.wait(max(0.0, until - time.monotonic()))

    def run(self) -> None:
        """Until the last dump."""
        while True:
            due = time.monotonic() + (pause := self._pause())
            try:
                request = self._requests.get(timeout=pause)
            except queue.Empty:
                request = DumpRequest(INTERVAL_REASON, False)
                self.card.delayed(time.monotonic() - due)
            try:
                self._serve(request)
            except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the job
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
        # whichever of these finds room; the last says what did not
        for write in (self._dumps, self._exception, self._card):
            self._try(write, files, request)

    def tell(self, request: DumpRequest) -> None:
        """Writes why and how the process ends, which does not take long, and no dump; in any thread."""
        files = self._place()
        if files is not None:
            self._try(self._exception, files, request)
            self._try(self._card, files, request)

    def _place(self) -> DumpFiles | None:
        """Where this rank writes; None before its rank is known."""
        with self._placing:
            self.card.look()
            if self._files is None and self.card.rank is not None:
                self._files = DumpFiles(self.settings.directory, self.card.rank, self.settings.keep)
                prefixes = [recorder.NCCL_FILE, recorder.OTHER_FILE]
                with contextlib.suppress(OSError):
                    self._files.set_aside(prefixes, self.card.writer)
            return self._files

    def _try(self, write: Callable[[DumpFiles, DumpRequest], None], files: DumpFiles, request: DumpRequest) -> None:
        try:
            write(files, request)
        except OSError as error:
            text = f"cannot write: {error.strerror or error}"
            if self.card.problem(text):
                # where nothing can be written, no sidecar says so either
                _LOG.warning("rankscope.capture: %s: %s", files.directory, text)
        except Exception as error:  # noqa: BLE001 - of a recorder that cannot be read, the rest is still told
            self.card.problem(f"{type(error).__name__}: {error}")

    def _dumps(self, files: DumpFiles, request: DumpRequest) -> None:
        if identity.initialized():
            self.joined.set()
        if not self.card.groups:
            return
        found = recorder.recorders(self.card.backends, not identity.initialized())
        # an empty dump is written only if all are empty: it says so
        recorded = [self._dump(files, one, request, False) for one in found[1:]]
        recorded += [self._dump(files, one, request, not any(recorded)) for one in found[:1]]
        self._note_nothing(any(recorded), request)

    def _note_nothing(self, recorded: bool, request: DumpRequest) -> None:
        """Says why nothing is recorded, once that is sure or somebody waits for the dump."""
        self._empty = 0 if recorded else self._empty + 1
        if recorded or not identity.initialized():
            self.card.nothing = None if recorded else self.card.nothing
        elif (
            request.reason != INTERVAL_REASON
            or self._empty > EMPTY_DUMPS
            or not recorder.recorders(self.card.backends, False)
        ):
            why = recorder.why_nothing(self.card.backends)
            if why not in (self.card.nothing, *self.card.problems):
                _LOG.warning("rankscope.capture: %s", why)
            self.card.nothing = why

    def _dump(self, files: DumpFiles, one: recorder.Recorder, request: DumpRequest, empty: bool) -> bool:
        """Writes what the recorder holds, first without stacks where those take long; whether it holds anything.

        `empty`: it is written also if not.
        """
        allowed = self.settings.stacks != "never"
        cheap = allowed and (recorder.stacks_are_cheap() or self.settings.stacks == "always")
        data, taken_ns = self._read(one, cheap)
        self._still[one] = self._still.get(one, 0) + 1 if self._says_same(one, data) else 0
        wanted = request.stacks or (request.reason == INTERVAL_REASON and self._still[one] >= STILL_DUMPS)
        due = request.reason != INTERVAL_REASON or self._rounds % REMEMBERED_EVERY == 0
        # the first that the next one repeats stays for as long as they do: it shows since when
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
        """Whether a recorder says what it said the last time; comparing counts as a part of what the dump costs."""
        begin = time.perf_counter()
        same = recorder.says_same(self._last.get(one, b""), data)
        self._costs[-1] += time.perf_counter() - begin
        return same

    def _read(self, one: recorder.Recorder, stacks: bool) -> tuple[bytes, int]:
        """What it holds, and when that was so."""
        begin, begin_ns = time.perf_counter(), time.time_ns()
        data = recorder.read_ring(one, stacks)
        took = time.perf_counter() - begin
        self._costs = [*self._costs, took][-_COSTS:]
        self.card.delayed(took)
        return data, _taken_ns(begin_ns)

    def _exception(self, files: DumpFiles, request: DumpRequest) -> None:
        with self._placing:
            if request.traceback and not self._told:
                files.put(files.traceback, request.traceback.encode("utf-8", "replace"), False)
                self._told = True

    def _card(self, files: DumpFiles, _request: DumpRequest) -> None:
        with self._placing:
            content = self.card.content()
            if content != self._written or not files.card.exists():
                files.put(files.card, content, False)
                self._written = content


def _nothing() -> None:
    """Nobody has anything to note."""


def _taken_ns(begin_ns: int) -> int:
    """About when the operations that were read from `begin_ns` until now were copied; on a busy machine later."""
    return min(time.time_ns(), begin_ns + COPY_NS)
