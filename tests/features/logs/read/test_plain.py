"""Lines that are taken many at once say what they say one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.features.logs.read import bulk_lines, log_decoder
from rankscope.features.logs.read.model import LogContent
from tests.features.logs.read.lines import coll, info, life, log, read

PIECES = (
    "loss 0.31", "", "epoch 1:  3%|#  | 3/100\repoch 1:  4%|#  | 4/100", "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "train.py", line 3, in <module>', "[rank1]:     main()", "[rank1]: ValueError: bad index 17",
    info("Channel 00/24 : 0 1 2 3"), info("Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM", pid=4101),
    f"3: {info('Trees [0] 1/-1/-1->0->-1', pid=4103)}", f"[2026-04-22 21:34:20] {info('Connected all rings')}",
    info("Channel 00/0 : 0[0]") + info("Channel 01/0 : 1[1]", pid=4101), info("Channel 00/0 \x1b[0m: 0[0]"),
    info("Channel 00/0 : 0[0] [rank1]: ValueError: bad index 17"), info("Channel is a word"), "Channel 00/0 of nobody",
    info(life("Init START", more="")), info(life()), f"[2026-04-22 21:34:21.5] {info(coll())}",
    info("NET/IB : no device"), f"3: {info(life('Destroy COMPLETE'), pid=4103)}",
    info("NCCL_DEBUG set by environment to INFO"), info("init.cc:12 -> 3"),
    "node-1:4100:4100 [0] init.cc:3 NCCL WARN text", '{"log": "[rank1]: ValueError: bad index 17\\n"}',
    "Job summary", "[rank0]: RuntimeError: CUDA out of memory.",
    f"{info('comm 0x1 rank 0')} [repeated 5x across cluster]",
    info("Connected to proxy localRank 3 -> connection 0x7fa0c0ffee", tid=7),
    info("socketProgressOpt: abort called", tid=7), info("misc/socket.cc:64 -> 3", tid=7),
    info("init.cc:367 Cuda Alloc Size 4096 pointer 0x7f00", pid=4101) + "\r",
    info("GID 1 (0x80FE/52A9160003723614) fifoRkey=0xff"), info("Tree: 1 Bytes -> Algo 1 proto 2 time 3.0"),
    info("16 coll channels").replace("INFO ", "INFO\t"), f"[2026-04-22 21:34:20] {info('a')} b",
    info("Rank "), info(""),
    "x" * 20_000 + info("a"), info("Channel 00 : " + "0 " * 9000),
)  # fmt: skip


def told(lines: list[str], apart: bool) -> LogContent:
    """What a log says, with lines taken together where they can be, or each by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_decoder, "FEWEST_LINES", 1 << 30 if apart else 0)
        patch.setattr(log_decoder, "SILENT_LINES", 3)
        if apart:
            patch.setattr(bulk_lines, "bulk_rows", lambda *_: None)
            patch.setattr(log_decoder.LogDecoder, "_known_front", lambda *_: False)
        return log(*lines)


def owned(content: LogContent, table: str) -> list[tuple[object, ...]]:
    """Rows of a table with the number of their process in the place of its index, which tells who came first."""
    pids = [process.pid for process in content.processes]
    return [(pids[row.process] if row.process >= 0 else None, *row[1:]) for row in getattr(content, table)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60))
# the search for lines above the traceback comes to the first line when the exception in JSON is already read
@example(
    [
        "[rank1]:     main()",
        '{"log": "[rank1]: ValueError: bad index 17\\n"}',
        "[rank1]: Traceback (most recent call last):",
    ]
)
def test_lines_say_the_same_together_and_apart(lines: list[str]) -> None:
    together, apart = told(lines, False), told(lines, True)
    assert together.events == apart.events
    # of lines that are taken together the first may have come earlier
    one, other = ([p._replace(offset=0) for p in content.processes] for content in (together, apart))
    assert sorted(one) == sorted(other)
    for table in ("warnings", "comms", "settings"):
        assert owned(together, table) == owned(apart, table)
    counts = ("channels", "other", "tuning", "INFO", "WARN", "records", "lines", "life", "operations", "events", "torn")
    assert [together.counts.get(n, 0) for n in counts] == [apart.counts.get(n, 0) for n in counts]


def test_lines_of_channels_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bulk_lines.bulk_rows
    taken: list[int] = []

    def watched(*args: object) -> bulk_lines.BulkLines | None:
        found = real(*args)  # type: ignore[arg-type]
        taken.extend([] if found is None else found.line.tolist())
        return found

    monkeypatch.setattr(bulk_lines, "bulk_rows", watched)
    content = log(PIECES[7], PIECES[8], "loss 0.3", PIECES[9], PIECES[10], PIECES[11], PIECES[12])
    assert taken == [0, 1, 3, 4]
    assert content.counts["channels"] == 7
    assert {(p.pid, p.label) for p in content.processes} == {(4100, ""), (4101, ""), (4103, "3: ")}


def test_a_log_of_one_line_without_end_is_read() -> None:
    assert read(info("Channel 00/24 : 0 1")).counts["channels"] == 1
