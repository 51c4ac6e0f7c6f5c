"""Dumps of both kinds side by side, through worker processes, to the report."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from rankscope.analysis.root_cause import analyse
from rankscope.assemble.load import load
from rankscope.report.text import render_text
from rankscope.schema.tables import STACKS, THREADS
from tests.assemble.test_load import hung_job, write
from tests.features.stacks.py_spy.dumps import MTIME_NS, document, process


def mixed(folder: Path) -> Path:
    """A hung job of four ranks, with py-spy's dump of the one that left early."""
    write(folder, hung_job())
    (folder / "pyspy_rank_2.txt").write_text(process(100, ("save (ckpt.py:5)",), threads=3))
    (folder / "pyspy_rank_0.json").write_bytes(document(90))
    return folder


def test_a_mixed_directory(tmp_path: Path) -> None:
    plain, both = load([write(tmp_path / "plain", hung_job())]), load([mixed(tmp_path / "both")])
    assert dict(both.threads.schema) == THREADS
    assert dict(both.stacks.schema) == STACKS
    assert both.threads.select("rank", "pid").rows() == [(0, 90), (2, 100), (2, 100), (2, 100)]
    assert (both.seen_ranks, both.missing_ranks, both.world_size) == ((0, 1, 2, 3), (), 4)
    assert both.ops.drop("file").equals(plain.ops.drop("file"))
    assert both.frontiers.equals(plain.frontiers)
    assert set(both.threads["file"]) == set(both.files.filter(both.files["kind"] == "py-spy")["file"])


def test_stacks_name_no_other_culprit(tmp_path: Path) -> None:
    plain, both = analyse(load([write(tmp_path / "plain", hung_job())])), analyse(load([mixed(tmp_path / "both")]))
    culprits = [[f.culprit_ranks for f in a.findings if f.root_cause] for a in (plain, both)]
    assert culprits == [[(2,)], [(2,)]]


def test_a_directory_with_nothing_else(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"stacks-{rank}.txt").write_text(process(100 + rank))
    (tmp_path / "stacks-3.txt").write_bytes(b"")
    dataset = load([tmp_path])
    assert (dataset.world_size, dataset.seen_ranks, dataset.threads.height) == (3, (), 3)
    assert dataset.files["kind"].to_list() == ["py-spy"] * 4
    assert dataset.files["problem"].to_list() == [None, None, None, "empty file"]
    analysis = analyse(dataset)
    assert analysis.status == "unknown"
    assert not [f for f in analysis.findings if f.culprit_ranks]
    assert "stacks-3.txt: empty file" in render_text(dataset, analysis)


def test_packed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "dumps.tgz", "w:gz") as archive:
        for name, data in (
            ("node1/pyspy_rank_1.txt.gz", gzip.compress(process().encode())),
            ("rank_0.txt", document()),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), MTIME_NS // 10**9
            archive.addfile(member, io.BytesIO(data))
    dataset = load([tmp_path])
    assert dataset.threads.select("rank", "written_ns").rows() == [(0, MTIME_NS), (1, MTIME_NS)]
    assert dataset.files["path"].to_list() == ["dumps.tgz!node1/pyspy_rank_1.txt.gz", "dumps.tgz!rank_0.txt"]
