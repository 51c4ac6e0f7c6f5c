"""Logs of a job that goes on: what they tell more stands where it would if all was put together anew."""

from __future__ import annotations

from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rankscope.commands.crossing import Receiver, Sender
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.tui.model import Model, build_model
from rankscope.watching.job import Job
from rankscope.watching.pace import LATE_NS, SOON_NS
from tests.parsers.assemble.logs.job import PARENT, init
from tests.parsers.assemble.logs.prints.test_groups import ALL, MESH, seats
from tests.parsers.assemble.logs.prints.test_groups import printed as of_group
from tests.parsers.assemble.logs.test_reports import printed
from tests.parsers.dumps import Recorder
from tests.parsers.dumps import job as recorders
from tests.watching.printing import RANKS, SECOND, STEPS, Logs, Names, Watched, apart, in_one


def assert_laid_out(model: Model, anew: Model, *, exactly: bool) -> None:
    """Each operation stands behind those before it; `exactly` where it would if all were laid out."""
    items = model.items
    rows = items.row[items.row >= 0]
    assert sorted(rows.tolist()) == list(range(model.dataset.ops.height))
    assert (np.diff(items.col)[np.diff(items.lane) == 0] > 0).all()
    assert model.columns[rows].tolist() == items.col[items.row >= 0].tolist()
    there = model.dataset.ops.with_columns(col=pl.Series(model.columns)).filter(~pl.col("is_p2p"))
    assert there.group_by("group", "seq").agg(pl.col("col").n_unique())["col"].max() == 1
    if exactly:
        assert model.columns.tolist() == anew.columns.tolist() and model.width == anew.width


def assert_as_anew(logs: Logs, turns: int) -> None:
    """After each turn, in which some ranks go on, all is as if it was seen for the first time.

    Every sixth is judged, most of the others are not.
    """
    watched, shown = Watched(logs), 0
    for turn in range(turns):
        for rank in logs.chance.sample(range(RANKS), logs.chance.randint(1, RANKS)):
            logs.step(rank)
        if turn % 3 == 1:
            logs.say(0, ["step 1 loss 2.5"])
        prepared = watched.look(judge=turn % 6 == 5)
        anew, now = logs.anew(), prepared.update.dataset
        assert now.ops.equals(anew.ops)
        assert now.frontiers.equals(anew.frontiers) and now.groups.equals(anew.groups)
        if prepared.update.ranks is not None:
            shown += 1
            assert_laid_out(prepared.model, build_model(now, prepared.update.analysis), exactly=not logs.sends)
            assert prepared.update.live.state == "progressing"
    assert shown >= 3 * turns // 4


@pytest.mark.parametrize("name_of", [in_one, apart])
@pytest.mark.parametrize(("seed", "dated"), [(0, False), (1, True), (2, False)])
def test_what_logs_tell_more_stands_where_it_would_if_all_was_new(
    tmp_path: Path, name_of: Names, seed: int, dated: bool
) -> None:
    logs = Logs(tmp_path, name_of, seed, sends=seed != 2, dated=dated)
    assert_as_anew(logs, turns=12)


@pytest.mark.parametrize("name_of", [in_one, apart])
@pytest.mark.parametrize("colls", [False, True])
def test_fingerprints_that_are_more_go_on_where_their_ranks_have_ended(
    tmp_path: Path, name_of: Names, colls: bool
) -> None:
    assert_as_anew(Logs(tmp_path, name_of, prints=True, colls=colls, sends=colls), turns=12)


class Several(Logs):
    """Only fingerprints: of all ranks, of pairs and of other pairs, all of which are at the same number often."""

    def __init__(self, folder: Path) -> None:
        self.begun = False
        super().__init__(folder, in_one, colls=False)

    def step(self, rank: int, op: str = "ALLREDUCE") -> None:
        """A rank issues one in each of its groups, in one of them of another size."""
        if not self.begun:
            self.begun = True
            self.say(0, seats(ALL, *MESH))
        number = self.steps[rank]
        self.steps[rank] += 1
        own = [members for members in (*MESH, ALL) if rank in members]
        self.say(rank, [of_group(rank, (members, number, op), 8 if members == ALL else 4) for members in own])


