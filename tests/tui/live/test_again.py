"""Lanes of which only a few are new: as if all were laid out anew, and the others stay."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.analysis.live import Live
from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset
from rankscope.tui.items import Items
from rankscope.tui.live.again import lanes_again as made_again
from rankscope.tui.live.prepared import prepare
from rankscope.tui.model import Model, build_model
from rankscope.tui.pick import column_of
from rankscope.watching.update import Reading, Update
from tests.builders import JobBuilder

RANKS, OPS = 12, 80
GOES_ON = Analysis("goes on", "progressing")
HALVES = {"even": [0, 2, 4, 6, 8, 10], "odd": [1, 3, 5, 7, 9, 11]}
NAMES = tuple(Items.__dataclass_fields__)
STAYING = (0, 1)
"""One rank of each group that writes nothing: what the others forget stays where it was."""
Windows = Mapping[int, tuple[int, int]]
"""By rank the first operation that its ring holds, and the first that it has not issued."""


def collectives(chance: random.Random) -> Dataset:
    """A job whose ranks issue the same collectives in the same order."""
    builder = JobBuilder(RANKS, HALVES)
    for _ in range(OPS):
        builder.collective("0")
        if chance.random() < 0.5:
            for group in HALVES:
                builder.collective(group)
    return builder.build()


def pipeline(chance: random.Random) -> Dataset:
    """One with sends and receives between neighbours, and collectives of half of the ranks."""
    builder = JobBuilder(RANKS, HALVES)
    for _ in range(OPS):
        group = chance.choice(["0", "even", "odd"])
        if group == "0":
            for rank in range(RANKS):
                builder.p2p("0", rank, (rank + 1) % RANKS, "send", coalesced="inner")
                builder.p2p("0", rank, (rank - 1) % RANKS, "recv", coalesced="inner")
        else:
            builder.collective(group)
    return builder.build()


def dumped(job: Dataset, windows: Windows) -> Dataset:
    """What dumps with these windows show of the job."""
    table = pl.DataFrame(
        [(rank, *window) for rank, window in windows.items()],
        schema={"rank": pl.Int32, "first": pl.Int64, "end": pl.Int64}, orient="row",
    )  # fmt: skip
    rows = job.ops.with_columns(at=pl.int_range(pl.len()).over("rank")).join(table, on="rank", maintain_order="left")
    rows = rows.filter((pl.col("at") >= pl.col("first")) & (pl.col("at") < pl.col("end")))
    files = job.files.drop("wrapped").join(table.select("rank", wrapped=pl.col("first") > 0), on="rank", how="left")
    return replace(job, ops=rows.select(job.ops.columns), files=files.select(job.files.columns))


def moved(windows: Windows, ranks: list[int], chance: random.Random) -> Windows:
    """Some ranks have issued more, and forgotten as much, or less."""
    new = dict(windows)
    for rank in ranks:
        first, end = windows[rank]
        more = chance.randrange(6)
        new[rank] = (first + chance.choice([more, more, 0]), end + more)
    return new


def real(model: Model) -> dict[str, list[int]]:
    """All operations of all lanes, without marks."""
    there = model.items.row >= 0
    return {name: getattr(model.items, name)[there].tolist() for name in NAMES}


def lanes_again(before: Model, dataset: Dataset, analysis: Analysis, ranks: Sequence[int]) -> Model | None:
    """The lanes of ranks that have written all they have anew."""
    found = made_again(before, dataset, analysis, ranks)
    return found.model if found is not None else None


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_go_on_stand_where_they_would_if_all_was_laid_out_anew(seed: int) -> None:
    chance = random.Random(seed)
    job = collectives(chance)
    windows: Windows = {rank: (0, 20) if rank in STAYING else (chance.randrange(3), 20) for rank in range(RANKS)}
    model = build_model(dumped(job, windows), GOES_ON)
    for _ in range(4):
        ranks = chance.sample([rank for rank in range(RANKS) if rank not in STAYING], 3)
        windows = moved(windows, ranks, chance)
        dataset = dumped(job, windows)
        again, anew = lanes_again(model, dataset, GOES_ON, ranks), build_model(dataset, GOES_ON)
        assert again is not None
        assert real(again) == real(anew)
        assert again.columns.tolist() == anew.columns.tolist() and again.width == anew.width
        assert again.gap_until.tolist() == anew.gap_until.tolist()
        assert again.gap_reason.tolist() == anew.gap_reason.tolist()
        known = anew.instances.select("group", "seq", "col")
        assert known.join(again.instances, on=["group", "seq", "col"], how="anti").is_empty()
        assert again.instances.schema == anew.instances.schema
        model = again


@pytest.mark.parametrize("make", [collectives, pipeline])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_they_issue_every_operation_has_its_place(seed: int, make: Callable[[random.Random], Dataset]) -> None:
    chance = random.Random(seed)
    job = make(chance)
    windows: Windows = {rank: (chance.randrange(8), chance.randrange(12, 24)) for rank in range(RANKS)}
    model, laid = build_model(dumped(job, windows), GOES_ON), 0
    for _ in range(8):
        ranks = chance.sample(range(RANKS), chance.randrange(1, 5))
        windows = moved(windows, ranks, chance)
        dataset = dumped(job, windows)
        again = lanes_again(model, dataset, GOES_ON, ranks)
        if again is not None:
            assert_in_place(model, again, ranks)
            laid += 1
        model = again or build_model(dataset, GOES_ON)
    assert laid >= 2


def assert_in_place(before: Model, after: Model, ranks: list[int]) -> None:
    """Each operation is on its lane once, behind what came before it; the lanes of others are as they were."""
    ops, items = after.dataset.ops, after.items
    there = items.row >= 0
    rows = items.row[there]
    assert sorted(rows.tolist()) == list(range(ops.height))
    assert after.ranks[items.lane[there]].tolist() == ops["rank"].gather(rows).to_list()
    assert items.seq[there].tolist() == ops["seq"].gather(rows).to_list()
    assert after.columns[rows].tolist() == items.col[there].tolist()
    assert (np.diff(items.lane) >= 0).all()
    lanes, columns = items.lane[there], items.col[there]
    assert (np.diff(columns)[np.diff(lanes) == 0] > 0).all() and items.col.max() < after.width
    assert_beside_peers(before, after)
    new = np.isin(after.ranks[items.lane], ranks)
    cells = [
        set(zip(items.lane[some].tolist(), items.col[some].tolist(), strict=True))
        for some in (new & there, new & ~there)
    ]  # fmt: skip
    assert not cells[0] & cells[1]
    for rank, lane in before.lane_of.items():
        if rank not in ranks:
            was, now = (slice(*model.bounds[lane : lane + 2].tolist()) for model in (before, after))
            assert before.items.col[was].tolist() == items.col[now].tolist()
            assert before.items.seq[was].tolist() == items.seq[now].tolist()


def assert_beside_peers(before: Model, after: Model) -> None:
    """Collectives stand in one column, in that which they had."""
    items = after.items
    stands = ~items.p2p & (items.row >= 0)
    table = pl.DataFrame({"group": items.group[stands], "seq": items.seq[stands], "col": items.col[stands]})
    old = {(g, s): c for g, s, c in before.instances.select("group", "seq", "col").iter_rows()}
    for group, seq, columns in table.group_by("group", "seq").agg(pl.col("col").unique()).iter_rows():
        assert columns == [old.get((group, seq), columns[0])]


def test_a_mark_stays_until_there_is_an_operation_in_its_place() -> None:
    builder = JobBuilder(3)
    builder.collective()
    builder.collective(state="started")
    job = builder.build()
    before = build_model(dumped(job, {0: (0, 2), 1: (0, 1), 2: (0, 2)}), Analysis("hangs", "hang"))
    assert (before.items.row < 0).sum() == 1
    still = lanes_again(before, dumped(job, {0: (0, 2), 1: (0, 1), 2: (0, 2)}), GOES_ON, [1])
    assert still is not None and (still.items.row < 0).sum() == 1
    after = lanes_again(before, dumped(job, {0: (0, 2), 1: (0, 2), 2: (0, 2)}), GOES_ON, [1])
    assert after is not None and (after.items.row < 0).sum() == 0


def test_a_rank_whose_dump_is_empty_has_its_marks() -> None:
    job = collectives(random.Random(2))
    windows: Windows = {**dict.fromkeys(range(RANKS), (0, 20)), 3: (0, 0)}
    filtered = pl.when(pl.col("rank") == 3).then(pl.lit("only-active")).otherwise("filtered")
    dataset = dumped(job, windows)
    rows = dataset.frontiers.with_columns(filtered=filtered.cast(dataset.frontiers.schema["filtered"]))
    dataset = replace(dataset, frontiers=rows)
    model = build_model(dataset, GOES_ON)
    assert (model.items.row[model.items.lane == 3] == -1).sum() > 5
    again = lanes_again(model, dataset, GOES_ON, [3])
    assert again is not None and again.items.row.tolist() == model.items.row.tolist()


def test_ranks_that_have_issued_nothing_may_be_the_last() -> None:
    job = collectives(random.Random(2))
    last = RANKS - 1
    windows: Windows = {**dict.fromkeys(range(RANKS), (0, 20)), last: (0, 0)}
    model = build_model(dumped(job, windows), GOES_ON)
    bare = replace(model, items=Items(**{name: getattr(model.items, name)[model.items.lane < last] for name in NAMES}))
    later = dumped(job, {**windows, 3: (0, 24)})
    again = lanes_again(bare, later, GOES_ON, [3, last])
    assert again is not None and real(again) == real(build_model(later, GOES_ON))


def test_where_there_is_no_dump_nothing_is_known_of_new_columns() -> None:
    builder = JobBuilder(3)
    for _ in range(6):
        builder.collective(ranks=[0, 1])
    builder.no_dump = {2}
    job = builder.build()
    model = build_model(dumped(job, {0: (0, 4), 1: (0, 4)}), GOES_ON)
    again = lanes_again(model, dumped(job, {0: (0, 6), 1: (0, 4)}), GOES_ON, [0])
    assert again is not None and again.width == 6 and again.gap_until.tolist() == [0, 0, 6]


def test_a_process_that_began_anew_numbers_its_operations_anew() -> None:
    builder = JobBuilder(2, {"own": [0]})
    for group in ("0", "0", "own", "own"):
        builder.collective(group)
    job = builder.build()
    before = build_model(dumped(job, {0: (0, 3), 1: (0, 2)}), GOES_ON)
    later = dumped(job, {0: (3, 4), 1: (0, 2)})
    again = pl.when(pl.col("rank") == 0).then(pl.col("record_id") - 1).otherwise("record_id")
    later = replace(later, ops=later.ops.with_columns(record_id=again))
    laid = lanes_again(before, later, GOES_ON, [0])
    assert laid is not None and real(laid) == real(build_model(later, GOES_ON))


def test_what_was_launched_together_can_be_found_by_its_number() -> None:
    builder = JobBuilder(2)
    builder.collective()
    for _ in range(2):
        builder.collective(coalesced="inner")
    job = builder.build()
    model = build_model(dumped(job, {0: (0, 1), 1: (0, 1)}), GOES_ON)
    later = dumped(job, {0: (0, 3), 1: (0, 1)})
    again = lanes_again(model, later, GOES_ON, [0])
    assert again is not None
    assert [column_of(again, 0, seq) for seq in (1, 2, 3)] == [
        column_of(build_model(later, GOES_ON), 0, s) for s in (1, 2, 3)
    ]


def test_an_update_of_few_ranks_has_their_lanes_and_marks_anew() -> None:
    job = collectives(random.Random(1))
    windows: Windows = dict.fromkeys(range(RANKS), (0, 20))
    windows = {**windows, 3: (0, 21)}
    first = prepare(update(dumped(job, windows), 1))
    later = dumped(job, {**windows, 3: (22, 26)})
    made = prepare(update(later, 2, frozenset({3})), first)
    anew = prepare(update(later, 2))
    assert real(made.model) == real(anew.model) and made.marks == anew.marks
    assert made.model.gap_until.tolist() == anew.model.gap_until.tolist()
    assert made.model.instances is not anew.model.instances and made.model.dataset is later
    # once all is judged all is laid out
    judged = prepare(update(later, 3), made)
    assert judged.model.width == anew.model.width and judged.model.instances.equals(anew.model.instances)
    assert prepare(update(later, 4), judged).model.items is judged.model.items
    # lanes of which it is not known what has become of them meanwhile are laid out anew
    missed = prepare(update(later, 3, frozenset({4})), first)
    assert real(missed.model) == real(anew.model) and missed.marks == anew.marks


def test_lanes_that_were_laid_out_beside_the_rest_are_laid_out_anew_once_all_is_judged() -> None:
    job = pipeline(random.Random(3))
    windows: Windows = dict.fromkeys(range(RANKS), (10, 30))
    shown = prepare(update(dumped(job, windows), 1))
    later = dumped(job, {**windows, 3: (16, 36)})
    shown = prepare(update(later, 2, frozenset({3})), shown)
    anew = build_model(later, GOES_ON)
    assert not shown.model.instances.equals(anew.instances)
    shown = prepare(update(later, 3), shown)
    assert shown.model.instances.equals(anew.instances) and shown.model.width == anew.width
    assert real(shown.model) == real(anew) and shown.model.columns.tolist() == anew.columns.tolist()
    # of which nothing is new stays
    assert prepare(update(later, 4), shown).model.items is shown.model.items


def update(dataset: Dataset, number: int, ranks: frozenset[int] | None = None) -> Update:
    return Update(number, dataset, GOES_ON, Live("progressing", ""), Reading(), 1, ranks=ranks)


def test_where_more_is_new_all_is_laid_out() -> None:
    job = collectives(random.Random(0))
    windows: Windows = dict.fromkeys(range(RANKS), (0, 20))
    dataset = dumped(job, windows)
    model = build_model(dataset, GOES_ON)
    assert lanes_again(model, dataset, GOES_ON, [3]) is not None
    more = replace(dataset, world_size=RANKS + 1)
    assert lanes_again(model, more, GOES_ON, [3]) is None
    assert lanes_again(model, dataset, GOES_ON, [RANKS]) is None
    nameless = replace(dataset, groups=dataset.groups.with_columns(name=pl.lit("other")))
    assert lanes_again(model, nameless, GOES_ON, [3]) is None
    divergence = Divergence(0, 1, "all_reduce", (0,), (), (), (1,), False, None)
    differs = build_model(dataset, replace(GOES_ON, divergences=(divergence,)))
    assert lanes_again(differs, dataset, GOES_ON, [3]) is None


def test_what_stands_before_its_column_is_not_laid_in_between() -> None:
    builder = JobBuilder(2, {"own": [0]})
    builder.collective("0")
    for _ in range(5):
        builder.collective("own")
    builder.collective("0")
    job = builder.build()
    # rank 1 was dumped late: what rank 0 comes to after six operations stands in column 1
    before = build_model(dumped(job, {0: (0, 1), 1: (0, 2)}), GOES_ON)
    assert lanes_again(before, dumped(job, {0: (0, 7), 1: (0, 2)}), GOES_ON, [0]) is None
