"""What culprits have in common: a host, a switch, a slot. Where that is not known, or may be chance, nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding, GroupRef
from rankscope.analysis.places import Places, units_of
from rankscope.schema import Dataset
from rankscope.schema.tables import SETTINGS
from tests.builders import JobBuilder


def job_on(hosts: Sequence[str | None], settings: Mapping[tuple[int, str], str] | None = None) -> Dataset:
    """A job whose rank i ran on the i-th host; None: it left no dump."""
    job = JobBuilder(len(hosts))
    dataset = job.build()
    files = dataset.files.with_columns(
        host=pl.Series(hosts, dtype=pl.String), used=pl.Series([host is not None for host in hosts])
    )
    rows = [{"rank": rank, "name": name, "value": value} for (rank, name), value in (settings or {}).items()]
    return replace(dataset, files=files, settings=pl.DataFrame(rows, schema=SETTINGS))


def spread(names: Sequence[str], each: int) -> list[str | None]:
    """So many neighbouring ranks on each host."""
    return [name for name in names for _ in range(each)]


def blaming(*ranks: int, kind: str = "missing-rank", group: Sequence[int] = ()) -> Finding:
    ref = GroupRef("1", "dp", tuple(group)) if group else None
    return Finding(kind, "critical", "t", "e", root_cause=True, culprit_ranks=ranks, group=ref)


def said(dataset: Dataset, *findings: Finding) -> str:
    shared = Places(dataset).shared(findings)
    return shared.short if shared else ""


FOUR_HOSTS = spread(["node00", "node01", "node02", "node03"], 4)
RACKS = spread([f"rack{r:02d}-node{n}" for r in range(4) for n in range(8)], 2)


@pytest.mark.parametrize(
    ("host", "units"),
    [
        ("rack07-node12", ("rack07",)),
        ("pod3-sw2-n14", ("pod3", "pod3-sw2")),
        ("gpu-a12-03", ("gpu-a12",)),
        ("x1000c0s1b0n0", ("x1000", "x1000c0", "x1000c0s1", "x1000c0s1b0")),
        ("node12.rack07.example.com", ("rack07.example.com",)),
        ("n1-a2.r3.dc1", ("dc1", "r3.dc1", "n1.r3.dc1")),
        ("node07", ()),
        ("localhost", ()),
        ("ip-10-0-12-34", ()),
        ("10.0.12.34", ()),
        ("", ()),
    ],
)
def test_what_the_name_of_a_host_says_it_is_part_of(host: str, units: tuple[str, ...]) -> None:
    assert units_of(host) == units


def test_culprits_on_one_host() -> None:
    dataset = job_on(FOUR_HOSTS)
    assert said(dataset, blaming(4, 6)) == "all on node01: drain that node"
    assert said(dataset, blaming(4, kind="gpu-stuck"), blaming(7)) == "all on node01: drain that node"
    assert said(dataset, blaming(4, 6, kind="size-mismatch")) == "all on node01"


def test_nothing_is_said_of_one_culprit_two_hosts_or_the_only_host() -> None:
    dataset = job_on(FOUR_HOSTS)
    assert said(dataset, blaming(4)) == ""
    assert said(dataset, blaming(4, 9)) == ""
    assert said(job_on(spread(["node00"], 8)), blaming(1, 2)) == ""
    assert said(dataset) == ""


def test_nothing_is_said_where_a_host_is_not_known() -> None:
    assert said(job_on([None] * 8), blaming(1, 2)) == ""
    assert said(job_on(["a1", "a1", None, "b1", "b1", "b1"]), blaming(1, 2)) == ""


def test_ranks_in_blocks_place_one_that_left_no_dump() -> None:
    hosts = [*FOUR_HOSTS]
    hosts[5] = None
    places = Places(job_on(hosts))
    assert places.hosts[5] == "node01"
    assert (places.culprit(5).host, places.culprit(5).device) == ("node01", "local rank 1")
    assert said(job_on(hosts), blaming(5, 6)) == "all on node01: drain that node"
    cyclic = ["a1", "b1", None, "b1", "a1", "b1", "a1", "b1"]
    assert 2 not in Places(job_on(cyclic)).hosts
    assert Places(job_on(cyclic)).slot(0) is None


def test_culprits_under_one_rack() -> None:
    dataset = job_on(RACKS)
    first = Places(dataset).shared([blaming(16, 19, 21)])
    assert first is not None
    assert first.short == "all on rack01"
    assert first.sentence == (
        "The names of their 3 hosts have rack01 in common, those of 24 others do not: perhaps one rack or switch."
    )
    assert said(dataset, blaming(16), blaming(19), blaming(20)) == "all on rack01"


def test_two_hosts_of_one_rack_may_be_chance() -> None:
    dataset = job_on(RACKS)
    assert said(dataset, blaming(16, 19)) == ""
    assert said(dataset, blaming(16, 19, 40)) == ""
    small = job_on(spread(["rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2"], 1))
    assert said(small, blaming(0, 1)) == ""


def test_a_name_that_all_hosts_share_says_nothing() -> None:
    assert said(job_on(spread([f"dgx1-n{i}" for i in range(16)], 2)), blaming(0, 3, 5)) == ""


def test_slurm_knows_the_switches() -> None:
    names = [f"n{i}" for i in range(32)]
    path = {(2 * i + j, "SLURM_TOPOLOGY_ADDR"): f"spine.leaf{i // 8}.n{i}" for i in range(32) for j in range(2)}
    shared = Places(job_on(spread(names, 2), path)).shared([blaming(0, 3, 5)])
    assert shared is not None
    assert shared.short == "all under switch spine.leaf0"
    assert "24 other hosts are not. Look at that switch." in shared.sentence
    del path[4, "SLURM_TOPOLOGY_ADDR"], path[5, "SLURM_TOPOLOGY_ADDR"]
    assert said(job_on(spread(names, 2), path), blaming(0, 3, 5)) == ""


def test_the_same_slot_of_different_hosts() -> None:
    dataset = job_on(spread(["n0", "n1", "n2", "n3"], 8))
    assert said(dataset, blaming(3, 19)) == "all local rank 3 of their hosts"
    assert said(dataset, blaming(3), blaming(11), blaming(27)) == "all local rank 3 of their hosts"
    assert said(dataset, blaming(3, 20)) == ""
    assert said(job_on(FOUR_HOSTS), blaming(3, 7)) == ""


def test_a_group_along_the_slot_explains_the_slot() -> None:
    dataset = job_on(spread(["n0", "n1", "n2", "n3"], 8))
    along = blaming(3, 19, kind="order-deadlock", group=(3, 11, 19, 27))
    assert said(dataset, along) == ""
    assert said(dataset, blaming(3, 19, group=range(32))) == "all local rank 3 of their hosts"


def test_settings_tell_the_slot_where_they_are_known() -> None:
    dataset = job_on(
        ["a1", "b1", "a1", "b1"], {(2, "LOCAL_RANK"): "1", (0, "LOCAL_RANK"): "x", (3, "LOCAL_RANK"): "9" * 9}
    )
    assert [Places(dataset).slot(rank) for rank in range(4)] == [None, None, 1, None]


def test_the_verdict_and_the_finding_say_it() -> None:
    job = JobBuilder(8)
    for _ in range(3):
        job.collective()
    job.collective(ranks=[0, 1, 2, 3, 6, 7], state="scheduled")
    dataset = job.build()
    hosts = pl.Series(["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"])
    analysis = analyse(replace(dataset, files=dataset.files.with_columns(host=hosts)))
    assert analysis.culprits == (4, 5)
    assert analysis.verdict.endswith("; all on n2: drain that node")
    assert analysis.findings[0].explanation.endswith("All of them are on n2: drain that node.")
    assert [(c.host, c.device) for c in analysis.findings[0].culprits] == [
        ("n2", "local rank 0"),
        ("n2", "local rank 1"),
    ]
    assert "drain" not in analyse(dataset).verdict


def test_hosts_that_only_operations_tell() -> None:
    job = JobBuilder(3)
    job.collective()
    dataset = job.build()
    files = dataset.files.with_columns(host=pl.Series(["node09", None, None], dtype=pl.String))
    on = pl.format("node{}", pl.col("rank")).cast(pl.Categorical)
    told = replace(dataset, files=files, ops=dataset.ops.with_columns(host=on))
    places = Places(told)
    assert places.hosts == {0: "node09", 1: "node1", 2: "node2"}
    assert places.culprit(1).host == "node1"