def test_fingerprints_of_several_groups_follow_each_other_as_they_did(tmp_path: Path) -> None:
    logs = Several(tmp_path)
    watched, shown = Watched(logs), 0
    assert len(logs.anew().groups) == 5
    for turn in range(8):
        for rank in logs.chance.sample(range(RANKS), RANKS):
            logs.step(rank)
        prepared = watched.look(judge=turn % 4 == 3)
        assert prepared.update.dataset.ops.equals(logs.anew().ops)
        assert prepared.update.dataset.frontiers.equals(logs.anew().frontiers)
        shown += prepared.update.ranks is not None
    assert shown == 6
    logs.step(1)
    assert watched.look().update.ranks == frozenset({1})
    ends = watched.job.dataset.frontiers.group_by("rank").agg(pl.col("last_enqueued").unique())
    assert dict(ends.sort("rank").iter_rows()) == {rank: [STEPS + 10 + (rank == 1)] for rank in range(RANKS)}


def test_a_call_that_never_came_after_such_a_one_is_worked_out_with_all_the_rest(tmp_path: Path) -> None:
    logs = Several(tmp_path)
    watched = Watched(logs)
    logs.say(0, [of_group(0, ((0, 2), logs.steps[0], "BROADCAST"))])
    assert watched.look().update.ranks is None


def test_a_fingerprint_of_another_group_is_worked_out_with_all_the_rest(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one, prints=True, colls=False)
    watched = Watched(logs)
    logs.step(0)
    assert watched.look().update.ranks == frozenset({0})
    logs.say(1, [printed(1, 700)])
    prepared = watched.look()
    assert prepared.update.ranks is None
    assert prepared.update.dataset.ops.equals(logs.anew().ops)


@pytest.mark.parametrize("name_of", [in_one, apart])
def test_a_log_that_was_rotated_goes_on_in_the_next(tmp_path: Path, name_of: Names) -> None:
    logs = Logs(tmp_path, name_of)
    watched, shown = Watched(logs), 0
    for name in {name_of(rank) for rank in range(RANKS)}:
        logs.rotate(name)
    for turn in range(8):
        for rank in logs.chance.sample(range(RANKS), RANKS if turn < 2 else 2):
            logs.step(rank)
        prepared = watched.look(judge=turn == 1)
        anew, now = logs.anew(), prepared.update.dataset
        assert now.ops.equals(anew.ops) and now.frontiers.equals(anew.frontiers)
        shown += prepared.update.ranks is not None
    assert shown >= 5


