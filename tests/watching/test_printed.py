"""Logs of a job that goes on: what grew says what it would say if it was seen for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.assemble.sources import SourceFile
from rankscope.watching.watched_job import WatchedJob
from tests.features.logs.rows.test_fingerprint_groups import ALL, MESH, seats
from tests.features.logs.rows.test_fingerprint_groups import printed as of_group
from tests.features.traces.read.documents import about, all_reduce, decoded, document, launch
from tests.parsers.dumps import START_NS
from tests.watching.printing import RANKS, SECOND, Logs, Names, Watched, apart, in_one


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


def logs_of(folder: Path, kind: str, name_of: Names) -> Logs:
    """Logs of one kind."""
    if kind == "several groups":
        return Several(folder)
    printed = "prints" in kind
    return Logs(folder, name_of, prints=printed, colls=kind != "prints", sends=not printed, dated=kind == "dated")


@pytest.mark.parametrize("name_of", [in_one, apart])
@pytest.mark.parametrize("kind", ["operations", "dated", "prints", "prints and operations", "several groups"])
def test_a_log_that_grows_says_what_the_whole_log_says(tmp_path: Path, kind: str, name_of: Names) -> None:
    logs = logs_of(tmp_path, kind, name_of)
    watched = Watched(logs)
    for turn in range(4):
        for rank in logs.chance.sample(range(RANKS), logs.chance.randint(1, RANKS)):
            logs.step(rank)
        if turn == 1:
            logs.say(0, ["step 1 loss 2.5"])
        if turn == 2:
            for name in {path.name for path in tmp_path.glob("*.log")}:
                logs.rotate(name)
        now, anew = watched.look().dataset, logs.anew()
        assert now.ops.equals(anew.ops) and now.frontiers.equals(anew.frontiers) and now.groups.equals(anew.groups)


def test_what_does_not_agree_is_found(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    logs.step(0)
    assert watched.look().analysis.status == "progressing"
    logs.step(2, op="Broadcast")
    assert watched.look().analysis.status == "mismatch"


def test_the_rate_is_that_of_the_steps(tmp_path: Path) -> None:
    logs = Logs(tmp_path, in_one)
    watched = Watched(logs)
    for _ in range(4):
        for rank in range(RANKS):
            logs.step(rank)
        last = watched.look()
    rates = {rate.group: rate.per_s for rate in last.live.rates}
    assert len(rates) == 3 and all(0.9 < rate <= 1 for rate in rates.values())


@pytest.mark.parametrize(("name_of", "named"), [(apart, True), (in_one, False)])
def test_who_has_not_come_when_the_logs_fall_silent(tmp_path: Path, name_of: Names, named: bool) -> None:
    """In a log of all, lines of one may still be in the buffer of its process."""
    logs = Logs(tmp_path, name_of, sends=False)
    watched = Watched(logs)
    for rank in (0, 1, 3):
        logs.step(rank)
    assert watched.look().analysis.status == "progressing"
    silent = watched.look(after_ns=100 * SECOND, written=False)
    assert silent.live.state == "silent" and silent.analysis.status == "unknown"
    assert not silent.analysis.culprits and not silent.analysis.is_critical
    if not named:
        assert silent.analysis.verdict == "4 ranks: nothing was written for 1 min 40 s"
        return
    finding = silent.analysis.findings[0]
    assert (finding.kind, finding.severity, finding.candidates) == ("missing-rank", "warning", (2,))
    assert silent.analysis.verdict.startswith(
        "nothing was written for 1 min 40 s; if the processes still run, rank 2 never"
    )
    again = watched.look(after_ns=100 * SECOND, written=False)
    assert again.analysis.findings == silent.analysis.findings and not again.analysis.is_critical
    for rank in (2, 0, 1, 2, 3):
        logs.step(rank)
    going = watched.look()
    assert going.live.state == "progressing" and not going.analysis.findings
    assert "scheduled" not in going.dataset.ops["state"].to_list()


def _trace(number: int) -> SourceFile:
    """A trace of the only rank, some time after the one before it."""
    at = 100_000 * number
    content = decoded(document([launch(at, 2 * number), *all_reduce(at, 2 * number)], about(0)))
    return SourceFile(f"rank0_{number}.pt.trace.json", "torch-profiler", 1, START_NS, None, content)


def test_that_no_more_traces_come_alarms_nobody() -> None:
    job, traces = WatchedJob("dumps", None, None, None), list[SourceFile]()
    for number in range(1, 5):
        traces.append(_trace(number))
        assert job.take(traces, number * SECOND)
        job.judge(number * SECOND, unread=False)
    analysis, live = job.judge(3600 * SECOND, unread=False)
    assert live.state == "silent" and live.came and analysis.status == "unknown"
    assert not job.alarm(analysis, live)
