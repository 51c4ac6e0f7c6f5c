"""Replays the collectives that each rank of a job issued around its failure.

Needs torch and nothing else. Run it by itself: it starts a process for each rank on this machine, over gloo. Or start
it with torchrun or srun, one process a rank; BACKEND=nccl uses devices. It replays who waits for whom, not the cause: a
rank whose host was stuck stops where the dumps say that it stopped. Times, data, roots and reduce operations are not
recorded: sums, roots at the first member of a group, and an all_reduce of one element for all_to_all, gather and
scatter.

Environment: BACKEND (gloo), GRACE (10: seconds without progress after which a rank says where it is), REPRO_OUT (a
folder that keeps what each rank tells; `dumps` in it holds their records, as those of a flight recorder), STEPS (a
file: each rank may begin as many operations as it has bytes).

Exit codes: 0 every rank stops where it is expected to, 1 some do not, 2 it could not run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

# record: begin
from rankscope.capture.replay_record import Groups, Recording, ScheduledCall, operations_of

# job: begin
RANKS: list[int] = []
"""Ranks of the job: process i plays RANKS[i]."""
GROUPS: Groups = {}
"""Names and members of process groups."""
SCHEDULE = ""
"""Lines `ranks 0 1`, then the operations of these ranks in their order: group, number or pair, name, size, type.

The size of an all_to_all is what goes to each member / what comes from each; it is noted, and not sent.

