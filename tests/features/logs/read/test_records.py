"""Lines to records: what stands in front, what is glued, what is torn."""

from __future__ import annotations

import json

import pytest

from rankscope.features.logs.read.log_record import Record
from rankscope.features.logs.read.record_reader import RecordSplitter
from rankscope.parsers.line_blocks import LINE_BYTES
from tests.features.logs.read.lines import coll, info

LINE = info(coll())
WATCHDOG = "[rank3]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught"


def records(line: str | bytes, *before: str) -> list[Record]:
    splitter = RecordSplitter()
    for known in before:
        list(splitter.records(known.encode(), 0, 1))
    return list(splitter.records(line.encode() if isinstance(line, str) else line, 100, 7))


def only(line: str | bytes) -> Record:
    (record,) = records(line)
    return record


PREFIXES = {
    "[rank3]: ": (3, "[rank3]: "),
    "[default3]:": (None, "[default3]:"),
    "[default3]:[rank11]:": (11, "[default3]:[rank11]:"),
    "3: ": (None, "3: "),
    " 3: ": (None, " 3: "),
    "[1,3]<stdout>:": (None, "[1,3]<stdout>:"),
    "[1,3]<stderr>: ": (None, "[1,3]<stderr>: "),
    "[3] ": (None, "[3] "),
    "10.10.23.10: ": (None, "10.10.23.10: "),
    "worker-3: ": (None, "worker-3: "),
    "(RayTrainWorker pid=615, ip=10.72.7.6) ": (None, "(RayTrainWorker pid=615, ip=10.72.7.6) "),
    "\x1b[36m(Worker(Actor) pid=615)\x1b[0m ": (None, None),
    "18:11:06.680 ": (None, ""),
    "2026-09-17 13:40:02 ": (None, ""),
    "2026-09-17T13:40:02.123456789Z ": (None, ""),
    "2026-09-17T13:40:02.123+02:00 stdout F ": (None, ""),
    "[2026-04-22 21:34:20] ": (None, ""),
    "Nov 22 05:52:56 node-1 train[123]: ": (None, None),
    "LOG1.0.txt:": (None, "LOG1.0.txt:"),
    "logs/rank_3.log:17:": (None, "logs/rank_3.log:"),
    "[0m ": (None, ""),
    "2026-09-17 13:40:02,123 3: [rank3]: ": (3, "3: [rank3]: "),
    " [36m(Worker pid=615) [0m ": (None, "(Worker pid=615) "),
    "stderr: ": (None, ""),
    "bench.node-d003.run [stderr] ": (None, ""),
    "ERROR 06-10 03:43:37 [core.py:500] ": (None, ""),
    "(VllmWorker rank=7 pid=1030) ERROR 06-10 03:43:37 [v1/worker.py:5] ": (7, "(VllmWorker rank=7 pid=1030) "),
    "(Worker_TP3 pid=1030) ": (3, "(Worker_TP3 pid=1030) "),
    "(Worker_PP1_TP3 pid=1030) ": (None, "(Worker_PP1_TP3 pid=1030) "),
    "[2026-03-09 00:57:15 TP4] ": (4, ""),
    "[2026-03-09 00:57:15 TP4 EP4] ": (4, ""),
    "[2026-03-09 00:57:15 DP1 TP4] ": (None, "[DP1 TP4] "),
    "[2026-03-09 00:57:15 TP4 PP1] ": (None, "[TP4 PP1] "),
    "(Actor pid=4, ip=10.7.5.2) [2026-02-03 10:34:03,841 E 4 68] logging.cc:101: ": (
        None,
        "(Actor pid=4, ip=10.7.5.2) ",
    ),
    " 2026-02-18 12:54 ": (None, ""),
    "2026-10-31 03:11:02,477 - Trainer - INFO - ": (None, ""),
    "[trainer22|6]:": (None, "[trainer22|6]:"),
    "2026-03-27 17:31:09.952  gpu-node-23 ": (None, "gpu-node-23 "),
    "2026-09-17T13:40:02.123Z: [1,12]<stdout>:": (None, "[1,12]<stdout>:"),
    "  | 2026-09-17T13:40:02.123-07:00 | ": (None, ""),
    "[trainer3]:": (None, "[trainer3]:"),
    "    ": (None, ""),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_stands_in_front(prefix: str) -> None:
    record = only(prefix + LINE + "\n")
    rank, label = PREFIXES[prefix]
    assert (record.text, record.rank, record.torn, record.line, record.offset) == (LINE, rank, False, 7, 100)
    assert label is None or record.label == label


STAMPS = {
    "1970-01-02 00:00:01 ": (86_401_000_000_000, 10**9, True, True, False),
    "1970-01-02T00:00:01.5Z ": (86_401_500_000_000, 10**8, True, True, True),
    "1970-01-02T02:00:01,250+02:00 ": (86_401_250_000_000, 10**6, True, True, True),
    "00:00:01.000001 ": (1_000_001_000, 1000, False, False, False),
    "Jan  2 00:00:01 node sh[1]: ": (86_401_000_000_000, 10**9, True, False, False),
    "[1970-01-02 00:00:01.123456789] ": (86_401_123_456_789, 1, True, True, False),
}


@pytest.mark.parametrize("prefix", STAMPS)
def test_times_in_front(prefix: str) -> None:
    stamp = only(prefix + LINE).stamp
    assert stamp is not None
    assert tuple(stamp) == STAMPS[prefix]


def test_the_time_in_the_head_of_c10d() -> None:
    stamp = only("2026-09-17 13:40:02 " + WATCHDOG).stamp
    assert stamp is not None
    assert (stamp.ns % 10**9, stamp.resolution_ns, stamp.has_year) == (789_012_345, 1, False)
    january = only("[E111 00:00:00.000000001 ProcessGroupNCCL.cpp:616] x").stamp
    assert january is not None
    assert january.ns == 10 * 86_400 * 10**9 + 1


@pytest.mark.parametrize("time", ["2026-13-01 00:00:00 ", "2026-01-01 25:00:00 ", "9999-01-01 00:00:00 "])
def test_times_no_clock_shows(time: str) -> None:
    assert only(time + LINE).stamp is None


def test_text_that_only_looks_like_a_prefix_stays() -> None:
    for text in ("[7] finished collective #182, but didn't join", "Epoch: 3", "[1]: worker", "  [0, 1] started"):
        assert only(text).text == text


def test_glued_records_are_cut_apart() -> None:
    first, second, third = records(f"{info('Channel 03/0 : 3[3')}{LINE}{WATCHDOG}", LINE)
    assert (first.text, first.torn, first.offset) == (info("Channel 03/0 : 3[3"), True, 100)
    assert (second.text, second.torn) == (LINE, True)
    assert (third.text, third.rank, third.torn) == (WATCHDOG.removeprefix("[rank3]:"), 3, False)
    assert second.offset == 100 + len(first.text)


def test_a_piece_glued_to_a_host_is_told_by_known_hosts() -> None:
    line = f"{info('Chan')}node-1:4200:4200 [1] NCCL INFO cudaDriverVersion 12020"
    assert [r.text for r in records(line, LINE)][1].startswith("node-1:4200")
    alone = [r.text for r in records(line)]
    assert alone[1].startswith("node-1:4200")


def test_progress_bars() -> None:
    bar = "".join(f"\r{i}%|### | {i}/100 [00:01<00:02, 1.37it/s]" for i in range(99))
    assert [r.text for r in records(f"{bar}\r{LINE}\n")] == [LINE]
    fragment, record = records(f"Epoch 0: 6%|## | 3/5 [6:28, 1.37it/s]{WATCHDOG}\n")
    assert (fragment.torn, record.torn, record.rank) == (True, False, 3)


def test_ends_of_lines_and_colours() -> None:
    assert only(LINE + "\r\n").text == LINE
    assert only(f"\x1b[31m{LINE}\x1b[0m\n").text == LINE
    assert only(f"{LINE} [repeated 5x across cluster]\n").text == LINE


def test_a_line_without_its_end_is_torn() -> None:
    assert [r.torn for r in RecordSplitter().records(LINE.encode(), 0, 1, whole=False)] == [True]


def test_lines_without_end_are_cut() -> None:
    pieces = records(b"x" * (LINE_BYTES * 2 + 5))
    assert [len(r.text) for r in pieces] == [LINE_BYTES, LINE_BYTES, 5]
    assert all(r.torn for r in pieces)


def test_bytes_that_are_no_text() -> None:
    record = records(b"\xff\xfe " + LINE.encode())[-1]
    assert record.text == LINE
    assert record.offset == 103


def test_lines_as_docker_keeps_them() -> None:
    record = only(json.dumps({"log": LINE + "\n", "stream": "stdout", "time": "1970-01-01T00:00:01.5Z"}) + "\n")
    assert record.text == LINE
    assert record.stamp is not None
    assert record.stamp.ns == 1_500_000_000
    assert only('{"log": 3}').text == '{"log": 3}'


def test_the_name_of_a_host_in_front_of_every_line_once_one_tells_that_it_is_one() -> None:
    lines = ["worker-1: loss 3", "worker-1: Traceback (most recent call last):", "worker-1:     main()", "note: loss 3"]
    splitter = RecordSplitter()
    found = [record for line in lines for record in splitter.records(line.encode(), 0, 1)]
    assert [(record.label, record.text) for record in found] == [
        ("", "worker-1: loss 3"), ("worker-1: ", "Traceback (most recent call last):"), ("worker-1: ", "    main()"),
        ("", "note: loss 3"),
    ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    marked = list(RecordSplitter().records("\ufeff[2026-04-22 21:34:20 TP3] it".encode(), 0, 1))
    assert [(record.text, record.rank) for record in marked] == [("it", 3)]
