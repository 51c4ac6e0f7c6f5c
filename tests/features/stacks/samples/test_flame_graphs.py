"""Flame graphs, austin's samples and files of several processes as stacks over time."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rankscope.assemble.load import load
from rankscope.cli import rankscope
from rankscope.features.stacks.samples.decode import decode_profile, looks_like_profile
from rankscope.features.stacks.stack_shares import share_tree
from rankscope.parsers.contents import NotThisKindError

HEAD = '<?xml version="1.0" standalone="no"?><!DOCTYPE svg PUBLIC "-//W3C"><svg version="1.1" width="1200">'


def box(name: str, count: int, at: int, y: int, of: int = 100) -> str:
    """A box as inferno draws it."""
    share = 100 * count / of
    return (
        f'<g><title>{name} ({count} samples, {share:.2f}%)</title><rect x="{100 * at / of:.4f}%" y="{y}" '
        f'width="{share:.4f}%" height="15" fill="rgb(1,2,3)" fg:x="{at}" fg:w="{count}"/><text x="1%">x</text></g>'
    )


def flame(load_count: int, down: bool = True) -> str:
    """A flame graph of `step`, which loads and waits; the root at the top, or at the bottom."""
    y = [52, 68, 84, 100] if down else [100, 84, 68, 52]
    return HEAD + "".join([
        box("all", 100, 0, y[0]), box("&lt;module&gt; (train.py:13)", 100, 0, y[1]),
        box("step (train.py:7)", 100, 0, y[2]),
        box("load (data.py:4)", load_count, 0, y[3]), box("wait (dist.py:5)", 90 - load_count, load_count, y[3]),
    ]) + "</svg>"  # fmt: skip


@pytest.mark.parametrize("down", [True, False])
def test_the_boxes_of_a_flame_graph_are_stacks(down: bool) -> None:
    data = flame(15, down).encode()
    assert looks_like_profile(data[:512])
    profile = decode_profile(data)
    found = {tuple(profile.frames[at].function for at in row.frames): row.times for row in profile.stacks}
    # of the whole, 10 samples are in no box that is wide enough to be drawn
    whole = ("step", "<module>")
    assert found == {whole: 10, ("load", *whole): 15, ("wait", *whole): 75}


def test_boxes_in_pixels_of_the_older_tool() -> None:
    text = HEAD + '<g ><title>all (20 samples, 100%)</title><rect x="10.0" y="65" width="1180.0" height="15.0" /></g>'
    text += '<title>main (a.py:3) (20 samples, 100%)</title><rect x="10.0" y="49" width="1180.0" height="15.0" /></g>'
    text += (
        '<g ><title>read (b.py:8) (5 samples, 25.00%)</title><rect x="10.0" y="33" width="295.0" height="15.0" /></g>'
    )
    profile = decode_profile(text.encode())
    assert [(len(row.frames), row.times) for row in profile.stacks] == [(1, 15), (2, 5)]


def test_another_picture_is_none() -> None:
    with pytest.raises(NotThisKindError, match="no flame graph"):
        decode_profile(f"{HEAD}<rect x='1'/></svg>".encode())


def test_flame_graphs_of_ranks_are_compared(tmp_path: Path) -> None:
    for rank, count in enumerate((10, 12, 80, 11)):
        (tmp_path / f"pyspy_rank_{rank}.svg").write_text(flame(count))
    out = CliRunner().invoke(rankscope, ["stacks", str(tmp_path)]).output
    assert "rank 2 is more than the others in" in out and "80%     11%  load data.py:4" in out
    dataset = load([tmp_path])
    assert dataset.seen_ranks == (0, 1, 2, 3) and not dataset.missing_ranks


def node(title: str) -> str:
    """Folded stacks of the processes of a node below a launcher, whose titles are of this form."""
    return "".join(
        f'process 7:"python launch.py";process {70 + n}:"{title.format(n)}";<module> (a.py:1);{call} {count}\n'
        for n, counts in enumerate(((10, 90), (80, 20), (10, 90)))
        for call, count in zip(("load (d.py:4)", "wait (e.py:5)"), counts, strict=True)
    )


def test_titles_of_processes_tell_ranks(tmp_path: Path) -> None:
    (tmp_path / "node0.folded").write_text(node("VLLM::Worker_TP{}"))
    tree = share_tree(load([tmp_path]))
    assert tree is not None and tree.ranks == (0, 1, 2) and not tree.by_pid


def test_processes_without_titles_are_compared_by_their_ids(tmp_path: Path) -> None:
    (tmp_path / "node0.folded").write_text(node("python train.py"))
    assert share_tree(load([tmp_path])) is None
    out = CliRunner().invoke(rankscope, ["stacks", str(tmp_path)]).output
    assert "stacks over time of processes 70, 71, 72" in out and "process 71 is more than the others in" in out


def test_samples_of_austin(tmp_path: Path) -> None:
    lines = ["# austin: 3.7.0", "# interval: 10000", "# mode: wall", ""]
    lines += ["P42;T0:42;/ws/train.py:<module>:3;/ws/train.py:step:9 10073"] * 3
    lines += ["P42;T0:42;/ws/train.py:<module>:3 9990", "P42;T0:43 10000"]
    (tmp_path / "rank_1.austin").write_text("\n".join(lines) + "\n")
    dataset = load([tmp_path])
    assert dataset.samples.select("rank", "pid", "count").rows() == [(1, 42, 3), (1, 42, 1)]
    assert [frame.function for frame in dataset.stack(dataset.samples["stack_id"][0])] == ["step", "<module>"]


def test_two_ranks_that_differ_are_not_said_to_agree(tmp_path: Path) -> None:
    for rank, count in enumerate((80, 25)):
        (tmp_path / f"pyspy_rank_{rank}.svg").write_text(flame(count))
    out = CliRunner().invoke(rankscope, ["stacks", str(tmp_path)]).output
    assert "of two neither is the odd one" in out and "rank 1 is less than the others in" in out
    assert "differs from the others" not in out.replace("the ranks that differ", "")


def test_one_rank_is_compared_with_nobody(tmp_path: Path) -> None:
    (tmp_path / "pyspy_rank_0.svg").write_text(flame(80))
    out = CliRunner().invoke(rankscope, ["stacks", str(tmp_path)]).output
    assert "load data.py:4" in out and "differs from the others" not in out
