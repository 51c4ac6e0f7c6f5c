"""What a sidecar makes certain: the rank and the host of a dump, the members of groups, the size of the job."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.members import shared_members
from rankscope.parsers.sidecar import Sidecar, SidecarGroup
from rankscope.schema import Dataset
from tests.parsers.dumps import START_NS, Recorder, job
from tests.parsers.torch_pickle import torch_pickle

WORLD = SidecarGroup("0", "default_pg", "gloo", shared_members(range(4)))
PAIR = SidecarGroup("7", "pair", "gloo", shared_members([0, 2]))


def dump(path: str, recorder: Recorder, broken: bool = True, mtime_ns: int | None = None) -> SourceFile:
    """A dump, with gloo's pg_config: one row without a name."""
    document = recorder.document()
    if broken:
        document["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return SourceFile(path, "flight-recorder", 1, mtime_ns, None, decode_dump(torch_pickle(document)))


def card(path: str, rank: int, *dumps: str, **more: Any) -> SourceFile:
    given: dict[str, Any] = {"world_size": 4, "host": f"host-{rank}", "groups": [WORLD], **more}
    return SourceFile(path, "sidecar", 1, None, None, Sidecar(rank, dumps=list(dumps), **given))


def dataset(sources: list[SourceFile], pattern: str | None = None) -> Dataset:
    ordered = sorted(sources, key=lambda source: source.shown)
    return assemble(ordered, "dumps", re.compile(pattern) if pattern else None, None, None)


def recorders(library: str = "gloo") -> list[Recorder]:
    made = job(4, library=library)
    for recorder in made:
        recorder.collective("0")
    return made


def files(found: Dataset, *columns: str) -> list[tuple[Any, ...]]:
    return list(found.files.select(*columns).iter_rows())


def test_rank_and_host_are_those_of_the_sidecar_whatever_the_name_says() -> None:
    made = recorders()
    found = dataset([dump("trace_a9", made[3]), card("a.json", 3, "trace_a9")])
    assert files(found, "path", "rank", "rank_source", "host", "kind", "used") == [
        ("a.json", 3, "sidecar", "host-3", "sidecar", True),
        ("trace_a9", 3, "sidecar", "host-3", "flight-recorder", True),
    ]
    assert found.ops["host"].unique().to_list() == ["host-3"]


def test_the_process_of_a_culprit_is_known() -> None:
    made = recorders()
    for recorder in made[:3]:
        recorder.collective("0", state="scheduled", retired=False)
    names = [f"fr_trace_rank_{r}" for r in range(4)]
    sources = [
        dump(name, recorder, mtime_ns=START_NS + 3600 * 10**9) for name, recorder in zip(names, made, strict=True)
    ]
    cards = [card(f"capture_rank_{r}.json", r, names[r], pid=100 + r) for r in range(4)]
    analysis = analyse(dataset(sources + cards))
    cause = next(finding for finding in analysis.findings if finding.root_cause)
    assert [(c.rank, c.host, c.pid) for c in cause.culprits] == [(3, "host-3", 103)]
    assert any("--pid 103 (rank 3 on host-3)" in step for step in cause.next_steps)


def test_the_option_outweighs_it() -> None:
    found = dataset([dump("trace_a9", recorders()[1]), card("a.json", 3, "trace_a9")], r"a(\d)")
    assert files(found, "path", "rank", "rank_source")[1] == ("trace_a9", 9, "option")


def test_groups_and_world_are_complete_though_a_member_left_no_entry() -> None:
    made = job(4, {"0": ("default_pg", [0, 1, 2, 3]), "7": ("pair", [0, 2])}, library="gloo")
    for recorder in made:
        recorder.collective("0")
    made[0].collective("7")
    sources = [dump(f"fr_trace_rank_{r}", made[r]) for r in (0, 2)]
    cards = [card(f"capture_rank_{r}.json", r, f"fr_trace_rank_{r}", groups=[WORLD, PAIR]) for r in (0, 2)]
    without = dataset([dump(f"fr_trace_rank_{r}", made[r]) for r in (0, 2)])
    assert [group.ranks for group in without.group_list if group.name == "7"] == [(0,)]
    found = dataset(sources + cards)
    assert [(g.name, g.ranks, g.membership) for g in found.group_list] == [
        ("0", (0, 1, 2, 3), "config"), ("7", (0, 2), "config"),
    ]  # fmt: skip
    assert (found.world_size, found.missing_ranks) == (4, (1, 3))
    frontier = found.frontiers.filter((found.frontiers["rank"] == 2) & (found.frontiers["group"] == 1))
    assert frontier["last_enqueued"].to_list() == [0]


@pytest.mark.parametrize("backend", ["gloo", "nccl2", "cpu:gloo,cuda:nccl2"])
def test_groups_of_another_backend_are_not_this_recorders(backend: str) -> None:
    made = recorders("nccl")
    other = SidecarGroup("9", "cpu", backend, shared_members([0, 1]))
    found = dataset(
        [dump("nccl_trace_rank_0", made[0], broken=False), card("c.json", 0, "nccl_trace_rank_0", groups=[other])]
    )
    assert [group.name for group in found.group_list] == ["0"]


def test_the_history_is_of_the_same_rank_and_no_trouble() -> None:
    recorder = job(1, library="gloo")[0]
    recorder.collective("0")
    before = dump("history/1_fr_trace_rank_0", recorder, mtime_ns=START_NS + 10**9)
    recorder.collective("0")
    now = dump("fr_trace_rank_0", recorder, mtime_ns=START_NS + 2 * 10**9)
    found = dataset([before, now, card("capture_rank_0.json", 0, "fr_trace_rank_0", world_size=1, groups=[])])
    assert files(found, "path", "kind", "rank", "rank_source", "problem")[1:] == [
        ("fr_trace_rank_0", "flight-recorder", 0, "sidecar", None),
        ("history/1_fr_trace_rank_0", "duplicate", 0, "sidecar", None),
    ]
    assert found.repeats["progressed"].to_list() == [True]


def test_a_sidecar_tells_only_of_its_own_directory() -> None:
    found = dataset([dump("b/trace_x", recorders()[1]), card("a/c.json", 3, "trace_x")])
    assert files(found, "rank_source")[1] == ("guess",)


def test_earlier_runs_are_attempts_of_their_own() -> None:
    later = START_NS + 3600 * 10**9
    runs = {"earlier_1/": job(2, library="gloo"), "": job(2, library="gloo", start_ns=later)}
    sources = []
    for folder, made in runs.items():
        for recorder in made:
            recorder.collective("0")
            name = f"fr_trace_rank_{recorder.rank}"
            sources += [dump(folder + name, recorder)]
            sources += [
                card(f"{folder}capture_rank_{recorder.rank}.json", recorder.rank, name, world_size=2, groups=[])
            ]
    found = dataset(sources)
    assert found.attempts.height == 2
    assert found.dumps["path"].to_list() == ["fr_trace_rank_0", "fr_trace_rank_1"]
    cards = found.files.filter(found.files["kind"] == "sidecar")
    assert cards["attempt"].to_list() == [1, 1, 0, 0]
