"""How far a rank came in a group is told of collectives only."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.selection import Selection
from tests.parsers.dumps import dataset_of, job, named


@pytest.mark.parametrize(("is_p2p", "told"), [(False, True), (True, False)])
def test_a_send_that_was_never_posted_has_no_number_of_a_collective(is_p2p: bool, told: bool) -> None:
    made = job(2)
    for recorder in made:
        recorder.collective(state="scheduled")
    dataset = dataset_of(named(made, only_active=True))
    shown = look_up(OpIndex(dataset), analyse(dataset), Selection(0, group=0, seq=1, is_p2p=is_p2p))
    assert (shown.frontier is not None) == told
