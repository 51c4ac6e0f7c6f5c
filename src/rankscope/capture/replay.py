"""Replays the collectives that each rank of a job issued around its failure.

Needs torch and nothing else. Run it by itself: it starts a process for each rank on this machine, over gloo. Or start
it with torchrun or srun, one process a rank; BACKEND=nccl uses devices. It replays who waits for whom, not the cause: a
rank whose host was stuck stops where the dumps say that it stopped. Times, data, roots and reduce operations are not
recorded: sums, roots at the first member of a group, and an all_reduce of one element for all_to_all, gather and
scatter.

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
from pathlib import Path
from typing import Any

# job: begin
RANKS: list[int] = []
"""Ranks of the job: process i plays RANKS[i]."""
GROUPS: dict[str, tuple[str, list[int]]] = {}
"""Names and members of process groups."""
SCHEDULE = ""
"""Lines `ranks 0 1`, then the operations of these ranks in their order: group, number or pair, name, size, type.

`+` before an operation: issued together with the one before. `waits`: the rank is expected to stop there. `stop`: the
rank never comes to it. `apart`: sizes or types differ between members, over gloo nobody comes out of it.
"""
SERIAL = True
"""Whether an operation begins when all before it have ended; otherwise all are issued at once."""
# job: end

BACKEND = os.environ.get("BACKEND", "gloo")
GRACE_S = float(os.environ.get("GRACE", "10"))
"""Seconds without progress after which a rank says where it is."""
TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8",
}  # fmt: skip
"""Types of torch by their names in dumps; others are played by bytes."""


class ScheduledCall:
    """One line of the schedule."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.together = words[0] == "+"
        self.group, self.number, self.name, size, self.type = words[self.together : self.together + 5]
        self.size = int(size)
        self.marks = set(words[self.together + 5 :])

    @property
    def place(self) -> list[str]:
        """The place as a rank tells it: name of the group, operation, number or pair."""
        return [GROUPS[self.group][0], self.name, self.number]


def operations_of(rank: int) -> list[ScheduledCall]:
    """The operations of a rank of the job."""
    mine: list[ScheduledCall] = []
    is_mine = False
    for line in filter(None, map(str.strip, SCHEDULE.splitlines())):
        if line.startswith("ranks "):
            is_mine = str(rank) in line.split()[1:]
        elif is_mine:
            mine.append(ScheduledCall(line))
    return mine


