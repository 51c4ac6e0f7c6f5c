"""What few of many ranks write is shown at once, and judged soon; whatever may change the answer is judged at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis.live import Gate, Live
from rankscope.analysis.model import Analysis, Divergence, Finding, Step, Wait
from rankscope.analysis.progress_history import WRITING_NS, Memory
from rankscope.watching.job import Job
from rankscope.watching.pace import LATE_NS, MORE_NS, PART, RARELY, SELDOM, SOON_NS, Pace
from rankscope.watching.update import Update
from rankscope.watching.watcher import SHARE
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import Running, target
from tests.watching.test_chatter import LOSSES
from tests.watching.test_logs import CRASH, text
from tests.watching.writer import Writer

RANKS = 2 * PART
FREEZE_S = 3600.0
SOON_S, LATE_S = SOON_NS / 1e9, LATE_NS / 1e9
DOUBT = Finding("not-frozen", "info", "not seen to stand still", "", row=7)
STEP = Step(5, Wait("0", 5, "all_reduce", 70), 4)
MOVES = Analysis(
    "goes on", "progressing", (replace(DOUBT, chain=(STEP,)),), waits={3: (replace(STEP, rank=3),), 5: (STEP,)}
)
PROGRESSING = Live("progressing", "operations go on")


def judged(analysis: Analysis = MOVES, live: Live = PROGRESSING) -> Pace:
    return Pace((analysis, live)).judged(100, 7)


def test_of_few_ranks_what_was_said_is_said_again_without_what_they_have_left_behind() -> None:
    found = judged().glance(frozenset({3}), RANKS, 101)
    assert found is not None
    after, glance = found
    assert glance.ranks == frozenset({3}) and glance.live is PROGRESSING
    assert set(glance.analysis.waits) == {5}
    (finding,), (step,) = glance.analysis.findings, glance.analysis.waits[5]
    # the operations of a table are others now
    assert finding.row is None and finding.chain[0].waits_in.row is None and step.waits_in == Wait("0", 5, "all_reduce")
    assert after.judge_at_ns == 100 + SOON_NS and judged().judge_at_ns is None


def test_doubts_about_a_rank_that_has_gone_on_are_over() -> None:
    doubts = (replace(DOUBT, candidates=(3,)), replace(DOUBT, candidates=(6,), chain=(replace(STEP, for_rank=7),)))
    waits: dict[int, tuple[Step, ...]] = {4: (replace(STEP, rank=4, for_rank=3),), 5: (replace(STEP, for_rank=7),)}
    apart = (
        Divergence(0, 5, "all_reduce", (5,), (3,), (), (), False, 1),
        Divergence(1, 5, "", (6,), (7,), (), (), False, 1),
    )
    found = judged(replace(MOVES, findings=doubts, waits=waits, divergences=apart)).glance(frozenset({3}), RANKS, 101)
    assert found is not None
    told = found[1].analysis
    assert [finding.candidates for finding in told.findings] == [(6,)]
    assert set(told.waits) == {5} and told.divergences == apart[1:]


def test_an_eighth_of_the_ranks_is_judged_at_once() -> None:
    assert judged().glance(frozenset({1, 2}), RANKS, 101) is not None
    assert judged().glance(frozenset({1, 2, 3}), RANKS, 101) is None
    assert judged().glance(frozenset({1}), PART - 1, 101) is None
    found = judged().glance(frozenset({1, 2}), RANKS, 101)
    assert found is not None
    # those that are not judged yet count
    assert found[0].glance(frozenset({2}), RANKS, 102) is not None
    assert found[0].glance(frozenset({3}), RANKS, 102) is None


def test_after_a_while_all_is_judged() -> None:
    assert Pace().glance(frozenset({1}), RANKS, 1) is None
    found = judged().glance(frozenset({1}), RANKS, 99 + SOON_NS)
    assert found is not None
    assert found[0].glance(frozenset({1}), RANKS, 99 + SOON_NS) is not None
    assert found[0].glance(frozenset({1}), RANKS, 100 + SOON_NS) is None


def test_what_comes_after_a_rest_is_shown_before_all_is_judged() -> None:
    found = judged().glance(frozenset({1}), RANKS, 100 + 9 * SOON_NS)
    assert found is not None and found[0].judge_at_ns == 100 + SOON_NS


def test_what_takes_long_to_judge_is_judged_more_seldom() -> None:
    slow = judged().judged(100, SOON_NS)
    found = slow.glance(frozenset({1}), RANKS, 101)
    assert found is not None and found[0].judge_at_ns == 100 + SELDOM * SOON_NS


def test_what_agrees_with_the_rest_is_judged_late_or_with_more_of_the_ranks() -> None:
    found = judged().glance(frozenset({1}), RANKS, 101, agrees=True)
    assert found is not None and found[0].judge_at_ns == 100 + LATE_NS
    assert found[0].glance(frozenset({2}), RANKS, 99 + LATE_NS, agrees=True) is not None
    assert found[0].glance(frozenset({2}), RANKS, 100 + LATE_NS, agrees=True) is None
    assert found[0].glance(frozenset({2, 3}), RANKS, 102, agrees=True) is None
    slow = judged().judged(100, LATE_NS).glance(frozenset({1}), RANKS, 101, agrees=True)
    assert slow is not None and slow[0].judge_at_ns == 100 + RARELY * LATE_NS


def test_what_logs_tell_is_judged_late_or_when_it_is_an_eighth_even_if_dumps_have_all_of_it() -> None:
    assert judged().glance_at_rows(PART, PART * PART - 1, [1], 101, agrees=True) is None
    found = judged().glance_at_rows(PART, PART * PART, [1], 101, agrees=True)
    assert found is not None and found[1].ranks == frozenset({1}) and found[0].judge_at_ns == 100 + LATE_NS
    assert found[0].glance_at_rows(PART, PART * PART, [1], 100 + LATE_NS, agrees=True) is None
    nothing = judged().glance_at_rows(0, PART, [], 101, agrees=True)
    assert nothing is not None and nothing[0].judge_at_ns == 100 + LATE_NS


def test_once_something_does_not_agree_all_is_judged_soon() -> None:
    found = judged().glance(frozenset({1}), RANKS, 101, agrees=True)
    assert found is not None
    doubtful = found[0].glance(frozenset({2}), RANKS, 102, agrees=False)
    assert doubtful is not None and doubtful[0].judge_at_ns == 100 + SOON_NS
    after = doubtful[0].glance(frozenset({1}), RANKS, 103, agrees=True)
    assert after is not None and after[0].judge_at_ns == 100 + SOON_NS
    assert found[0].glance(frozenset({2}), RANKS, 100 + SOON_NS, agrees=False) is None


def test_traces_that_come_are_judged_soon_when_no_more_come_or_when_they_are_an_eighth() -> None:
    assert not Pace().may_show_traces(1, PART, 101)
    assert judged().may_show_traces(1, PART, 101) and not judged().may_show_traces(2, 2 * PART - 1, 101)
    came = judged().with_traces(MOVES, 101)
    assert came.judge_at_ns == 100 + SOON_NS and came.may_show_traces(1, PART, 99 + SOON_NS)
    assert not came.may_show_traces(1, PART, 100 + SOON_NS)
    late = came.with_traces(MOVES, 99 + SOON_NS)
    assert late.judge_at_ns == 99 + SOON_NS + MORE_NS and late.may_show_traces(1, PART, 100 + SOON_NS)
    assert judged(live=Live("frozen", "")).may_show_traces(1, PART, 101)
    # they do not come for ever
    for at_ns in range(101, LATE_NS + 100, MORE_NS - 1):
        late = late.with_traces(MOVES, at_ns)
    assert late.judge_at_ns == 100 + LATE_NS
    # what does not agree does not wait for more of them
    doubtful = judged().glance(frozenset({1}), RANKS, 101, agrees=False)
    assert doubtful is not None and doubtful[0].with_traces(MOVES, 99 + SOON_NS).judge_at_ns == 100 + SOON_NS


@pytest.mark.parametrize("state", ["waiting", "still", "frozen", "silent", "idle"])
def test_of_a_job_that_is_not_known_to_go_on_everything_is_judged(state: str) -> None:
    assert judged(live=Live(state, "")).glance(frozenset({1}), RANKS, 101) is None  # type: ignore[arg-type]


def test_where_somebody_is_accused_everything_is_judged() -> None:
    accused = replace(MOVES, findings=(replace(DOUBT, root_cause=True),))
    differs = replace(MOVES, divergences=(Divergence(0, 5, "all_reduce", (1,), (), (), (2,), False, 1),))
    for analysis in (accused, differs, replace(MOVES, status="slow"), replace(MOVES, status="mismatch")):
        assert judged(analysis).glance(frozenset({1}), RANKS, 101) is None


def test_what_is_only_shown_has_come() -> None:
    gate, live = Gate(None, Memory(fresh_at_ns=100, gaps_ns=(7,))).came(PROGRESSING, 105)
    assert gate.memory.gaps_ns == (7, 5) and gate.memory.fresh_at_ns == gate.memory.news_at_ns == 105
    assert live == replace(PROGRESSING, news_at_ns=105)
    assert Gate().came(PROGRESSING, 105)[0].memory == Memory()


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


class Going:
    """A job of many ranks that was seen to go on; time passes for it when a test says so."""

    def __init__(self, writer: Writer, following: Following, running: Running, dumps: Path, clock: HandClock) -> None:
        self._writer, self.following, self.running, self._dumps, self.clock = writer, following, running, dumps, clock
        for count in (5, 10):
            running.step(5)
            self.write(*range(RANKS))
            self.judge()
            self.last(count * RANKS, judged=True)
        # until then more dumps may be coming in
        self.turn(WRITING_NS / 1e9)
        assert following.updates[-1].live.state == "progressing"

    def last(self, height: int, *, judged: bool) -> Update:
        """The newest update, which has so many operations."""
        last = self.following.updates[-1]
        assert (last.dataset.ops.height, last.ranks is None) == (height, judged)
        return last

    def write(self, *ranks: int) -> Sequence[Update]:
        """These write what they know, of which the clock takes no time; the updates that come of it."""
        count = len(self.following.updates)
        for rank in ranks:
            self._writer.do("replace", self.running.draft(rank), target(self._dumps, rank))
        self.following.seen(*(target(self._dumps, rank) for rank in ranks))
        return self.following.updates[count:]

    def judge(self) -> None:
        """Has it judged now, unless it was."""
        if self.following.updates[-1].ranks is not None:
            self.turn(LATE_S)

    def differ(self) -> None:
        """All issue one more, which is another one of rank 3."""
        self.running.come_to_now()
        for recorder in self.running.ranks:
            recorder.collective(op="broadcast" if recorder.rank == 3 else "all_reduce", state="started")

    def turn(self, seconds: float) -> Sequence[Update]:
        """The updates that come of nothing but time."""
        return self.following.turn(seconds)


@pytest.fixture
def going(tmp_path: Path, dumps: Path) -> Iterator[Going]:
    clock = HandClock()
    running = Running(tmp_path / "drafts", ranks=RANKS, clock=clock)
    with Writer() as writer, Following(dumps, freeze_after_s=FREEZE_S, clock=clock) as following:
        yield Going(writer, following, running, dumps, clock)


def test_one_dump_of_many_is_shown_and_not_judged(going: Going) -> None:
    last = going.following.updates[-1]
    for count in (1, 2):
        before = going.following.updates[-1].live
        going.turn(0.1)
        going.running.step()
        going.write(3)
        shown = going.last(10 * RANKS + count, judged=False)
        assert shown.ranks == frozenset({3}) and shown.changed == 1 and not shown.alarm
        assert shown.analysis.verdict == last.analysis.verdict
        news_at_ns = shown.live.news_at_ns
        assert before.news_at_ns is not None and news_at_ns is not None and news_at_ns > before.news_at_ns
        now = replace(before, since_ns=shown.live.since_ns, rates=shown.live.rates, news_at_ns=news_at_ns)
        assert shown.live == now
        assert (shown.live.since_ns or 0) > (before.since_ns or 0)


def test_what_was_only_shown_is_judged_though_nothing_else_comes(going: Going) -> None:
    last = going.following.updates[-1]
    going.running.step()
    going.write(3)
    going.last(10 * RANKS + 1, judged=False)
    assert not going.turn(LATE_S - 1)
    (later,) = going.turn(1.0)
    assert later is going.last(10 * RANKS + 1, judged=True)
    assert later.changed == 0 and later.live is not last.live


def test_what_a_rank_does_otherwise_is_found_soon(going: Going) -> None:
    going.differ()
    going.write(3, 4)
    going.last(10 * RANKS + 2, judged=False)
    found = going.turn(SOON_S)[-1]
    # the others have not written what they issued: of two that differ either may be the one
    assert found.analysis.status == "mismatch"
    assert found.ranks is None and found.alarm and found.analysis.culprits == (3, 4)


def test_what_was_only_shown_is_judged_though_nothing_can_be_seen_any_more(going: Going, dumps: Path) -> None:
    going.differ()
    going.write(3, 4)
    going.last(10 * RANKS + 2, judged=False)
    dumps.rename(dumps.parent / "elsewhere")
    going.following.until_read(lambda r: r.away)
    assert going.following.updates[-1].ranks is not None
    going.turn(SOON_S)
    last = going.last(10 * RANKS + 2, judged=True)
    assert last.analysis.status == "mismatch" and last.alarm and last.reading.away


def test_what_was_only_shown_is_judged_when_following_ends(going: Going) -> None:
    going.running.step()
    going.write(*range(RANKS))
    going.judge()
    going.last(11 * RANKS, judged=True)
    going.differ()
    going.write(3, 4)
    assert going.last(11 * RANKS + 2, judged=False).analysis.status == "progressing"
    going.following.watcher.stop()
    assert going.following.until(lambda u: u.ranks is None).analysis.culprits == (3, 4)


def test_what_most_ranks_write_is_judged_at_once(going: Going) -> None:
    last = going.following.updates[-1].number
    going.running.step(3)
    judged = [update for update in going.write(*range(RANKS)) if update.ranks is None]
    assert judged and judged[-1].number > last and judged[-1].changed


def slowly(going: Going, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Has judging take so long."""
    judge = Job.judge

    def slow(job: Job, at_ns: int, *, unread: bool) -> tuple[Analysis, Live]:
        going.clock.turn(seconds)
        return judge(job, at_ns, unread=unread)

    monkeypatch.setattr(Job, "judge", slow)