A line that begins with # is a note. `+` before an operation: issued together with the one before. `waits`: the rank is
expected to stop there. `stop`: the rank issues it, and its device never begins it. `deaf`: it takes part, and sees no
end from there on. `never`: the operation begins and never ends. `apart`: members do not agree, over gloo nobody comes
out of it. `unlike`: members do not agree, and yet it ended; it is played with one byte. `batch`: a batch of sends and
receives begins, `with`: of the same batch. `open`: a send or receive that did not end in the job.
"""
SERIAL = True
"""Whether an operation begins when all before it have ended; otherwise all are issued at once."""
SILENT: list[int] = []
"""Ranks that left no dump: they play, and leave none again."""
STARTS = True
"""Whether the dumps of the job tell when an operation began."""
SETTINGS: dict[str, str] = {}
"""Variables of the environment that each rank sets before it starts."""
DELAYS: list[tuple[int, str, str, float]] = []
"""Rank, group and number of the operation before which it sleeps, and seconds; without a group, before its first."""
TIMEOUT_S = 0.0
"""Seconds that an operation may take before it fails; 0: it may hang."""
# job: end

BACKEND = os.environ.get("BACKEND", "gloo")
ASLEEP_S = max((sum(one[3] for one in DELAYS if one[0] == rank) for rank in RANKS), default=0.0)
"""The longest that a rank sleeps."""
GRACE_S = max(float(os.environ.get("GRACE", "10")), TIMEOUT_S and TIMEOUT_S + 2) + ASLEEP_S
"""Seconds without progress after which a rank says where it is."""
PAIR_TIMES = 1 << 20
"""Over NCCL, sends and receives that did not end are so many times larger: one that fits into a buffer ends alone."""
STEPS = os.environ.get("STEPS", "")
TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8",
}  # fmt: skip
"""Types of torch by their names in dumps; others are played by bytes."""


class Player:
    """Plays one rank."""

    def __init__(self, index: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank = torch, dist, RANKS[index]
        self.operations = operations_of(self.rank, SCHEDULE)
        self.recording = Recording(self.rank, self.operations, GROUPS, RANKS, STARTS)
        self.left = list(self.operations)
        self.moved = time.monotonic()
        self.error = ""
        self.deaf = False
        if BACKEND == "nccl":
            os.environ.setdefault("NCCL_BUFFSIZE", "262144")
            self._choose_device(int(os.environ.get("LOCAL_RANK", index)), index)
        self.device = "cuda" if BACKEND == "nccl" else "cpu"
        dist.init_process_group(BACKEND)
        # every rank makes every group, in one order
        self.groups = {
            key: dist.new_group([RANKS.index(rank) for rank in members]) for key, (_, members) in GROUPS.items()
        }
        dist.barrier()

    def _choose_device(self, local: int, index: int) -> None:
        count = self.torch.cuda.device_count()
        if count < int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
            # NCCL refuses two ranks of one host on one device
            os.environ.setdefault("NCCL_HOSTID", f"rank{index}")
        self.torch.cuda.set_device(local % count)

    def play(self) -> None:
        """Issues all operations; returns when they have ended, or when one of them failed."""
        self.moved = time.monotonic()
        for operation in [] if STEPS else self.operations:
            self.recording.issued(operation)
        try:
            if SERIAL or STEPS:
                self._one_after_the_other()
            else:
                self._all_at_once()
        except Exception as error:  # noqa: BLE001 - gloo raises on what NCCL waits in for ever
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.error = self.error or f"{type(error).__name__}: {error}"[:300]

    def _one_after_the_other(self) -> None:
        at = step = 0
        while at < len(self.operations):
            last = at + 1
            while last < len(self.operations) and self.operations[last].together:
                last += 1
            self._held(self.operations[at:last], step)
            self._end(self._issue(self.operations[at:last]))
            at, step = last, step + 1

    def _held(self, operations: list[ScheduledCall], step: int) -> None:
        """Notes operations as issued, and waits until the rank may begin them, if it goes step by step."""
        if not STEPS:
            return
        for operation in operations:
            self.recording.issued(operation)
        while Path(STEPS).stat().st_size <= step:
            time.sleep(0.05)
            self.moved = time.monotonic()

    def _all_at_once(self) -> None:
        lines: dict[tuple[str, ...], list[ScheduledCall]] = {}
        for operation in self.operations:
            lines.setdefault(operation.line, []).append(operation)
        ends = [threading.Thread(target=self._play_line, args=(line,)) for line in lines.values()]
        for one in ends:
            one.start()
        for one in ends:
            one.join()

    def _play_line(self, line: list[ScheduledCall]) -> None:
        try:
            for operation in line:
                self._end(self._issue([operation]))
        except Exception as error:  # noqa: BLE001 - as of `play`: it would be lost with the thread
            self._failed(error)

    def _issue(self, operations: list[ScheduledCall]) -> list[tuple[ScheduledCall, Any]]:
        bursts: list[list[ScheduledCall]] = []
        for operation in operations:
            if BACKEND == "nccl" and "with" in operation.marks:
                bursts[-1].append(operation)
            else:
                bursts.append([operation])
        works: list[tuple[ScheduledCall, Any]] = []
        for burst in bursts:
            for operation in burst:
                self._come_to(operation)
            batch = BACKEND == "nccl" and "batch" in burst[0].marks
            works += self._batch(burst) if batch else [(burst[0], self._one(burst[0]))]
        return works

    def _come_to(self, operation: ScheduledCall) -> None:
        """Begins an operation, or hangs where its marks say so."""
        self._sleep(operation)
        if "stop" in operation.marks:
            self._hang()
        self.recording.began(operation)
        # splits are not played, so they cannot hold up anybody
        unplayed = {"never", "apart"} if BACKEND == "gloo" or operation.splits else {"never"}
        if operation.marks & unplayed:
            self._hang()

    def _sleep(self, operation: ScheduledCall) -> None:
        """Sleeps before an operation, if it is told to; that counts as progress."""
        first = operation is self.operations[0]
        for rank, group, number, seconds in DELAYS:
            if rank == self.rank and ((group, number) == (operation.group, operation.number) or (not group and first)):
                until = time.monotonic() + seconds
                while (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, 0.2))
                    self.moved = time.monotonic()

    def _hang(self) -> None:
        threading.Event().wait(TIMEOUT_S or None)
        raise TimeoutError(f"no end within {TIMEOUT_S:g} s")

    def _batch(self, operations: list[ScheduledCall]) -> list[tuple[ScheduledCall, Any]]:
        """Issues sends and receives as one: NCCL takes them one after the other otherwise."""
        dist, group = self.dist, self.groups[operations[0].group]
        calls = []
        for operation in operations:
            sender, receiver = map(RANKS.index, operation.pair)
            act, peer = (dist.isend, receiver) if operation.name == "send" else (dist.irecv, sender)
            calls.append(dist.P2POp(act, self._tensor(operation, 1), peer, group))
        last = dist.batch_isend_irecv(calls)[-1]
        return [(operation, last) for operation in operations]

    def _end(self, works: list[tuple[ScheduledCall, Any]]) -> None:
        for operation, work in works:
            work.wait(*((timedelta(seconds=TIMEOUT_S),) if TIMEOUT_S else ()))
            if BACKEND == "nccl":
                self.torch.cuda.current_stream().synchronize()
            self.deaf |= "deaf" in operation.marks
            if not self.deaf:
                self.recording.ended(operation)
                self.left.remove(operation)
            self.moved = time.monotonic()

    def _one(self, operation: ScheduledCall) -> Any:
        """Issues an operation without waiting for it."""
        dist, group = self.dist, self.groups[operation.group]
        members = [RANKS.index(rank) for rank in GROUPS[operation.group][1]]
        count = len(members)
        if operation.is_pair:
            sender, receiver = map(RANKS.index, operation.pair)
            tensor = self._tensor(operation, 1)
            return (
                dist.isend(tensor, receiver, group) if operation.name == "send" else dist.irecv(tensor, sender, group)
            )
        name = "all_reduce" if "unlike" in operation.marks else operation.name
        given, out = (self._tensor(operation, times) for times in operation.times(count))
        if name == "all_gather":
            return dist.all_gather_into_tensor(out, given, group, async_op=True)
        if name == "reduce_scatter":
            return dist.reduce_scatter_tensor(out, given, group=group, async_op=True)
        if name in ("broadcast", "reduce"):
            return getattr(dist, name)(given, members[0], group=group, async_op=True)
        if name == "barrier":
            return dist.barrier(group, async_op=True)
        return dist.all_reduce(given, group=group, async_op=True)

    def _tensor(self, operation: ScheduledCall, times: int) -> Any:
        unlike = "unlike" in operation.marks
        kind = getattr(self.torch, "uint8" if unlike else TYPES.get(operation.type, "uint8"))
        count = (1 if unlike else operation.size) * times
        if "open" in operation.marks and BACKEND == "nccl":
            count *= PAIR_TIMES
        return self.torch.ones(count, dtype=kind, device=self.device)

    def report(self) -> dict[str, Any]:
        """Where the rank is, and where it is expected to be."""
        at = self.left[0].place(GROUPS) if self.left else None
        due = expected_place(self.operations)
        return {"rank": self.rank, "at": at, "expected": due, "same": at == due, "error": self.error}


def expected_place(operations: list[ScheduledCall]) -> list[str] | None:
    """Where a rank is expected to stop; operations that are issued together wait as one, at the first of them."""
    place = next((at for at, operation in enumerate(operations) if "waits" in operation.marks), None)
    while SERIAL and place and operations[place].together:
        place -= 1
    return None if place is None else operations[place].place(GROUPS)


def play(index: int, out: Path) -> None:
    """Plays one rank until it stands still; never returns."""
    os.environ.update(SETTINGS)
    player = Player(index)
    threading.Thread(target=player.play, daemon=True).start()
    until_still(player, out / "dumps")
    told = player.report()
    print("REPRO " + json.dumps(told), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"rank_{player.rank}.json").write_text(json.dumps(told))
    # who leaves early breaks connections of others that are not yet there
    until = time.monotonic() + 2 * GRACE_S
    while time.monotonic() < until and len(list(out.glob("rank_*.json"))) < len(RANKS):
        time.sleep(0.2)
    os._exit(0)


def until_still(player: Player, dumps: Path) -> None:
    """Writes the record of a rank each second, until it stands still."""
    written = 0.0
    while True:
        still = time.monotonic() - player.moved >= GRACE_S
        if player.rank not in SILENT and (still or time.monotonic() - written >= 1.0):
            player.recording.write(dumps)
            written = time.monotonic()
        if still:
            return
        time.sleep(0.2)


def start_all(out: Path) -> int:
    """Starts a process for each rank on this machine, and says where each of them stopped."""
    for old in (*out.glob("rank_*.json"), *out.glob("dumps/fr_trace_rank_*")):
        old.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "WORLD_SIZE": str(len(RANKS)),
        "LOCAL_WORLD_SIZE": str(len(RANKS)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "REPRO_OUT": str(out),
        "PYTHONWARNINGS": "ignore",
    }
    if BACKEND == "gloo":
        common["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = [sys.executable, str(Path(sys.argv[0]).resolve())]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **common, "RANK": str(index), "LOCAL_RANK": str(index), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        for index in range(len(RANKS))
    ]
    try:
        for process in running:
            process.wait(timeout=60 + 4 * GRACE_S + 2 * len(RANKS))
    except subprocess.TimeoutExpired:
        print("it did not end in time", file=sys.stderr)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return say(out)


def say(out: Path) -> int:
    """Prints where each rank stopped; the exit code."""
    told = [json.loads(path.read_text()) for path in out.glob("rank_*.json")]
    for one in sorted(told, key=lambda entry: int(entry["rank"])):
        where = " ".join([*one["at"][1:], "of", one["at"][0]]) if one["at"] else "the end"
        verdict = "as expected" if one["same"] else f"expected: {one['expected'] or 'the end'}"
        print(f"rank {one['rank']:<6} stops at {where:<50} {verdict} {one['error']}".rstrip())
    same = sum(one["same"] for one in told)
    print(f"{same} of {len(RANKS)} ranks stop as expected")
    return 2 if len(told) < len(RANKS) else 0 if same == len(RANKS) else 1


if __name__ == "__main__":
    if "RANK" in os.environ:
        play(int(os.environ["RANK"]), Path(os.environ.get("REPRO_OUT", "repro_out")))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(start_all(Path(os.environ.get("REPRO_OUT", folder)).resolve()))
