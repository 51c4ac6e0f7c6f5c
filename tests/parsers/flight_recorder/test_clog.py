"""Logs of the hook of torchcomms: operations of each rank, as in a dump."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.parsers.flight_recorder.clog import decode_clog, looks_like_clog
from rankscope.parsers.matrices import NULL
from rankscope.schema import Dataset

HEAD = "V|1|base_timestamp=1764040000.250\nnew_comm|comm=world|rank={rank}|world_size={world}\n"
REDUCE = "C1|sig|all_reduce|in_count=64|out_count=64|dtype=bf16|red_op=sum|async_op=f|comm=world\n"
SPLIT = "split|parent=world|child=tp|ranks={}\nnew_comm|comm=tp|rank={}|world_size=2\n"
GATHER = "C2|sig|all_gather_single|in_count=8|out_count=16|dtype=f32|async_op=t|comm=tp\n"


def calls(number: int, count: int, done: int | None = None, at: float = 1.0) -> str:
    """Operations of a signature one after the other, of which all, or only the first, end."""
    lines = []
    for k in range(count):
        lines.append(f"C{number}|Q|work_id={k + 1}|+{at + k:.3f}\n")
        if done is None or k < done:
            lines.append(
                f"C{number}|S|+{at + k + 0.001:.3f}\nC{number}|W|+{at + k:.3f}\nC{number}|E|+{at + k + 0.5:.3f}\n"
            )
    return "".join(lines)


def job(tmp_path: Path, texts: list[str], name: str = "clog_rank_{}.log") -> tuple[Dataset, Analysis]:
    """The job of a log for each rank."""
    for rank, text in enumerate(texts):
        (tmp_path / name.format(rank)).write_text(text)
    dataset = load([tmp_path])
    return dataset, analyse(dataset)


def test_numbers_times_and_states() -> None:
    dump = decode_clog((HEAD.format(rank=3, world=8) + REDUCE + calls(1, 3, done=2)).encode())
    assert (dump.rank, dump.rows, dump.problem) == (3, 3, None)
    assert dump.column("seq").tolist() == [1, 2, 3]
    assert dump.column("created_ns").tolist() == [1764040001250000000 + k * 10**9 for k in range(3)]
    assert dump.column("completed_ns").tolist()[2] == NULL
    states = [dump.calls[at].state for at in dump.codes[0]]
    assert states == ["completed", "completed", "scheduled"]
    assert dump.shapes[0].in_sizes == "[[64]]" and dump.shapes[0].in_dtypes == '["BFloat16"]'
    assert [(group.name, list(group.ranks or ())) for group in dump.config] == [("world", list(range(8)))]


def test_the_rank_that_never_issued_is_named_whatever_the_files_are_called(tmp_path: Path) -> None:
    texts = [
        HEAD.format(rank=rank, world=4) + REDUCE + calls(1, 5 if rank == 2 else 6, done=5) for rank in (1, 0, 3, 2)
    ]
    dataset, analysis = job(tmp_path, texts, "{}.clog")
    assert sorted(dataset.dumps["rank"]) == [0, 1, 2, 3]
    assert analysis.culprits == (2,) and analysis.verdict.startswith("rank 2 never issued all_reduce #6 of world")


def test_a_whole_job_is_healthy(tmp_path: Path) -> None:
    texts = [HEAD.format(rank=rank, world=2) + REDUCE + calls(1, 4) for rank in range(2)]
    _, analysis = job(tmp_path, texts)
    assert analysis.status == "healthy" and not analysis.culprits


def test_a_group_that_was_split_off_has_its_ranks(tmp_path: Path) -> None:
    texts = []
    for rank in range(4):
        ranks = "0,1" if rank < 2 else "2,3"
        last = calls(2, 1 if rank == 3 else 2, done=1, at=50.0)
        own = SPLIT.format(ranks, rank % 2).replace("tp", f"tp{rank // 2}") + GATHER.replace("=tp", f"=tp{rank // 2}")
        texts.append(HEAD.format(rank=rank, world=4) + REDUCE + calls(1, 2) + own + last)
    dataset, analysis = job(tmp_path, texts)
    assert sorted(dataset.groups["ranks"].to_list()) == [[0, 1], [0, 1, 2, 3], [2, 3]]
    assert analysis.culprits == (3,)


def test_issues_alone_are_no_hang(tmp_path: Path) -> None:
    texts = [HEAD.format(rank=rank, world=2) + REDUCE + calls(1, 4, done=0) for rank in range(2)]
    _, analysis = job(tmp_path, texts)
    assert analysis.status != "healthy" and not analysis.culprits


def test_sends_captures_replays_and_broken_lines() -> None:
    text = HEAD.format(rank=1, world=4) + "C7|sig|send|in_count=4|out_count=0|dtype=f32|peer=3|async_op=t|comm=world\n"
    text += (
        "C7|Q|work_id=1|+0.5\nG42|C7|Q|work_id=2|+0.6\nG42|C7|S|+0.7\nG42|R1|C7|S|+0.8\nWARN|odd\nC9|Q|work_id=3|+1\n"
    )
    text += "C7|Q|work"
    dump = decode_clog(text.encode())
    assert dump.calls[0].profiling_name == "torchcomms:send 1->3"
    assert dump.column("p2p_seq").tolist() == [1, 2] and dump.truncated
    assert dump.problem == "1 events of replays of CUDA graphs left out; 1 lines not understood"


def test_other_texts_are_none() -> None:
    assert not looks_like_clog(b"V|1|x=3\n") and not looks_like_clog(b"C1|Q|work_id=1|+0.1\n")
    assert decode_clog(b"V|1|base_timestamp=1.5\n").rows == 0
