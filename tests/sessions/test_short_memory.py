"""Sessions that memory does not hold whole: the last operations of each dump are judged, and the verdict says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis import analyse
from rankscope.assemble import held_sources
from rankscope.assemble.held_sources import ENTRY_BYTES, needed_bytes
from rankscope.assemble.load import LoadOptions, load, walk
from rankscope.assemble.read_parts import shortened
from rankscope.cli import run
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.ring_cut import RingChoice, cut_ring
from rankscope.schema import Dataset, ReadParts
from rankscope.schema.tables import OPS, STATES, TABLES
from rankscope.sessions.opening import open_session
from rankscope.sessions.parquet_tables import SessionError, row_bytes
from rankscope.sessions.shares import Share, own_files
from rankscope.sessions.table_rings import ROW, cut_rings
from tests.assemble.test_read_parts import FAULTS, MODES, accused, culprits, scenario
from tests.sessions.written import parts_of, report_of, session_of
from tests.simulator.options import ALL_MODES
from tests.simulator.truth import Truth

LAST = 32
WORDS = f"the last {LAST} entries of each dump, as memory is short"


@pytest.fixture(params=[(fault, mode) for fault in FAULTS for mode in MODES], ids=" ".join)
def job(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Truth]]:
    """The dumps of a job, and what is true of it."""
    fault, mode = request.param
    with TemporaryDirectory() as folder:
        yield Path(folder), scenario(fault, mode).write(Path(folder), ALL_MODES[mode])


def dumps_of(folder: Path) -> list[Dump]:
    """The dumps of a job, cut."""
    return [cut_ring(decode_dump(path.read_bytes()), RingChoice(LAST)) for path in sorted(folder.iterdir())]


def beside_operations(dataset: Dataset) -> int:
    """The memory of all tables but that of operations."""
    return sum(getattr(dataset, name).height * row_bytes(name) for name in TABLES if name != "ops")


def test_a_session_of_tables_is_read_from_its_end(job: tuple[Path, Truth], tmp_path: Path) -> None:
    folder, truth = job
    session = session_of(folder, tmp_path / "s")
    whole = open_session(session, LoadOptions())
    rest = beside_operations(whole)
    rows = sum(dump.rows for dump in dumps_of(folder))
    cut, asked = (
        open_session(session, LoadOptions(memory=rest + rows * ENTRY_BYTES)),
        load([folder], LoadOptions(last=LAST)),
    )
    if rows == whole.ops.height:
        assert report_of(cut) == report_of(whole), "no dump has an entry to leave out"
        return
    columns = ["file", "rank", "record_id", "seq", "p2p_seq", "created_ns", "completed_ns", "in_sizes"]
    assert cut.ops.select(columns).equals(asked.ops.select(columns))
    assert (cut.parts.words, cut.parts.cuts_rings) == (WORDS, True)
    assert cut.dumps.select("file", "wrapped").equals(asked.dumps.select("file", "wrapped"))
    said = analyse(cut)
    assert said.verdict.endswith(f" (read: {WORDS})")
    assert culprits(said) == culprits(analyse(whole)) == culprits(analyse(asked))
    assert not accused(said, truth)


def test_a_session_of_parts_is_cut_as_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    scenario("host-stuck", "full").write(folder, ALL_MODES["full"])
    session = parts_of(folder, tmp_path / "s", 3, Share(0, 3).place)
    memory = sum(map(needed_bytes, dumps_of(folder)))
    cut = open_session(session, LoadOptions(memory=memory))
    assert cut.parts.words == WORDS
    assert report_of(cut) == report_of(load([folder], LoadOptions(memory=memory)))
    with pytest.raises(SessionError, match="even with their last entries only"):
        open_session(session, LoadOptions(memory=1000))


def test_ingest_writes_what_fits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    scenario("host-stuck", "full").write(folder, ALL_MODES["full"])
    memory = sum(map(needed_bytes, dumps_of(folder)))
    monkeypatch.setattr(held_sources, "SMALL_BYTES", 0)
    monkeypatch.setattr(held_sources, "entry_bytes", lambda: memory)
    assert run(["ingest", str(folder), "-o", str(tmp_path / "s")]) == 0
    assert f"(read: {WORDS})" in capsys.readouterr().err
    assert open_session(tmp_path / "s", LoadOptions()).parts.words == WORDS


def test_a_damaged_part_leaves_its_room_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    scenario("host-stuck", "full").write(folder, ALL_MODES["full"])
    session, shares = parts_of(folder, tmp_path / "s", 2, Share(0, 2).place), (Share(0, 2), Share(1, 2))
    needed = [
        sum(needed_bytes(decode_dump((folder / one.shown).read_bytes())) for one in own_files(walk([folder]), share))
        for share in shares
    ]
    assert open_session(session, LoadOptions(memory=sum(needed) - 1)).parts.words
    path = session / shares[0].file_name
    path.write_bytes(path.read_bytes()[:-40])
    half = open_session(session, LoadOptions(memory=max(needed)))
    assert half.parts.words == "" and half.ops.height


def test_a_session_without_room_for_one_operation_of_each_dump_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    scenario("host-stuck", "full").write(folder, ALL_MODES["full"])
    session = session_of(folder, tmp_path / "s")
    whole = open_session(session, LoadOptions())
    rest = beside_operations(whole)
    with pytest.raises(SessionError, match=r"no memory for its [\d,]+ operations, nor for the last ones: read some"):
        open_session(session, LoadOptions(memory=rest + 1))
    with pytest.raises(SessionError, match=r"its tables need .* of memory, and there is "):
        open_session(session, LoadOptions(memory=rest - 1))


def test_a_part_of_a_part_says_both() -> None:
    parts = shortened(ReadParts("4 of 12 groups", cuts_rings=True, has_gaps=True), 1)
    assert parts == ("4 of 12 groups, the last entry of each dump, as memory is short", True, True, False)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(STATES)), min_size=1, max_size=40), st.integers(0, 50))
def test_rows_of_interleaved_rings_are_chosen_by_ring(rows: list[tuple[int, str]], most: int) -> None:
    table = pl.DataFrame({"file": [file for file, _ in rows], "state": [state for _, state in rows]})
    frame = pl.DataFrame(schema=OPS).clear(len(rows)).with_columns(
        pl.Series("file", table["file"], pl.UInt32), pl.Series("state", table["state"], OPS["state"]),
        source=pl.lit("flight-recorder", OPS["source"]), rank=pl.lit(0, pl.Int32), group=pl.lit(0, pl.UInt32),
    )  # fmt: skip
    found = cut_rings(frame.with_row_index(ROW).lazy(), most * ENTRY_BYTES)
    rings = {file: [i for i, row in enumerate(rows) if row[0] == file] for file, _ in rows}

    def kept(last: int) -> list[int]:
        begins = {
            file: min([*own[-last:], *(i for i in own if rows[i][1] != "completed")]) for file, own in rings.items()
        }
        return [i for i, (file, _) in enumerate(rows) if i >= begins[file]]

    fitting = [1 << power for power in range(6) if 1 << power < max(map(len, rings.values()))]
    fitting = [last for last in fitting if len(kept(last)) <= most]
    if not fitting:
        assert found is None
        return
    assert found is not None and found.last == max(fitting)
    expected = frame.with_columns(record_id=pl.int_range(len(rows)))
    again = cut_rings(expected.with_row_index(ROW).lazy(), most * ENTRY_BYTES)
    assert again is not None and again.ops["record_id"].to_list() == kept(found.last)
    assert sorted(again.files) == [file for file, own in sorted(rings.items()) if kept(found.last).count(own[0]) == 0]


def test_operations_of_logs_are_in_no_ring() -> None:
    frame = pl.DataFrame(schema=OPS).clear(9).with_columns(
        file=pl.lit(0, pl.UInt32), state=pl.lit("completed", OPS["state"]), source=pl.lit("nccl-log", OPS["source"])
    )  # fmt: skip
    assert cut_rings(frame.with_row_index(ROW).lazy(), 8 * ENTRY_BYTES) is None
