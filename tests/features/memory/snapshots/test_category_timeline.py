"""Memory timelines of torch.profiler: a real one in both forms, and broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rankscope.cli import run
from rankscope.features.memory.snapshots.category_timeline import CATEGORIES
from rankscope.features.memory.snapshots.decode import decode_bytes, looks_like_snapshot
from rankscope.features.memory.snapshots.model import MemorySnapshot
from rankscope.parsers.contents import NotThisKindError

RAW = b"[[-1, 1, 300, 0], [1700000000000000500, 2, 50, 4], [1700000000000002000, 4, -50, 4]]"
SUMS = (
    b"[[1700000000000000, 1700000000000001], [[0, 300, 0, 0, 0, 50, 0, 0, 0], [0, 300, 0, 0, 0, 0, 0, 0, 0]]]"
)  # fmt: skip


def told(found: MemorySnapshot) -> dict[str, tuple[int, int]]:
    """Bytes at the peak and at the end by category."""
    return {found.frames[one.frames[0]].function: (one.at_peak, one.at_dump) for one in found.stacks}


@pytest.mark.parametrize("data", [RAW, SUMS])
def test_both_forms_tell_the_categories_at_the_peak(data: bytes) -> None:
    assert looks_like_snapshot(data[:256])
    found = decode_bytes(data)
    assert told(found) == {"parameters": (300, 300), "activations": (50, 0)}
    (device,) = found.devices
    assert (device.peak, device.allocated, device.device, device.segments) == (350, 300, -1, 0)
    assert device.ago_ns == (1_500 if data is RAW else 1_000)


@pytest.mark.parametrize("data", [
    RAW[:-1], RAW.replace(b"-50, 4", b"-50, 9"), SUMS[:-3], SUMS.replace(b"300", b"7" * 40),
    b"[[1700000000000000, 1700000000000001], []]", RAW.replace(b"300", b"9" * 19, 1),
])  # fmt: skip
def test_a_broken_timeline_is_refused(data: bytes) -> None:
    with pytest.raises(NotThisKindError, match="memory timeline"):
        decode_bytes(data)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.export_memory_timeline:FutureWarning")
def test_what_torch_writes_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms of one real profile agree, and parameters stand in them with their size."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Linear(256, 512)
    optimizer = torch.optim.AdamW(model.parameters())
    options = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(2):
            model(torch.rand(64, 256)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    paths = [tmp_path / f"rank_{rank}.{form}" for rank, form in enumerate(("json.gz", "raw.json.gz"))]
    for path in paths:
        profiler.export_memory_timeline(str(path), device="cpu")
    sums, changes = (decode_bytes(gzip.decompress(path.read_bytes())) for path in paths)
    own = sum(one.numel() * 4 for one in model.parameters())
    assert told(sums)["parameters"][1] == told(changes)["parameters"][1] == own
    assert told(changes)["optimizer state"][1] >= 2 * own and set(told(changes)) <= set(CATEGORIES)
    assert abs((sums.devices[0].peak or 0) - (changes.devices[0].peak or 0)) <= own
    assert run(["report", "--only", "memory", str(tmp_path), "-f", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["compared_ranks"] == [0, 1] and page["devices"][0]["allocations"][0]["stack"][0]["file"] == ""
