"""From paths to a Dataset, through worker processes."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import InputError, LoadOptions, LoadProgress, load
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.text import render_text
from rankscope.schema.tables import ATTEMPTS, FILES, FRONTIERS, GROUPS, OPS, STACKS
from tests.parsers.dumps import Recorder, job


def hung_job(world: int = 4) -> list[Recorder]:
    """Rank 2 leaves early."""
    made = job(world)
    for recorder in made:
        for _ in range(5):
            recorder.collective()
        if recorder.rank != 2:
            recorder.collective(state="scheduled")
    return made


def write(folder: Path, made: list[Recorder]) -> Path:
    folder.mkdir(exist_ok=True)
    for recorder in made:
        (folder / f"nccl_trace_rank_{recorder.rank}").write_bytes(recorder.pickle())
    return folder


def test_the_tables_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    dataset = load([write(tmp_path, hung_job())])
    for table, columns in (
        (dataset.ops, OPS), (dataset.groups, GROUPS), (dataset.stacks, STACKS),
        (dataset.frontiers, FRONTIERS), (dataset.files, FILES), (dataset.attempts, ATTEMPTS),
    ):  # fmt: skip
        assert dict(table.schema) == columns
    assert (dataset.world_size, dataset.seen_ranks, dataset.missing_ranks) == (4, (0, 1, 2, 3), ())
    assert dataset.ops.height == 23
    assert dataset.frontiers.select("rank", "last_enqueued", "last_completed").rows() == [
        (0, 6, 5), (1, 6, 5), (2, 5, 5), (3, 6, 5),
    ]  # fmt: skip
    assert [frame.function for frame in dataset.stack(dataset.ops["stack_id"][0])] == ["all_reduce", "train"]
    assert dataset.root == str(tmp_path)


def test_what_lies_beside_the_dumps_is_listed_and_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path, hung_job()[:3])
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"")
    (tmp_path / "train.log").write_text("[rank3] out of memory\n")
    (tmp_path / "truth.json").write_text('{"scenario": "healthy"}')
    (tmp_path / "evil_rank_4").write_bytes(b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\n(X\x04\x00\x00\x00truetRs.")
    (tmp_path / "bomb_rank_5").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    os.mkfifo(tmp_path / "nccl_trace_rank_0.pipe")
    dataset = load([tmp_path])
    rows = dataset.files.filter(~dataset.files["used"]).select("path", "kind", "problem").rows()
    assert rows == [
        ("bomb_rank_5", "unreadable", "needs more memory than the size of the file allows: refused"),
        ("evil_rank_4", "pickle", "asks for os.system: refused"),
        ("nccl_trace_rank_3", "flight-recorder", "empty file"),
        ("train.log", "unknown", "not a kind of file that is known"),
        ("truth.json", "unknown", "not a flight recorder dump"),
    ]
    assert dataset.missing_ranks == (3,)


def test_an_archive_says_what_the_directory_says(tmp_path: Path) -> None:
    folder = write(tmp_path / "dumps", hung_job())
    with tarfile.open(tmp_path / "sent.tar.gz", "w:gz") as archive:
        archive.add(folder, "dumps")
    packed, plain = load([tmp_path / "sent.tar.gz"]), load([folder])
    assert packed.files["path"].to_list() == [f"sent.tar.gz!dumps/nccl_trace_rank_{r}" for r in range(4)]
    assert packed.ops.equals(plain.ops)
    assert packed.frontiers.equals(plain.frontiers)


def test_the_result_depends_on_neither_order_nor_hash_seed(tmp_path: Path) -> None:
    write(tmp_path, hung_job())
    code = (
        "import sys; from pathlib import Path; from rankscope.assemble.load import load; import polars as pl\n"
        "d = load([Path(p) for p in sys.argv[1:]])\n"
        "print([t.write_json() for t in (d.ops, d.groups, d.stacks, d.frontiers, d.files.drop('path'))])"
    )

    def said(seed: str, paths: list[Path]) -> str:
        command = [sys.executable, "-c", code, *map(str, paths)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    files = sorted(tmp_path.iterdir())
    assert said("1", files) == said("2", files[::-1])


def test_progress_ends_with_everything(tmp_path: Path) -> None:
    seen: list[LoadProgress] = []
    load([write(tmp_path, hung_job())], progress=seen.append)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert seen[-1] == LoadProgress(4, 4, total, total, 23)
    assert [p.files_done for p in seen] == sorted(p.files_done for p in seen)


def test_workers_as_many_as_asked_for_say_the_same(tmp_path: Path) -> None:
    write(tmp_path, hung_job())
    assert load([tmp_path], LoadOptions(jobs=1)).ops.equals(load([tmp_path], LoadOptions(jobs=2)).ops)


def test_ranks_and_world_size_by_hand(tmp_path: Path) -> None:
    for recorder in hung_job():
        (tmp_path / f"x{recorder.rank}y{3 - recorder.rank}z").write_bytes(recorder.pickle())
    dataset = load([tmp_path], LoadOptions(rank_from=r"x(\d+)y", world_size=9))
    assert dataset.files["rank"].to_list() == [0, 1, 2, 3]
    assert set(dataset.files["rank_source"]) == {"option"}
    assert dataset.missing_ranks == (4, 5, 6, 7, 8)


def test_what_cannot_be_read_at_all_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a regular expression"):
        load([tmp_path], LoadOptions(rank_from="("))
    with pytest.raises(InputError, match="No such file"):
        load([tmp_path / "nothing"])
    with pytest.raises(InputError, match="no files"):
        load([tmp_path])
    (tmp_path / "notes").write_text("hello")
    with pytest.raises(InputError, match="no dump, stack, log or trace in 1 file"):
        load([tmp_path])
    with pytest.raises(InputError, match="no path"):
        load([])


def test_an_attempt_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no attempt 5"):
        load([write(tmp_path, hung_job())], LoadOptions(attempt=5))


def test_nothing_is_written_where_it_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "dumps", hung_job())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    load([folder])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_importing_it_imports_no_polars() -> None:
    code = "import sys, rankscope.assemble.load; print('polars' in sys.modules, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]


def test_bytes_are_decoded_the_same_however_they_are_given(tmp_path: Path) -> None:
    stream = io.BytesIO(hung_job()[0].json())
    (tmp_path / "rank_0.json").write_bytes(stream.getvalue())
    (tmp_path / "rank_1.pkl").write_bytes(hung_job()[1].pickle())
    assert load([tmp_path]).seen_ranks == (0, 1)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_is_a_call_is_refused_by_name(tmp_path: Path, protocol: int) -> None:
    write(tmp_path, hung_job())
    (tmp_path / "rank_9").write_bytes(pickle.dumps(print, protocol=protocol))
    problems = load([tmp_path]).files["problem"].drop_nulls().to_list()
    assert len(problems) == 1
    assert "print: refused" in problems[0]


SAMPLES = Path(__file__).parents[2] / "sample_data"


@pytest.mark.parametrize("job", ["early_return", "wrong_collective", "healthy"])
def test_ranks_whose_dumps_lie_beside_a_file_are_not_accused(job: str) -> None:
    dataset = load([SAMPLES / job / "comm_lib_trace_rank_1"])
    said = analyse(dataset)
    assert (dataset.missing_ranks, dataset.unopened_ranks, dataset.dumpless_ranks) == ((0, 2, 3), (0, 2, 3), ())
    assert said.status == "unknown" and said.culprits == ()
    assert all(not f.culprit_ranks and not f.candidates for f in said.findings)
    assert f"ranks 0,2,3 lie in {SAMPLES / job} and were not opened" in said.verdict
    (gap,) = [f for f in said.findings if f.kind == "missing-dump"]
    assert gap.next_steps == (f"Open them all: rankscope {SAMPLES / job}",)
    for text in (render_text(dataset, said), render_markdown(dataset, said)):
        assert "left no" not in text and "no dump of" not in text.lower()


def test_what_given_files_prove_is_told_although_others_lie_beside() -> None:
    said = analyse(load([SAMPLES / "early_return" / f"comm_lib_trace_rank_{rank}" for rank in (0, 3)]))
    assert (said.status, said.culprits) == ("hang", (3,))


def test_a_rank_without_a_dump_beside_is_missing_still(tmp_path: Path) -> None:
    for rank in (0, 2):
        name = f"comm_lib_trace_rank_{rank}"
        (tmp_path / name).write_bytes((SAMPLES / "early_return" / name).read_bytes())
    dataset = load([tmp_path / "comm_lib_trace_rank_0"])
    assert (dataset.unopened_ranks, dataset.dumpless_ranks) == ((2,), (1, 3))
    assert load([tmp_path]).unopened_ranks == ()


def test_the_directory_of_dumps_beside_is_redacted(tmp_path: Path) -> None:
    folder = tmp_path / "secret-run"
    folder.mkdir()
    for rank in range(4):
        name = f"comm_lib_trace_rank_{rank}"
        (folder / name).write_bytes((SAMPLES / "early_return" / name).read_bytes())
    dataset = load([folder / "comm_lib_trace_rank_0"])
    told = Redaction().dataset(dataset)
    said = analyse(told)
    assert "secret-run" in analyse(dataset).verdict
    assert "secret-run" not in f"{told.beside}{said}{render_text(told, said)}"
