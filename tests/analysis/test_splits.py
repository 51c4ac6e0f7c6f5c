"""All-to-alls in which what one rank sends is not what the other expects."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from tests.parsers.hooked_dumps import dumped, hooks

Changes = dict[tuple[int, int], int]


def shuffled(world: int, sends: Changes, takes: Changes) -> list[Finding]:
    """Findings where rank i sends 8 + i + j rows to rank j, but for the rows more that `sends` and `takes` say."""
    made = hooks(world)
    for hook in made:
        hook.collective("0")
        mine = hook.rank
        hook.collective(
            "0", op="all_to_all", state="scheduled",
            input_sizes=[[8 + mine + peer + sends.get((mine, peer), 0), 4] for peer in range(world)],
            output_sizes=[[8 + mine + peer + takes.get((mine, peer), 0), 4] for peer in range(world)],
        )  # fmt: skip
    return [f for f in analyse(dumped(made)).findings if f.root_cause]


def test_amounts_that_fit_are_no_mismatch() -> None:
    assert not shuffled(4, {}, {})
    # both sides know of it
    assert not shuffled(4, {(1, 2): 3}, {(2, 1): 3})


@pytest.mark.parametrize("sends", [True, False])
def test_the_rank_that_all_wrong_amounts_have_in_common(sends: bool) -> None:
    changes = {(1, 2): 3, (1, 3): -3}
    found = shuffled(4, changes if sends else {}, {} if sends else changes)
    assert [(f.kind, f.culprit_ranks, f.confidence) for f in found] == [("size-mismatch", (1,), "high")]


def test_one_pair_names_both() -> None:
    found = shuffled(4, {(1, 2): 3}, {})[0]
    assert (found.kind, found.culprit_ranks, found.confidence) == ("size-mismatch", (1, 2), "low")
    assert "rank 1 sends rank 2 56 elements, which expects 44" in found.explanation


def test_one_tensor_with_splits_is_not_compared() -> None:
    made = hooks(2)
    for hook in made:
        hook.collective("0", op="all_to_all_single", input_sizes=[[10 + hook.rank]], output_sizes=[[20]])
    assert not analyse(dumped(made)).is_critical
