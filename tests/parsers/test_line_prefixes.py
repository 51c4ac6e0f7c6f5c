"""What stands in front of lines: whose they are, and where they begin."""

from __future__ import annotations

import pytest

from rankscope.parsers.line_prefixes import strip_prefixes

CASES = {
    "[ERROR] 2026-10-11-15:09:34 (PID:2969, Device:0, RankID:101) ERR00100 PTA call acl api failed": (101, "ERR00100"),
    "[ERROR] 2026-10-11-15:09:34 (PID:2969, Device:0, RankID:-1) ERR00100 PTA": (None, "ERR00100"),
    "[2026-02-27T21:35:28.705869Z] 1a2b3c4d [rank=2] || Traceback (most recent call last):": (2, "Traceback"),
    "[2026-02-27T21:35:28.705869Z] 1a2b3c4d || WARNING: x": (None, "WARNING"),
    "[Fri Aug 30 11:43:09 2026] NVRM: Xid (PCI:0000:cb:00): 79": (None, "NVRM"),
    "kernel: NVRM: Xid (PCI:0000:cb:00): 79": (None, "NVRM"),
    "(W_1:13 pid=204, ip=[2605:340:cd51::1540]) [W715 20:00:39.8 socket.cpp:752] x": (None, "[W715"),
    '3:   File "train.py", line 4, in main': (None, "  File"),
    '[1,3]<stderr>:  File "train.py", line 4, in main': (None, "  File"),
    '[1,3]<stderr>:   File "train.py", line 4, in main': (None, "  File"),
    "[1,3]<stderr>:    step()": (None, "    step"),
    "[1,3][n7:4711]<stdout>:     step()": (None, "    step"),
    "Fri Aug 30 11:43:09 2026[1,3]<stderr>:  rank      : 3": (None, "  rank"),
    "Fri Aug 30 11:43:09 2026<stderr>:Traceback": (None, "Traceback"),
    "[Fri Aug 30 11:43:09 2026][prterun-n7-99@1,3]<stderr>: Traceback": (None, "Traceback"),
    "[Fri Aug 30 11:43:09 2026]<stderr>: Traceback": (None, "Traceback"),
    'Feb 03 09:15:20 node1 python3[42]:   File "train.py", line 4': (None, "  File"),
    "2026-02-03T09:15:20+0100 node1 train[42]: step 4": (None, "step"),
    "<13>1 2026-02-03T09:15:20.1Z node1 train 42 - - [rank0]:[rank4]: x": (4, "x"),
    '<13>1 2026-02-03T09:15:20.1Z n1 app - ID7 [a@1 b="c"][d@2]     step()': (None, "    step"),
    "2026-02-03 09:15:20,123     step()": (None, "    step"),
    '2026-02-03 09:15:20,123   File "train.py", line 4': (None, "  File"),
    "2026-02-03 09:15:20,123    INFO step": (None, "INFO"),
    "12:[rank3]:[E203 09:15:20.1 x.cpp:1] y": (3, "[E203"),
    'train.log:12:  File "train.py", line 4': (None, "  File"),
    "3: ": (None, ""),
    "> ": (None, ""),
}


@pytest.mark.parametrize("text", CASES)
def test_rank_and_rest(text: str) -> None:
    front = strip_prefixes(text)
    rank, rest = CASES[text]
    assert front.rank == rank
    assert text[front.end :].startswith(rest)


def test_numbers_of_lines_are_no_part_of_whose_line_it_is() -> None:
    labels = {strip_prefixes(f"out/train.log{at}srun: error: x").label for at in (":1:", ":2:", "-3-", ":")}
    assert labels == {"out/train.log:"}


@pytest.mark.parametrize("front", ["Feb 03 09:15:2{} n1 train[42]: ", "<13>1 2026-02-03T09:15:2{}Z n1 train 42 - - "])
def test_a_collector_tells_time_and_process(front: str) -> None:
    one, two = (strip_prefixes(front.format(second) + "step 4") for second in (0, 1))
    assert one.label == two.label and one.label.startswith("n1 train")
    assert one.stamp is not None and two.stamp is not None
    assert two.stamp.ns - one.stamp.ns == 10**9


def test_the_time_is_no_part_of_whose_line_it_is() -> None:
    one, two = (
        strip_prefixes(f"[ERROR] 2026-10-11-15:09:{s} (PID:29, Device:0, RankID:1) ERR00100 x") for s in (34, 35)
    )
    assert one.label == two.label != ""
    assert one.stamp is not None
    assert two.stamp is not None
    assert two.stamp.ns - one.stamp.ns == 10**9
