"""What torch's own analyzer says of dumps, run as a process of its own: `python official.py FOLDER...`.

It cannot read gloo's dumps as they are, for their pg_config names no group: it gets copies with the groups filled in
from who has entries in them.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.torch_forks import printed


class Complaint(NamedTuple):
    """A collective that does not match, and the ranks that are missing from it or differ."""

    group: str
    seq: int
    ranks: list[int]


def complaints(folders: Sequence[Path]) -> list[list[Complaint]]:
    """Every collective the analyzer complains about, in its order, for each folder."""
    with tempfile.TemporaryDirectory() as scratch:
        copies = [Path(scratch) / str(number) for number in range(len(folders))]
        for folder, copy in zip(folders, copies, strict=True):
            copy.mkdir()
            repair(folder, copy)
        answer = printed([__file__, *map(str, copies)], Path(scratch))
    return [[Complaint(*row) for row in rows] for rows in json.loads(answer.splitlines()[-1])]


def repair(folder: Path, copies: Path) -> None:
    """Writes copies of dumps whose pg_config lists every group with the ranks that have entries in it."""
    dumps = {path.name: pickle.loads(path.read_bytes()) for path in sorted(folder.glob("*_rank_*"))}
    members: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for name, dump in dumps.items():
        for entry in dump["entries"]:
            members[entry["process_group"]].add(int(name.rpartition("_")[2]))
    for name, dump in dumps.items():
        rank = int(name.rpartition("_")[2])
        dump["pg_config"] = {
            group: {"name": group, "desc": desc, "ranks": str(sorted(ranks))}
            for (group, desc), ranks in members.items()
            if rank in ranks
        }
        (copies / name).write_bytes(pickle.dumps(dump, protocol=2))


def _analyse(folder: str) -> list[Complaint]:
    from torch.distributed.flight_recorder import fr_trace

    with tempfile.NamedTemporaryFile() as out:
        fr_trace.main([folder, "-o", out.name])
        _, database = pickle.loads(Path(out.name).read_bytes())
    found = [(c, set(c.missing_ranks or ()) | set(c.mismatch_collectives or ())) for c in database.collectives]
    return [Complaint(c.pg_desc, c.collective_seq_id, sorted(ranks)) for c, ranks in found if ranks]


def main(argv: list[str]) -> Any:
    """Prints the complaints about folders as JSON."""
    print(json.dumps([_analyse(folder) for folder in argv[1:]]))


if __name__ == "__main__":
    main(sys.argv)
