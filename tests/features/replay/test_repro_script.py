"""The script that replays a job: plain to read, safe from what files say, and it stops where the job stopped."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.capture.replay import GROUPS, expected_place
from rankscope.capture.replay_record import Groups, Recording, ScheduledCall
from rankscope.cli import rankscope
from rankscope.features.replay.repro_script import repro_script
from rankscope.features.replay.schedule import schedule_of
from rankscope.features.replay.schedule_fit import fit
from rankscope.report.words import summary
from rankscope.schema import Dataset
from tests.tui.jobs import hang

SAMPLES = Path(__file__).parents[3] / "sample_data"


def script_of(dataset: Dataset) -> str:
    analysis = analyse(dataset)
    schedule = schedule_of(dataset)
    return repro_script(dataset, analysis, fit(schedule, analysis), schedule)


def test_a_reader_sees_where_ranks_part() -> None:
    text = script_of(load([SAMPLES / "two_groups"]))
    assert text.startswith("# rankscope repro: rank 3 never issued all_reduce #10")
    schedule = text.split('SCHEDULE = """\n')[1].split('"""')[0]
    of_rank = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in schedule.split("ranks ")[1:]}
    *_, last, note = of_rank["2"].splitlines()
    assert "#10" in last
    assert last.endswith("waits")
    assert note == "    # waits here: rank 3 never issues this"
    assert (
        of_rank["3"].splitlines()[-1]
        == "    # ends here, without g2 #10 that rank 2 waits in, g4 #10 that rank 1 waits in"
    )


def test_ranks_with_equal_operations_share_their_lines() -> None:
    text = script_of(hang()[0])
    assert "\nranks 4 5 7\n" in text
    schedule = text.split('SCHEDULE = """\n')[1].split('"""')[0]
    assert len(schedule) < 3_000
    assert len(text) < 30_000


def test_operations_that_are_issued_together_wait_at_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("g0 0>1:0 send 4 Float", "+ g0 1>0:0 recv 4 Float waits", "g0 #3 barrier 4 Float")
    calls = [ScheduledCall(text) for text in lines]
    monkeypatch.setitem(GROUPS, "g0", ("pair", [0, 1]))
    assert expected_place(calls) == ["pair", "send", "0>1:0"]
    assert expected_place(calls[2:]) is None


def test_names_from_files_stay_texts() -> None:
    dataset = load([SAMPLES / "wrong_collective"])
    hostile = 'x"""\nimport os; os.abort()\n"""\x1b[31m%s{0}'
    renamed = dataset.groups.with_columns(description=pl.lit(hostile))
    names = ('all_reduce"""+evil()+"""', 'broadcast"""+evil()#')
    of = pl.when(pl.col("op") == "broadcast").then(pl.lit(names[1])).otherwise(pl.lit(names[0]))
    ops = dataset.ops.with_columns(op=of.cast(dataset.ops.schema["op"]))
    text = script_of(replace(dataset, groups=renamed, ops=ops))
    assert "evil" in "".join(line for line in text.splitlines() if line.startswith("    # "))
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "evil" not in used
    assert not any(isinstance(node, ast.Attribute) and node.attr == "abort" for node in ast.walk(tree))
    assert "\x1b" not in text


def test_ranks_that_are_not_in_a_replay_are_not_missing(tmp_path: Path) -> None:
    groups: Groups = {"g0": ("tp", [2, 3])}
    calls = [ScheduledCall(f"g0 #{number} all_reduce 4 Float") for number in (1, 2)]
    for rank in (2, 3):
        record = Recording(rank, calls, groups, [2, 3], starts=True)
        for call in calls[: 4 - rank]:
            record.issued(call)
        record.write(tmp_path)
    dataset = load([tmp_path])
    assert (dataset.every_rank, dataset.missing_ranks) == ((2, 3), ())
    assert "ranks 0" not in "".join(one.title for one in analyse(dataset).findings)
    assert summary(dataset).startswith("2 ranks, 1 group, 2 dumps")
    # what one dump alone says hides nobody
    path = tmp_path / "fr_trace_rank_3"
    path.write_text(path.read_text().replace('"replayed_ranks": [2, 3], ', ""))
    assert load([tmp_path]).missing_ranks == (0, 1)


@pytest.mark.torch
def test_a_replay_over_gloo_stops_where_the_job_stopped_with_its_verdict(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    command = [sys.executable, "-m", "rankscope", "repro", str(SAMPLES / "two_groups"), "-o", str(script), "--run"]
    # grace is the wait for a process that a busy machine does not run, not a measure of speed
    done = subprocess.run(command, env={**os.environ, "GRACE": "5"}, capture_output=True, text=True, check=False)
    *places, verdict = done.stdout.splitlines()
    assert (done.returncode, places[-1]) == (0, "4 of 4 ranks stop as expected"), done
    assert "rank 3      stops at the end" in done.stdout
    assert verdict.startswith("the verdict on the replay is that of the job: rank 3 never issued all_reduce #10")
    assert load([tmp_path / "repro_run" / "dumps"]).seen_ranks == (0, 1, 2, 3)


def test_the_command_writes_the_script_and_never_over_another(tmp_path: Path) -> None:
    out = tmp_path / "repro.py"
    run = CliRunner().invoke(rankscope, ["repro", str(SAMPLES / "early_return"), "-o", str(out), "--minimize"])
    assert run.exit_code == 0
    assert "2 ranks of 4" in run.output
    assert "4 of 4 ranks stop as in the dumps" in run.output
    again = CliRunner().invoke(rankscope, ["repro", str(SAMPLES / "early_return"), "-o", str(out)])
    assert again.exit_code != 0
    assert "already exists" in again.output


def test_what_holds_no_operation_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text("[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: no\n")
    run = CliRunner().invoke(rankscope, ["repro", str(tmp_path), "-o", "-"])
    assert run.exit_code != 0
    assert "nothing to replay" in run.output
