"""Traces that torch's profiler writes while the test runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from rankscope.assemble.load import LoadOptions, load
from tests.torch_forks import printed

pytestmark = pytest.mark.torch
SAMPLES = Path(__file__).parents[4] / "sample_data"
ALONE = """
import sys, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
groups = [dist.new_group([0]) for _ in range(2)]
for name, options in {
    "plain": {}, "shapes": {"record_shapes": True}, "stacks": {"with_stack": True, "record_shapes": True},
    "memory": {"profile_memory": True, "with_flops": True},
}.items():
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        a = torch.ones(32, 32)
        for i in range(30):
            a = a @ a
            dist.all_reduce(a)
            dist.all_reduce(a[0], group=groups[0])
            dist.all_gather_into_tensor(torch.empty(32), a[0], group=groups[1])
        dist.barrier()
    profiler.export_chrome_trace(f"{sys.argv[1]}/{name}.json" + (".gz" if name == "shapes" else ""))
"""
OPS = ["all_reduce", "all_reduce", "all_gather"] * 30 + ["barrier"]


def test_a_job(tmp_path: Path) -> None:
    printed([str(SAMPLES / "make.py"), "--out", str(tmp_path), "slow_loader"], tmp_path)
    dataset = load([tmp_path / "slow_loader"], LoadOptions(jobs=1))
    assert dataset.traces["lost"].sum() == 0 and dataset.files["problem"].null_count() == 4
    assert dataset.traces["rank"].to_list() == [0, 1, 2, 3] and dataset.world_size == 4
    assert [(g.name, g.description, g.ranks) for g in dataset.group_list] == [("0", "default_pg", (0, 1, 2, 3))]
    for _, rows in dataset.traced.group_by("rank"):
        assert rows["op"].to_list() == ["all_reduce", "all_gather"] * 6
        assert (rows["created_ns"] <= rows["started_ns"]).all() and (rows["duration_ns"] > 0).all()
    late = dataset.spans.filter(pl.col("name") == "load_batch").join(dataset.tracks, on="track")
    slow = late.group_by("rank").agg(pl.col("duration_ns").median()).sort("rank")["duration_ns"].to_list()
    assert slow.index(max(slow)) == 2 and max(slow) > 29e6
    sparse = load([tmp_path / "slow_loader"], LoadOptions(jobs=1, detail="collectives"))
    assert sparse.traced.equals(dataset.traced) and sparse.spans.height < dataset.spans.height / 5


def test_every_way_to_record(tmp_path: Path) -> None:
    traces, script = tmp_path / "traces", tmp_path / "train.py"
    traces.mkdir()
    script.write_text(ALONE)
    printed([str(script), str(traces)], tmp_path)
    dataset = load([traces], LoadOptions(jobs=1))
    assert dataset.files["problem"].null_count() == dataset.files.height == 4
    paths = dict(dataset.files.select("file", "path").rows())
    names = {group.id: group.name for group in dataset.group_list}
    for (file,), rows in dataset.traced.group_by("file"):
        assert rows["op"].to_list() == OPS, paths[file]
        told = [names[group] for group in rows["group"]]
        # a run loop that a busy machine did not let run in time is not seen, and then nobody can tell them apart
        assert told in ([*["0", "1", "2"] * 30, "0"], [""] * 91), paths[file]
    shown = dict(
        dataset.spans.join(dataset.tracks, on="track").group_by("file").agg(pl.col("category").unique()).rows()
    )
    stacked = {paths[file] for file, categories in shown.items() if "python_function" in categories}
    assert stacked == {"stacks.json"} and len(shown) == 4
    nested = dataset.spans.filter(pl.col("name") == "aten::mm")
    assert nested.height == 120 and (nested["depth"] >= 1).all()
