"""Sends and receives with their other side."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis.model import Analysis, Finding, GroupRef
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import fold, pair, waiting_for
from rankscope.tui.detail.selection_facts import look_up, peers_of
from rankscope.tui.selection import Selection
from tests.builders import JobBuilder
from tests.tui.detail.samples import QUIET, STUCK


def told(index: OpIndex, row: int, analysis: Analysis = STUCK) -> list[tuple[tuple[int, ...], str, str]]:
    """Ranks, operation and presence of each side."""
    return [(one.ranks, one.op, one.presence) for one in fold(pair(index, analysis, row))]


def chain() -> JobBuilder:
    """Rank 0 sends twice to 1, and once to 2."""
    job = JobBuilder(3)
    for peer in (1, 2, 1):
        job.p2p("0", 0, peer, "send")
        job.p2p("0", peer, 0, "recv")
    return job


def test_the_kth_send_meets_the_kth_receive() -> None:
    index = OpIndex(chain().build())
    second = pair(index, QUIET, 2)
    assert second.table.sort("rank").select("rank", "row", "op").rows() == [(0, 2, "send to 1"), (1, 4, "recv from 0")]
    assert second.op == "send"
    assert second.table["presence"].to_list() == ["issued", "issued"]


def test_a_side_that_was_never_posted_is_absent() -> None:
    job = JobBuilder(2)
    job.p2p("0", 0, 1, "send", state="scheduled")
    index = OpIndex(job.build())
    assert told(index, 0) == [((1,), "", "never issued"), ((0,), "send to 1", "issued")]


def test_nothing_is_proven_where_a_ring_wrapped_unless_the_analysis_says_so() -> None:
    job = JobBuilder(2)
    job.p2p("0", 0, 1, "send", state="scheduled")
    dataset = job.build()
    wrapped = replace(dataset, files=dataset.files.with_columns(wrapped=pl.lit(True)))
    index = OpIndex(wrapped)
    assert told(index, 0)[0] == ((1,), "", "unknown")
    group = GroupRef("0", "default_pg", (0, 1), key=0)
    finding = Finding("p2p-unmatched", "critical", "t", "e", culprit_ranks=(1,), group=group)
    assert told(index, 0, replace(STUCK, findings=(finding,)))[0] == ((1,), "", "never issued")


def test_a_peer_without_a_dump_or_without_a_name() -> None:
    job = chain()
    job.no_dump = {1}
    assert told(OpIndex(job.build()), 0)[0] == ((1,), "", "no dump")
    unknown = JobBuilder(2)
    unknown.p2p("0", 0, 1, "send")
    unknown.rows[-1]["peer"] = None
    assert told(OpIndex(unknown.build()), 0) == [((0,), "send", "issued")]


def test_a_batch_shows_all_it_launched() -> None:
    job = JobBuilder(3)
    for peer, op in ((1, "send"), (2, "recv")):
        job.p2p("0", 0, peer, op, state="scheduled", coalesced="inner", p2p_seq=1)
    job.p2p("0", 0, 1, "coalesced", coalesced="closer", p2p_seq=1, state="scheduled")
    job.rows[-1]["peer"] = None
    job.p2p("0", 1, 0, "recv", state="scheduled")
    sides = pair(OpIndex(job.build()), STUCK, 2).table.sort("rank", "row").select("rank", "op", "presence").rows()
    assert sides[:2] == [(0, "send to 1", "issued"), (0, "recv from 2", "issued")]
    assert sides[2:] == [(1, "recv from 0", "issued"), (2, None, "never issued")]


def test_an_absent_side_is_found_by_who_waits_for_it() -> None:
    job = JobBuilder(3)
    job.p2p("0", 2, 1, "send")
    job.p2p("0", 0, 1, "recv", state="scheduled")
    dataset = job.build()
    index = OpIndex(dataset)
    assert waiting_for(index, 1, 0, None) == 0
    assert waiting_for(index, 1, 0, 0) == 0
    assert waiting_for(index, 1, 0, 5) is None
    absent = Selection(1, None, 0, 0, is_p2p=True, absence="never issued")
    peers = peers_of(index, STUCK, absent)
    assert peers is not None
    assert peers.of_rank(1) == (None, "never issued")
    assert look_up(index, STUCK, absent).row is None
