"""One change of a schedule: the one that repairs it lets all ranks come to the end, others do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.cli import rankscope
from rankscope.features.replay.edits import Edit, apply_edit, edit_sentence, parse_place, sweep, tried
from rankscope.features.replay.schedule import Schedule, Step
from rankscope.features.replay.schedule_fit import fit_job
from rankscope.features.replay.simulator import Setting
from tests.simulator.loaded import simulated
from tests.tui.jobs import hang

SAMPLES = Path(__file__).parents[3] / "sample_data"


def step(seq: int, op: str = "all_reduce", group: int = 0) -> Step:
    return Step((group, seq), op, 4, "Float", pending=True)


@pytest.mark.parametrize(
    ("sample", "kind", "sentence", "kinds"),
    [
        ("early_return", "insert", "rank 3 also issues all_reduce #19 of default_pg", ("release", "complete")),
        ("wrong_collective", "match", "rank 2 issues all_reduce #19 of default_pg as its peers do", ("skip", "insert")),
    ],
)
def test_the_sweep_finds_what_repairs_a_job(sample: str, kind: str, sentence: str, kinds: tuple[str, ...]) -> None:
    dataset = load([SAMPLES / sample])
    analysis = analyse(dataset)
    best = fit_job(dataset, analysis)
    trials = sweep(best.schedule, best.setting, tuple(analysis.culprits))
    assert (trials[0].edit.kind, trials[0].waiting) == (kind, 0)
    assert edit_sentence(dataset, best.schedule, trials[0].edit) == sentence
    assert all(trial.edit.kind in kinds for trial in trials[1:] if not trial.waiting)


def test_the_sentence_of_a_match_names_what_the_peers_issued() -> None:
    dataset = load([SAMPLES / "wrong_collective"])
    steps = {0: (step(19, "barrier"),), 1: (step(19),), 2: (step(19),)}
    told = edit_sentence(dataset, Schedule(steps, {0: (0, 1, 2)}), Edit("match", 0, (0, 19)))
    assert told == "rank 0 issues all_reduce #19 of default_pg as its peers do"


def test_an_extra_operation_moves_the_numbers_after_it() -> None:
    mine = (step(0), step(1, "broadcast"), step(2))
    schedule = Schedule({0: mine, 1: (step(0), step(1))}, {0: (0, 1)})
    changed = apply_edit(schedule, Edit("skip", 0, (0, 1)))
    assert [s.key for s in changed.steps[0]] == [(0, 0), (0, 1)]
    assert not tried(schedule, Setting(), Edit("skip", 0, (0, 1))).waiting


def test_an_operation_that_was_left_out_is_put_before_those_it_numbered() -> None:
    schedule = Schedule({0: (step(0, "broadcast"), step(1)), 1: (step(0),)}, {0: (0, 1)})
    changed = apply_edit(schedule, Edit("insert", 1, (0, 0)))
    assert [(s.op, s.key) for s in changed.steps[1]] == [("broadcast", (0, 0)), ("all_reduce", (0, 1))]


def test_two_operations_the_other_way_round_end_a_circle() -> None:
    schedule = Schedule({0: (step(1), step(1, group=1)), 1: (step(1, group=1), step(1))}, {0: (0, 1), 1: (0, 1)})
    assert not tried(schedule, Setting(), Edit("swap", 1, (1, 1), (0, 1))).waiting
    assert tried(schedule, Setting(), Edit("skip", 1, (1, 1))).waiting


def test_all_that_peers_wait_for_is_put_in_whatever_the_order() -> None:
    dataset = load([SAMPLES / "two_groups"])
    best = fit_job(dataset, analyse(dataset))
    assert not tried(best.schedule, best.setting, Edit("complete", 3)).waiting
    assert tried(best.schedule, best.setting, Edit("insert", 3, (2, 10))).waiting, "others wait for rank 3, too"
    goes_on = tried(best.schedule, best.setting, Edit("release", 3))
    assert (goes_on.waiting, goes_on.further) == (0, 3)


def test_an_operation_of_other_size_hangs_even_where_the_job_had_come_past_it() -> None:
    over = replace(step(0), pending=False)
    schedule = Schedule({0: (over,), 1: (over,)}, {0: (0, 1)})
    assert tried(schedule, Setting(), Edit("set", 0, (0, 0), values=(("size", "8"),))).waiting == 2
    assert tried(schedule, Setting(), Edit("set", 0, (0, 0), values=(("dtype", "Half"),))).waiting == 2


@pytest.mark.parametrize(
    ("fault", "kind", "mode"),
    [("host-stuck", "release", "hook"), ("skipped", "insert", "full"), ("wrong-split", "match", "full"),
     ("lost-batch", "insert", "hook")],
)  # fmt: skip
def test_the_sweep_repairs_a_planted_fault_and_an_innocent_rank_does_not(fault: str, kind: str, mode: str) -> None:
    dataset, analysis = simulated(fault, 900, mode=mode)
    best = fit_job(dataset, analysis)
    blamed = tuple(analysis.culprits)
    first = sweep(best.schedule, best.setting, blamed)[0]
    assert (first.waiting, first.edit.kind, first.edit.rank in blamed) == (0, kind, True)
    innocent = next(rank for rank in best.schedule.steps if rank not in blamed)
    others = sweep(best.schedule, best.setting, blamed, (innocent,))
    assert all(trial.waiting for trial in others if trial.edit.kind != "complete")


def test_a_rank_that_stopped_is_let_go() -> None:
    schedule = Schedule({0: (step(0),), 1: (step(0),)}, {0: (0, 1)})
    held = Setting(holds=frozenset({1}))
    assert tried(schedule, held, Edit("skip", 0, (0, 0))).waiting
    free = tried(schedule, held, Edit("release", 1))
    assert (free.waiting, free.setting.holds) == (0, frozenset())


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit("skip", 9, (0, 0)), "rank 9 is not in the schedule"),
        (Edit("skip", 0, (0, 5)), "rank 0 has no operation 0#5"),
        (Edit("insert", 0, (0, 5)), "no other rank has an operation 0#5"),
        (Edit("match", 0, (0, 0)), "no other rank has an operation 0#0"),
        (Edit("set", 0, (0, 0), values=(("op", "all_reduce"),)), "with these values already"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(edit: Edit, reason: str) -> None:
    schedule = Schedule({0: (step(0),), 1: ()}, {0: (0, 1)})
    with pytest.raises(ValueError, match=reason):
        apply_edit(schedule, edit)


def test_places_are_named_by_group_and_number() -> None:
    dataset, _ = hang(8, 3)
    described = replace(dataset, groups=dataset.groups)
    group = next(g for g in described.group_list if g.name == "tp1")
    assert parse_place(described, "5:tp1#3") == (5, (group.id, 3))
    assert parse_place(described, f"5:{group.description}#3") == (5, (group.id, 3))
    assert parse_place(described, "5:tp1#4>5:2") == (5, (group.id, 4, 5, 2))
    with pytest.raises(ValueError, match="rank 5 is in no group tp0; its groups: "):
        parse_place(described, "5:tp0#3")
    with pytest.raises(ValueError, match="not RANK:GROUP#SEQ"):
        parse_place(described, "tp1#3")


def test_the_command_says_whether_the_job_still_hangs(tmp_path: Path) -> None:
    script = tmp_path / "fixed.py"
    path = str(SAMPLES / "wrong_collective")
    run = CliRunner().invoke(rankscope, ["repro", "fork", path, "--match", "2:default_pg#19", "-o", str(script)])
    assert (run.exit_code, "all end    rank 2 issues all_reduce #19" in run.output) == (0, True)
    assert "# changed: rank 2 issues all_reduce #19 of default_pg as its peers do\n" in script.read_text()
    assert "waits" not in script.read_text().split('SCHEDULE = """\n')[1].split('"""')[0]
    worse = CliRunner().invoke(rankscope, ["repro", "fork", path, "--skip", "2:default_pg#18"])
    assert "no such change alone" in worse.output
