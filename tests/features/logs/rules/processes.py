"""Jobs on gloo with the capture in them: what each process leaves when it ends, by the capture's own sidecar."""

from __future__ import annotations

import io
import json
import traceback

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.capture.card import SidecarRecord
from rankscope.capture.identity import ProcessGroup
from rankscope.features.logs.read.decode import decode_log
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.sidecar import decode_sidecar
from rankscope.schema import Dataset
from tests.parsers.dumps import START_NS, job
from tests.parsers.torch_pickle import torch_pickle

SECOND = 1_000_000_000
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4132"
WAITED = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv "
WAITED += "operation to complete"


def closed() -> RuntimeError:
    """What gloo raises when a process at the other end is gone."""
    return RuntimeError(CLOSED)


def waited() -> RuntimeError:
    """What gloo raises at its timeout."""
    return RuntimeError(WAITED)


class Processes:
    """Ranks that did `steps` collectives together, and then what is said of each."""

    def __init__(
        self,
        world: int,
        hosts: int = 1,
        steps: int = 3,
        folder: str = "",
        start_s: float = 0.0,
        library: str = "gloo",
    ) -> None:
        self.world, self.folder = world, folder
        self.start_ns = START_NS + round(start_s * SECOND)
        self.recorders = job(world, library=library, start_ns=self.start_ns)
        self.cards = [self._card(rank, f"node{rank * hosts // world}", library) for rank in range(world)]
        self.tracebacks: dict[int, str] = {}
        self.without_last_dump: set[int] = set()
        """Ranks that could not write a dump any more when they ended."""
        for _ in range(steps):
            self.issue(*range(world))

    def _card(self, rank: int, host: str, library: str) -> SidecarRecord:
        card = SidecarRecord()
        card.rank, card.world_size, card.started_ns, card.interval_s = rank, self.world, self.start_ns - SECOND, 10.0
        card.groups = [ProcessGroup("0", "default_pg", library, list(range(self.world)))]
        card.dumps = {f"fr_trace_rank_{rank}"}
        card._fixed = {**card._fixed, "host": host, "pid": 100 + rank}
        return card

    def issue(self, *ranks: int, at_s: float | None = None) -> None:
        """One more collective of these ranks, which gloo retires however it ends."""
        for rank in ranks:
            if at_s is not None:
                self.recorders[rank].clock = self.start_ns + round(at_s * SECOND)
            self.recorders[rank].collective("0", retired=True)

    def end(self, rank: int, at_s: float, reason: str = "exit", error: BaseException | None = None) -> None:
        """A process ends, so many seconds after the start."""
        card = self.cards[rank]
        card.end(reason, error)
        assert card.ended is not None
        card.ended["time_ns"] = self.start_ns + round(at_s * SECOND)
        if error is not None:
            self.tracebacks[rank] = "".join(traceback.format_exception(error))

    def fail(self, error: BaseException, *ranks: int, at_s: float) -> None:
        """An exception ends these processes."""
        try:
            raise error
        except type(error):
            for rank in ranks:
                self.end(rank, at_s, "exception", error)

    def sources(self, tracebacks: bool = True) -> list[SourceFile]:
        """The files as they are read."""
        return [file for rank in range(self.world) for file in self._files(rank, tracebacks)]

    def _files(self, rank: int, tracebacks: bool) -> list[SourceFile]:
        recorder, card = self.recorders[rank], self.cards[rank]
        told = decode_sidecar(card.content())
        assert json.loads(card.content())["rankscope_capture"] == 1
        found = [SourceFile(f"{self.folder}capture_rank_{rank}.json", "sidecar", 1, None, None, told)]
        if card.dumps:
            dump = decode_dump(torch_pickle(recorder.document()))
            path = f"{self.folder}fr_trace_rank_{rank}"
            ended_ns = card.ended["time_ns"] if card.ended is not None and rank not in self.without_last_dump else 0
            found.append(SourceFile(path, "flight-recorder", 1, max(recorder.clock, ended_ns), None, dump))
        if rank in self.tracebacks and tracebacks:
            log = decode_log(io.BytesIO(self.tracebacks[rank].encode()))
            found.append(SourceFile(f"{self.folder}exception_rank_{rank}.log", "log", 1, None, None, log))
        return found

    def dataset(self, tracebacks: bool = True, more: tuple[SourceFile, ...] = ()) -> Dataset:
        """All of it."""
        files = sorted([*self.sources(tracebacks), *more], key=lambda source: source.shown)
        return assemble(files, "dumps", None, None, None)

    def analysis(self, tracebacks: bool = True) -> Analysis:
        """What is said of it."""
        return analyse(self.dataset(tracebacks))
