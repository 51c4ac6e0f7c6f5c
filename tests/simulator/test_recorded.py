"""Jobs that torch 2.15's own hook recorded, run again by the simulator: the same counters and the same left pending.

The recordings: four ranks in groups of two by two, six steps of two reductions in the tensor parallel group, an
exchange in the world, three asynchronous reductions in the data parallel group and one in the world; in the fourth step
rank 1 leaves its send to rank 2 out.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from tests.simulator.instructions import P2P, Batch, Collective, Instruction, Sync, WaitAll
from tests.simulator.job import Outcome, Plan, run
from tests.simulator.options import HOOK_MODES
from tests.simulator.topology import WORLD, Layout, Topology

GROUPS = {WORLD: (0, 1, 2, 3), "1": (0, 2), "2": (1, 3), "3": (0, 1), "4": (2, 3)}
RANKS = GROUPS[WORLD]
SIZES = ((4096,),)
Counters = dict[int, tuple[tuple[int, int], ...]]


def ring(rank: int, lost: bool) -> list[Instruction]:
    """A batch with the next and the previous rank."""
    send = P2P(WORLD, "send", (rank + 1) % 4, (1024,), wait=False)
    recv = P2P(WORLD, "recv", (rank - 1) % 4, (1024,), wait=False)
    return [Batch(WORLD, (recv,) if lost else (send, recv))]


def chain(rank: int, lost: bool) -> list[Instruction]:
    """A receive from the previous rank and a send to the next, each for itself."""
    recv = [P2P(WORLD, "recv", rank - 1, (512,))] if rank else []
    return [*recv, *([P2P(WORLD, "send", rank + 1, (512,))] if rank < 3 and not lost else [])]


def job(batched: bool) -> Outcome:
    """The recorded job on nccl2."""
    programs: dict[int, list[list[Instruction]]] = {}
    for rank in RANKS:
        layers = [Collective("3" if rank < 2 else "4", "all_reduce", SIZES, SIZES)] * 2
        grads = [Collective("2" if rank % 2 else "1", "all_reduce", SIZES, SIZES, wait=False)] * 3
        loss = Collective(WORLD, "all_reduce", ((8,),), ((8,),))
        exchange = ring if batched else chain
        programs[rank] = [
            [*layers, *exchange(rank, (rank, step) == (1, 3)), *grads, WaitAll(), loss, Sync()] for step in range(6)
        ]
    return run(Plan(Topology(Layout(dp=4), GROUPS, dict.fromkeys(GROUPS, "")), programs), seed=1, kind="hook")


def recorded(outcome: Outcome, folder: Path) -> tuple[Counters, dict[int, list[str]]]:
    """(last enqueued, last completed) of each group, and what is left pending, by rank."""
    counters, pending = {}, {}
    for rank, path in zip(RANKS, outcome.write(folder, "own", HOOK_MODES["hook default"], RANKS), strict=True):
        dump = pickle.loads(path.read_bytes())
        rows = dump["pg_status"].values()
        counters[rank] = tuple((r["last_enqueued_collective"], r["last_completed_collective"]) for r in rows)
        left = [e for e in dump["entries"] if e["state"] == "scheduled"]
        pending[rank] = [f"{e['profiling_name'].partition(':')[2]}/{e['op_id']}" for e in left]
    return counters, pending


REDUCES = ["all_reduce/9", "all_reduce/10", "all_reduce/11"]


def test_a_send_left_out_of_a_batch(tmp_path: Path) -> None:
    counters, pending = recorded(job(batched=True), tmp_path)
    assert counters == {
        0: ((11, 8), (11, 8), (7, 7)), 1: ((10, 8), (11, 11), (7, 7)),
        2: ((11, 8), (11, 8), (7, 7)), 3: ((11, 8), (11, 11), (7, 7)),
    }  # fmt: skip
    behind = [*REDUCES, "all_reduce/11"]
    assert pending == {0: behind, 1: ["all_reduce/10"], 2: behind, 3: ["all_reduce/11"]}


def test_a_single_send_left_out(tmp_path: Path) -> None:
    counters, pending = recorded(job(batched=False), tmp_path)
    assert counters == {
        0: ((7, 6), (11, 8), (7, 7)), 1: ((10, 9), (11, 8), (7, 7)),
        2: ((11, 7), (11, 8), (7, 7)), 3: ((7, 4), (11, 8), (7, 7)),
    }  # fmt: skip
    assert pending == {
        0: [*REDUCES, "all_reduce/7"], 1: [*REDUCES, "all_reduce/10"],
        2: ["recv 2<-1/9", "send 2->3/10", *REDUCES, "all_reduce/11"],
        3: ["recv 3<-2/6", *REDUCES, "all_reduce/7"],
    }  # fmt: skip
