"""Damaged and hostile text: no exception, nothing that a report could not hold, and no line that takes long."""

from __future__ import annotations

import random
import time

import orjson
import pytest

from rankscope.features.logs.read.c10d.recogniser import Recogniser
from rankscope.features.logs.read.log_record import Record, event_from
from tests.features.logs.read.c10d.lines import everything, records
from tests.features.logs.read.c10d.test_desync import REPORT
from tests.features.logs.read.c10d.test_endings import CASES
from tests.features.logs.read.c10d.test_known_errors import SAID
from tests.features.logs.read.c10d.test_torchrun import SUMMARY
from tests.features.logs.read.c10d.test_tracebacks import CHAIN
from tests.features.logs.read.c10d.test_watchdog import TIMEOUTS

LINES = "\n".join([REPORT, SUMMARY, CHAIN, *CASES, *SAID.values(), *(case[0] for case in TIMEOUTS.values())]).split(
    "\n"
)
SLOW = {
    "parentheses": "Watchdog caught collective operation timeout: WorkNCCL(" + "(ms)" * 4000,
    "groups": "[PG ID 1 PG GUID " * 2000 + " last enqueued work: 1, last completed work: 2",
    "shapes": "Running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=A, TensorShape=[" + "1, " * 9000,
    "settings": "ProcessGroupNCCL environments: " + "A (b): " * 4000,
    "aspects": "Detected mismatch between collectives on ranks. Rank 1 is running collective: x Collectives differ in "
    "the following aspects:" + "Op type: " * 4000,
    "names": "a.b." * 9000 + "Error x",
    "tasks": "srun: error: " + "a" * 255 + ": tasks " + "0-999999," * 220 + "1: x",
    "kills": "Killed process " * 4000,
    "barrier": "Ranks " + "1, " * 9000 + " failed to pass monitoredBarrier in",
}


def damaged(random_: random.Random) -> str:
    """A line with pieces of others in it."""
    line = random_.choice(LINES)
    for _ in range(random_.randint(0, 3)):
        at, other = random_.randint(0, len(line)), random_.choice(LINES)
        cut = random_.randint(0, len(other))
        line = line[:at] + random_.choice([other[cut:], other[:cut], "\x1b[2J", "٣", "\ufffd", "9" * 30])
    return line


@pytest.mark.parametrize("seed", range(20))
def test_damage_raises_nothing_and_stays_json(seed: int) -> None:
    random_ = random.Random(seed)
    text = [(random_.choice([None, 0, 1]), random_.choice(["", "3: "]), damaged(random_)) for _ in range(300)]
    recogniser = Recogniser()
    made = [
        Record(i * 9, i, said, rank, label, None, random_.random() < 0.2) for i, (rank, label, said) in enumerate(text)
    ]
    found = recogniser.feed_all(made) + recogniser.finish()
    assert found
    assert [
        event_from(row) for row in orjson.loads(orjson.dumps([list(event) for event in found], default=list))
    ] == found
    assert [event.text for event in found if not event.text.isprintable()] == []


@pytest.mark.parametrize("name", SLOW)
def test_no_line_takes_long(name: str) -> None:
    open_traceback = 'Traceback (most recent call last):\n  File "a", line 1, in x\n'
    before = time.process_time()
    everything(open_traceback + f"{SLOW[name]}\n" * 10)
    assert time.process_time() - before < 2


def test_what_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback begins for each of many ranks, and none ends."""
    monkeypatch.setattr("rankscope.features.logs.read.c10d.recogniser.OPEN_LIMIT", 100)
    recogniser = Recogniser()
    ended = recogniser.feed_all([Record(i, i, "Traceback (most recent call last):", i) for i in range(150)])
    assert (len(ended), len(recogniser.finish())) == (50, 100)


def test_the_fuzz_starts_from_lines_that_are_understood() -> None:
    assert len({event.kind for event in everything("\n".join(LINES))}) >= 10
    assert len(records("\n".join(LINES))) == len(LINES)
