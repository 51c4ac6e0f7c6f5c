"""Entries of a dump that the user wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.assemble.recorders import completeness
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.flight_recorder.model import Dump, dump_from
from rankscope.parsers.flight_recorder.ring_cut import LEAST_ENTRIES, RingChoice, cut_ring
from rankscope.parsers.matrices import NULL, row_keys
from tests.parsers.dumps import Groups, Recorder

GROUPS: Groups = {"0": ("default_pg", [0, 1]), "1": ("tp", [0, 1])}


def dump(states: Sequence[str], groups: Sequence[str] = ("0", "1")) -> Dump:
    """A dump of collectives in these states, of the groups in turn."""
    recorder = Recorder(0, GROUPS)
    for place, state in enumerate(states):
        recorder.collective(groups[place % len(groups)], state=state)
    return decode_dump(recorder.pickle())


def kept(one: Dump) -> list[int]:
    """The record numbers of a dump."""
    return list(map(int, one.column("record_id")))


def test_the_last_entries_are_kept() -> None:
    one = cut_ring(dump(["completed"] * 10), RingChoice(3))
    assert kept(one) == [7, 8, 9]
    assert one.omitted is not None
    assert one.omitted.entries == 7


@given(st.lists(st.sampled_from(["completed", "scheduled", "started"]), min_size=1, max_size=30), st.integers(1, 40))
def test_everything_is_kept_from_the_first_unfinished_operation_on(states: list[str], last: int) -> None:
    unfinished = [place for place, state in enumerate(states) if state != "completed"]
    begin = min([max(0, len(states) - last), *unfinished])
    one = cut_ring(dump(states), RingChoice(last))
    assert kept(one) == list(range(begin, len(states)))
    assert (one.omitted is None) == (begin == 0)


@given(
    st.lists(st.sampled_from(["completed", "scheduled"]), min_size=1, max_size=30), st.integers(1, 40),
    st.integers(1, 40),
)  # fmt: skip
def test_a_cut_of_a_cut_is_the_shorter_cut(states: list[str], one: int, other: int) -> None:
    whole = dump(states)
    again, short = cut_ring(cut_ring(whole, RingChoice(max(one, other))), RingChoice(min(one, other))), min(one, other)
    at_once = cut_ring(whole, RingChoice(short))
    assert kept(again) == kept(at_once)
    assert again.omitted == at_once.omitted


def test_a_cut_lets_go_of_the_message() -> None:
    whole = dump(["completed"] * 10)
    header, body = whole.header(), bytearray(b"".join(whole.body()))
    came = dump_from(header, memoryview(body), whole.rows)
    one = cut_ring(came, RingChoice(3))
    del came
    body.clear()  # raises BufferError while an array is a view of it
    assert kept(one) == [7, 8, 9]


def test_operations_of_a_batch_are_finished_with_its_closer() -> None:
    recorder = Recorder(0, GROUPS)
    for _ in range(4):
        recorder.batch("0", [("send", 1), ("recv", 1)])
    one = cut_ring(decode_dump(recorder.pickle()), RingChoice(3))
    assert len(kept(one)) == 3


@pytest.mark.parametrize("name", ["1", "tp"])
def test_groups_are_chosen_by_name_or_description(name: str) -> None:
    count = 2 * LEAST_ENTRIES
    one = cut_ring(dump(["completed"] * count), RingChoice(groups=frozenset({name})))
    early = [record for record in range(LEAST_ENTRIES) if record % 2]
    assert kept(one) == [*early, *range(LEAST_ENTRIES, count)]


def test_a_cut_dump_is_wrapped_and_not_filtered() -> None:
    for choice in (RingChoice(5), RingChoice(groups=frozenset({"tp"})), RingChoice(5, frozenset({"tp"}))):
        one = cut_ring(dump(["completed"] * 200), choice)
        told = completeness(one, "native")
        assert (told.wrapped, told.filtered) == (True, "none")


def test_a_dump_without_more_entries_stays_as_it_is() -> None:
    whole = dump(["completed"] * 3)
    assert cut_ring(whole, RingChoice(3)).omitted is None
    assert cut_ring(Dump(), RingChoice(3)).rows == 0


def test_what_was_left_out_crosses_processes() -> None:
    one = cut_ring(dump(["completed"] * 10), RingChoice(3))
    again = dump_from(one.header(), memoryview(b"".join(map(bytes, one.body()))), one.rows)
    assert again.omitted == one.omitted
    assert np.array_equal(again.numbers, one.numbers)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_keys_tell_rows_apart_however_wide_their_columns_are(data: st.DataObject) -> None:
    values = st.sampled_from([NULL, -(2**62), -1, 0, 1, 5, 2**31, 2**40, 2**62]) | st.integers(0, 2**31 - 1)
    rows = data.draw(st.lists(st.tuples(values, values, values, values), min_size=1, max_size=30))
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    keys = row_keys(*columns).tolist()
    assert len(set(zip(rows, keys, strict=True))) == len(set(rows)) == len(set(keys))


def test_keys_of_many_wide_columns_do_not_wrap() -> None:
    first = np.array([0, 2**61, *[0] * 7], np.int64)
    second = np.array([0, 0, *(i << 40 for i in range(1, 8))], np.int64)
    assert len(set(row_keys(first, second).tolist())) == 9, "2**61 times 8 values is 0 in 64 bits"