class Player:
    """Plays one rank."""

    def __init__(self, index: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank = torch, dist, RANKS[index]
        self.operations = operations_of(self.rank)
        self.done = 0
        self.moved = time.monotonic()
        self.error = ""
        if BACKEND == "nccl":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", index)) % torch.cuda.device_count())
        self.device = "cuda" if BACKEND == "nccl" else "cpu"
        dist.init_process_group(BACKEND)
        # every rank makes every group, in one order
        self.groups = {
            key: dist.new_group([RANKS.index(rank) for rank in members]) for key, (_, members) in GROUPS.items()
        }
        dist.barrier()

    def play(self) -> None:
        """Issues all operations; returns when they have ended, or when one of them failed."""
        self.moved = time.monotonic()
        try:
            if SERIAL:
                self._one_after_the_other()
            else:
                self._all_at_once()
        except Exception as error:  # noqa: BLE001 - gloo raises on what NCCL waits in for ever
            self.error = f"{type(error).__name__}: {error}"[:300]

    def _one_after_the_other(self) -> None:
        while self.done < len(self.operations):
            last = self.done + 1
            while last < len(self.operations) and self.operations[last].together:
                last += 1
            for work in self._issue(self.operations[self.done : last]):
                work.wait()
            self.done, self.moved = last, time.monotonic()

    def _all_at_once(self) -> None:
        works = self._issue(self.operations)
        while self.done < len(self.operations):
            works[self.done].wait()
            self.done, self.moved = self.done + 1, time.monotonic()

    def _issue(self, operations: list[ScheduledCall]) -> list[Any]:
        works = []
        for operation in operations:
            if "stop" in operation.marks or ("apart" in operation.marks and BACKEND == "gloo"):
                threading.Event().wait()
            works.append(self._one(operation))
        return works

    def _one(self, operation: ScheduledCall) -> Any:
        """Issues an operation without waiting for it."""
        dist, group = self.dist, self.groups[operation.group]
        members = [RANKS.index(rank) for rank in GROUPS[operation.group][1]]
        count = len(members)
        if operation.name in ("send", "recv"):
            sender, receiver = (RANKS.index(int(rank)) for rank in operation.number.split(":")[0].split(">"))
            tensor = self._tensor(operation, 1)
            return (
                dist.isend(tensor, receiver, group) if operation.name == "send" else dist.irecv(tensor, sender, group)
            )
        if operation.name == "all_gather":
            out = self._tensor(operation, count)
            return dist.all_gather_into_tensor(out, self._tensor(operation, 1), group, async_op=True)
        if operation.name == "reduce_scatter":
            whole = self._tensor(operation, count)
            return dist.reduce_scatter_tensor(self._tensor(operation, 1), whole, group=group, async_op=True)
        tensor = self._tensor(operation, 1)
        if operation.name in ("broadcast", "reduce"):
            return getattr(dist, operation.name)(tensor, members[0], group=group, async_op=True)
        if operation.name == "barrier":
            return dist.barrier(group, async_op=True)
        return dist.all_reduce(tensor, group=group, async_op=True)

    def _tensor(self, operation: ScheduledCall, times: int) -> Any:
        kind = getattr(self.torch, TYPES.get(operation.type, "uint8"))
        return self.torch.ones(operation.size * times, dtype=kind, device=self.device)

    def report(self) -> dict[str, Any]:
        """Where the rank is, and where it is expected to be."""
        at = self.operations[self.done].place if self.done < len(self.operations) else None
        due = expected_place(self.operations)
        return {"rank": self.rank, "at": at, "expected": due, "same": at == due, "error": self.error}


def expected_place(operations: list[ScheduledCall]) -> list[str] | None:
    """Where a rank is expected to stop; operations that are issued together wait as one, at the first of them."""
    place = next((at for at, operation in enumerate(operations) if "waits" in operation.marks), None)
    while SERIAL and place and operations[place].together:
        place -= 1
    return None if place is None else operations[place].place


def play(index: int, out: Path) -> None:
    """Plays one rank until it stands still; never returns."""
    player = Player(index)
    threading.Thread(target=player.play, daemon=True).start()
    while time.monotonic() - player.moved < GRACE_S:
        time.sleep(0.2)
    told = player.report()
    print("REPRO " + json.dumps(told), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"rank_{player.rank}.json").write_text(json.dumps(told))
    # who leaves early breaks connections of others that are not yet there
    until = time.monotonic() + 2 * GRACE_S
    while time.monotonic() < until and len(list(out.glob("rank_*.json"))) < len(RANKS):
        time.sleep(0.2)
    os._exit(0)


def start_all(out: Path) -> int:
    """Starts a process for each rank on this machine, and says where each of them stopped."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "WORLD_SIZE": str(len(RANKS)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "REPRO_OUT": str(out),
        "PYTHONWARNINGS": "ignore",
    }
    if BACKEND == "gloo":
        common["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, str(Path(sys.argv[0]).resolve())]
    running = [
        subprocess.Popen(
            command, env={**os.environ, **common, "RANK": str(index), "LOCAL_RANK": str(index), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, start_new_session=True,
        )
        for index in range(len(RANKS))
    ]  # fmt: skip
    try:
        for process in running:
            process.wait(timeout=60 + 4 * GRACE_S + 2 * len(RANKS))
    except subprocess.TimeoutExpired:
        print("it did not end in time", file=sys.stderr)
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
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
        sys.exit(start_all(Path(folder)))