def test_lines_that_tell_nothing_leave_what_was_shown_as_it_is(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    logs.step(1)
    before = watched.look()
    logs.say(0, ["step 1 loss 2.5"])
    after = watched.look()
    assert after.update.dataset.ops is before.update.dataset.ops
    assert watched.look(judge=True).update.dataset.ops.equals(before.update.dataset.ops)


def test_the_rate_goes_on_with_what_is_only_shown(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    for _ in range(4):
        for rank in range(RANKS):
            logs.step(rank)
        last = watched.look()
        assert last.update.ranks == frozenset(range(RANKS))
    rates = {rate.group: rate.per_s for rate in last.update.live.rates}
    assert len(rates) == 3 and all(0.9 < rate <= 1 for rate in rates.values())


def test_what_does_not_agree_is_judged_soon(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    assert watched.job.judge_at_ns(away=True) is None
    judged_ns = logs.clock
    logs.step(0)
    watched.look(after_ns=SECOND // 4)
    assert watched.job.judge_at_ns(away=True) == judged_ns + LATE_NS
    logs.step(2, op="Broadcast")
    assert watched.look(after_ns=SECOND // 4).update.ranks is not None
    assert watched.job.judge_at_ns(away=True) == judged_ns + SOON_NS
    found = watched.look(after_ns=2 * SECOND)
    assert found.update.ranks is None and found.update.analysis.status == "mismatch"


@pytest.mark.parametrize("message", ["Init START", "Destroy COMPLETE"])
def test_what_else_a_log_tells_is_judged_at_once(tmp_path: Path, message: str) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    logs.step(0)
    assert watched.look().update.ranks is not None
    logs.step(1)
    logs.say(0, [init(0, message, comm="0xcc00" if message == "Init START" else PARENT)])
    prepared = watched.look()
    assert prepared.update.ranks is None
    assert prepared.update.dataset.ops.equals(logs.anew().ops)


def test_more_than_an_eighth_is_judged(tmp_path: Path) -> None:
    logs = Logs(tmp_path, apart)
    watched = Watched(logs)
    for _ in range(STEPS // 5):
        for rank in range(RANKS):
            logs.step(rank)
    assert watched.look().update.ranks is None


def test_dumps_beside_logs_whose_operations_they_have(tmp_path: Path) -> None:
    """What a log tells more of groups that dumps hold is held against these when all is judged."""
    logs = Logs(tmp_path, apart, sends=False)
    own = recorders(RANKS)
    for _ in range(STEPS):
        for recorder in own:
            recorder.collective("0")
    for recorder in own:
        _dump(logs, recorder)
    watched = WatchedBeside(logs)
    height = watched.look(judge=True).update.dataset.ops.filter(pl.col("source") == "nccl-log").height
    logs.step(0)
    shown = watched.look().update.dataset
    assert shown.ops.filter(pl.col("source") == "nccl-log").height >= height
    assert watched.look(judge=True).update.dataset.ops.drop("stack_id").equals(logs.anew().ops.drop("stack_id"))


class WatchedBeside(Watched):
    """The same where it does not matter whether the job goes on."""

    def __init__(self, logs: Logs) -> None:
        self.logs, self.job, self.number = logs, Job("dumps", None, None, None), 0
        here, there = Pipe()
        self.sender, self.receiver = Sender(here), Receiver(there)
        self.prepared = None


def _dump(logs: Logs, recorder: Recorder) -> None:
    name, data = f"nccl_trace_rank_{recorder.rank}", recorder.pickle()
    logs.dumps[name] = Source(name, "flight-recorder", len(data), logs.clock, None, decode(data))


@pytest.mark.parametrize(("name_of", "named"), [(apart, True), (in_one, False)])
def test_who_has_not_come_when_the_logs_fall_silent(tmp_path: Path, name_of: Names, named: bool) -> None:
    """In a log of all, lines of one may still be in the buffer of its process."""
    logs = Logs(tmp_path, name_of, sends=False)
    watched = Watched(logs)
    for rank in (0, 1, 3):
        logs.step(rank)
    assert watched.look().update.analysis.status == "progressing"
    silent = watched.look(after_ns=100 * SECOND, judge=True, written=False).update
    assert silent.live.state == "silent" and silent.analysis.status == "unknown"
    assert not silent.analysis.culprits and not silent.analysis.is_critical
    if not named:
        assert silent.analysis.verdict == "4 ranks: nothing was written for 100 s"
        return
    finding = silent.analysis.findings[0]
    assert (finding.kind, finding.severity, finding.candidates) == ("missing-rank", "warning", (2,))
    assert silent.analysis.verdict.startswith("nothing was written for 100 s; if the processes still run, rank 2 never")
    again = watched.look(after_ns=100 * SECOND, judge=True, written=False).update
    assert again.analysis.findings == silent.analysis.findings and not again.analysis.is_critical
    for rank in (2, 0, 1, 2, 3):
        logs.step(rank)
    going = watched.look(judge=True).update
    assert going.live.state == "progressing" and not going.analysis.findings
    assert "scheduled" not in going.dataset.ops["state"].to_list()