def test_dumps_are_shown_at_once_however_long_judging_takes(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(going, monkeypatch, 0.8)
    for count in (1, 2):
        if count > 1:
            going.turn(RARELY * 0.8)
            going.last(10 * RANKS + 1, judged=True)
        going.running.step()
        going.write(3)
        assert going.last(10 * RANKS + count, judged=False).ranks == frozenset({3})


def test_what_has_to_be_judged_at_once_is_not_judged_without_rest(
    going: Going, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = 0.3
    slowly(going, monkeypatch, took)
    for turn in range(3):
        going.running.step()
        came = going.write(3, 4, 5)
        if not turn:
            assert came and came[-1].ranks is None, "it had rested"
            continue
        assert not came and not going.turn(SHARE * took - 0.01)
        (judged,) = going.turn(0.02)
        assert judged.changed == 3 and judged.ranks is None


def test_beside_logs_that_go_on_dumps_are_shown_all_the_same(going: Going, tmp_path: Path, dumps: Path) -> None:
    log = text(tmp_path / "job.log", LOSSES).rename(dumps / "job.log")
    going.following.seen(log)
    going.judge()
    assert going.following.updates[-1].dataset.files.height == 1 + RANKS
    for count in (1, 2, 3):
        with log.open("a") as file:
            file.write("\n".join(LOSSES) + "\n")
        going.following.seen(log)
        going.running.step()
        going.write(3)
        shown = going.last(10 * RANKS + count, judged=False)
        assert shown.ranks is not None and shown.ranks <= frozenset({3})
        going.judge()
        later = going.last(10 * RANKS + count, judged=True)
        assert later.live.state == "progressing" and later.dataset.ops.equals(shown.dataset.ops)


def test_what_a_log_says_beside_dumps_is_judged_at_once(going: Going, tmp_path: Path, dumps: Path) -> None:
    log = text(tmp_path / "job.log", LOSSES).rename(dumps / "job.log")
    going.following.seen(log)
    going.running.step()
    going.write(3)
    with log.open("a") as file:
        file.write("\n".join(CRASH) + "\n")
    found = going.following.seen(log)[-1]
    assert found.analysis.culprits == (1,)
    assert found.ranks is None and found.alarm
