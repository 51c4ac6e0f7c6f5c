"""Lines of operations: the fast way, the slow way, and what both must not do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.logs.read import log_decoder
from rankscope.features.logs.read.model import IS_P2P, TORN, LogContent
from rankscope.parsers.matrices import NULL
from tests.features.logs.read.lines import COMM, coll, info, life, log, read

HEADS = (
    "", "[rank3]: ", "[1,3]<stdout>:", "3: ", "[2026-04-22 21:34:20] ", "[2026-04-22 21:34:20.123456] ",
    "(Worker pid=3, ip=10.0.0.1) ", "2026-04-22 21:34:20.5 ", "LOG1.0.txt:",
)  # fmt: skip
OPS = ("AllReduce", "AllGather", "Send", "Recv", "AlltoAll", "mscclpp_ncclAllReduce", "mscclpp_ncclAllGather")
COUNTS = (0, 1, 53, 25_503_912, 99_999_999, 100_000_000, 2**40, 9_999_999_999_999_999, 2**62, 2**63 + 1)
TAILS = ("", " task 0 globalrank 2")
ACCS = ("", "acc 0x7f00 ", "acc (nil) ")


def facts(content: LogContent) -> list[tuple[object, ...]]:
    """What is said of each operation, in the order of the log."""
    names = ("ordinal", "count", "reduction", "root", "op_count", "offset", "line", "stamp_ns")
    columns = [content.column(name).tolist() for name in names]
    comms = [content.comms[i] for i in content.code("comm").tolist()]
    whose = [(content.processes[c.process].pid, c.pointer, c.nranks, c.rank, c.collectives) for c in comms]
    ops = [content.ops[i] for i in content.code("op").tolist()]
    codes = [content.code(name).tolist() for name in ("datatype", "flags")]
    return sorted(zip(*columns, whose, ops, *codes, strict=True), key=lambda row: int(str(row[5])))


lines = st.builds(
    lambda head, pid, op, count, tail, acc, pointer, root, datatype, reduction, op_count: (
        head
        + info(
            coll(op, op_count, count, datatype, root, f"0x{pointer:x}", 4, tail, acc, reduction),
            "n" * (1 + pid % 40),
            pid,
            device=pid % 12,
        )
    ),
    st.sampled_from(HEADS), st.integers(4100, 4110), st.sampled_from(OPS), st.sampled_from(COUNTS),
    st.sampled_from(TAILS), st.sampled_from(ACCS), st.sampled_from((1, 0x55BE00000001, 2**64 - 1)),
    st.sampled_from((0, 7, 12, 16_383)), st.integers(0, 11), st.sampled_from((0, 4, 5, 123_456, 2**40)),
    st.sampled_from((0, 0xF, 0x1607, 0xFFFFFFFF, 2**40)),
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(lines, max_size=40), st.sampled_from(("\n", "\r\n")))
def test_the_fast_way_says_what_the_slow_way_says(text: list[str], end: str) -> None:
    data = "".join(line + end for line in text)
    fast = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_decoder, "coll_rows", lambda _: None)
        slow = read(data)
    assert facts(fast) == facts(slow)
    assert len(facts(fast)) == len(text)
    assert [c.fingerprints for c in fast.comms] == [[] for _ in fast.comms]


def test_a_line_of_each_kind_by_hand() -> None:
    content = log(info(coll("AllGather", 0x28C, 59_205_120, 9, 0)), info(coll("Send", 0x28D, 5, 7, 3)))
    assert content.column("count").tolist() == [59_205_120, 5]
    assert content.column("op_count").tolist() == [0x28C, 0x28D]
    assert content.column("root").tolist() == [0, 3]
    assert content.code("datatype").tolist() == [9, 7]
    assert [content.ops[i] for i in content.code("op")] == ["AllGather", "Send"]
    assert content.code("flags").tolist() == [0, IS_P2P]
    assert content.column("ordinal").tolist() == [0, 0]
    assert [(c.collectives, c.p2p, c.pointer, c.nranks) for c in content.comms] == [(1, 1, COMM, 4)]


def test_most_lines_take_the_fast_way() -> None:
    for head in HEADS:
        for tail in TAILS:
            content = log(*(head + info(coll(op_count=k, tail=tail)) for k in range(5)))
            assert content.counts.get("records", 0) == 0, head + tail
            assert content.counts["operations"] == 5


def test_times_of_lines() -> None:
    texts = ["[1970-01-02 00:00:01] ", "[1970-01-02 00:00:01.25] ", "", "[1970-13-02 00:00:01] "]
    content = log(*(text + info(coll()) for text in texts))
    assert content.column("stamp_ns").tolist() == [86_401 * 10**9, 86_401_250_000_000, NULL, NULL]
    leap = log("[2024-02-29 23:59:59.999999999] " + info(coll()), "[2000-03-01 00:00:00] " + info(coll()))
    days = np.array(["2024-02-29T23:59:59.999999999", "2000-03-01T00:00:00.000000000"], "datetime64[ns]")
    assert leap.column("stamp_ns").tolist() == days.astype(np.int64).tolist()


def test_no_number_is_read_across_a_cut() -> None:
    line = info(coll(count=123_456))
    for cut in range(len(info("")), len(line)):
        content = log(info(life()), line[:cut] + info(coll(count=9), pid=4200), info(coll(count=7)))
        told = [(row[1], row[-1]) for row in facts(content) if int(str(row[5])) > 0]
        assert (9, 0) in told and (7, 0) in told
        assert {count for count, flags in told if not int(str(flags)) & TORN} <= {9, 7}
        assert {count for count, _ in told} <= {9, 7, NULL, 123_456}


def test_a_cut_operation_keeps_its_place_in_the_order() -> None:
    content = log(info(life()), info(coll(count=1)), info(coll())[:60], info(coll(count=3)))
    assert content.column("count").tolist() == [1, NULL, 3]
    assert content.column("ordinal").tolist() == [0, 1, 2]
    assert content.code("flags").tolist() == [0, TORN, 0]
    assert content.processes[0].torn_at == len(info(life())) + len(info(coll(count=1))) + 2


def test_a_tail_without_its_head_goes_to_the_only_process_it_can_be_of() -> None:
    content = log(info(life()), coll("Broadcast", 1), coll("Broadcast", 2, comm="0x99"))
    assert [(c.pointer, c.collectives) for c in content.comms] == [(COMM, 1)]
    assert content.code("flags").tolist() == [TORN]


def test_a_line_put_together_from_two() -> None:
    content = log(info(life()), info(coll()), info(coll(nranks=8)))
    assert content.code("flags").tolist() == [0, TORN]


def test_the_end_of_a_file_without_a_line_end() -> None:
    content = read(info(life()) + "\n" + info(coll()) + "\n" + info(coll(count=5)))
    assert content.column("count").tolist() == [1024, 5]
    cut = read(info(life()) + "\n" + info(coll(count=1234))[:-70])
    assert cut.column("count").tolist() == [NULL]


def test_calls() -> None:
    head = "node-1:4100:4100 NCCL CALL "
    calls = [
        "ncclGroupStart()", "ncclAllReduce(7f00,7f01,1024,7,0,0,0x55,0x66)", "ncclBcast(7f00,7f01,5,1,0,2,0x55,0x66)",
        "ncclGroupEnd()",
    ]  # fmt: skip
    content = log(*(head + call for call in calls))
    assert [content.ops[i] for i in content.code("op")] == ["AllReduce", "Broadcast"]
    assert content.column("count").tolist() == [1024, 5]
    assert content.column("root").tolist() == [0, 2]
    both = log(info(coll(comm="0x55")), head + calls[1])
    assert both.column("count").tolist() == [1024]
    assert both.column("op_count").tolist() == [0]


def test_words_of_all_versions_stand_anywhere_in_a_text() -> None:
    text = "AllReduce: opCount 28c sendbuff"
    content = log(f"he said {text}", f"{text}: no", info(f"see {text}"))
    assert content.rows == 0
