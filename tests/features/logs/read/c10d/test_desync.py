"""Reports of TORCH_NCCL_DESYNC_DEBUG."""

from __future__ import annotations

from tests.features.logs.read.c10d.lines import events, everything, values

REPORT = """\
[rank8]:[E515 18:36:47.343377708 ProcessGroupNCCL.cpp:1937] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #315
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [5, 6] joined but didn't finish collective #182 (count from 1)
\t     [7] finished collective #182, but didn't join collective #183 (count from 1)
\t - Snapshot of ranks' latest states:
\t   #182 started ranks:
\t     [5, 6] started ALLREDUCE
\t   #182 finished ranks:
\t     [7] finished ALLREDUCE
\t   #315 started ranks:
\t     [0, 1, 2] started ALLREDUCE
\t     [3, 4] started _ALLGATHER_BASE"""


def test_the_ranks_that_lag_and_where_everybody_stands() -> None:
    (event,) = events(REPORT)
    assert (event.kind, event.line, event.rank) == ("desync", 2, 8)
    assert values(event, "reporter", "op", "seq") == (0, "ALLREDUCE", 315)
    assert event.values["lagging"] == [[5, "joined", 182], [6, "joined", 182], [7, "finished", 182]]
    assert event.values["states"] == [
        [182, "started", "ALLREDUCE", [5, 6]], [182, "finished", "ALLREDUCE", [7]],
        [315, "started", "ALLREDUCE", [0, 1, 2]], [315, "started", "_ALLGATHER_BASE", [3, 4]],
    ]  # fmt: skip


def test_ranks_that_never_came() -> None:
    (event,) = events(
        "\t - [1] Timeout at collective: BROADCAST, #1\n"
        "\t - To our best knowledge, ranks [2, 3] are the lagging ranks that caused this timeout. They never "
        "joined any collectives"
    )
    assert event.values["lagging"] == [[2, "never-joined", 0], [3, "never-joined", 0]]
    assert event.rank is None


def test_two_reports_and_other_lines_between() -> None:
    said = events(f"{REPORT}\n[rank3]: step 5\n{REPORT.replace('[rank8]', '[rank9]')}")
    assert [(e.rank, len(e.values["states"])) for e in said] == [(8, 4), (9, 4)]


def test_the_ranks_it_names_are_accused_and_not_the_one_that_prints_it() -> None:
    (known,) = [e for e in everything(REPORT) if e.kind == "known-error"]
    assert values(known, "id", "role", "accuses", "named") == ("desync-not-joined", "root", "named", [7])
