"""Draws the pictures of the docs with the real app: `make screenshot` writes docs/*.svg.

Pictures of simulated faults have a golden of the same screen: `tests/tui/test_golden.py` compares both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from tests.tui.detail.number_jobs import flipped
from tests.tui.drive import loads
from tests.tui.jobs import SHOWN_FAULTS

from rankscope.assemble.load import load
from rankscope.commands.source import JobSource
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import Load, ViewOptions

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_data"
STILL_S = 600
"""How long after its last event the job was dumped, in the pictures: a checkout forgets when files were written."""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that the picture would fetch from the net."""
LOG = """\
[rank0]: step 41 loss 2.3104
[rank2]: Traceback (most recent call last):
[rank2]:   File "/job/train.py", line 88, in train
[rank2]:     loss.backward()
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has 79 GiB
[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.
[rank1]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.
"""


@dataclass(frozen=True)
class Picture:
    """A picture of a sample: its file in docs, the sample, the size of the screen and the keys pressed before."""

    name: str
    sample: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()


PICTURES = (
    Picture("small.svg", "two_groups", (80, 24), ("down",)),
    Picture("traces.svg", "slow_loader", (100, 24)),
    Picture("log.svg", "", (80, 24)),
)


async def draw(load: Load, path: str, size: tuple[int, int], keys: tuple[str, ...] = ()) -> str:
    """The screen of the app on a path, as SVG, once everything is on it."""
    app = RankscopeApp(load=load, title=path, options=ViewOptions(palette="true"))
    async with app.run_test(size=size) as pilot:
        for _ in range(300):
            await pilot.pause(0.1)
            if app.screen is not app.opening and not app.lanes.detail_is_due:
                break
        await app.workers.wait_for_complete()
        await pilot.press(*keys)
        await pilot.pause(0.5)
        svg = FONTS.sub("", app.export_screenshot(title=f"rankscope {path}"))
        # some programs take away blanks at the begin of a text, hard ones, too
        return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


def place(sample: str) -> str:
    """The path of a copy of a sample, or of a log; dumps are written `STILL_S` after the last thing that happened."""
    if not sample:
        Path("job.log").write_text(LOG)
        return "job.log"
    traces = any((SAMPLES / sample).glob("*.pt.trace.json.gz"))
    folder = Path("traces" if traces else "dumps")
    shutil.copytree(SAMPLES / sample, folder, dirs_exist_ok=True)
    if not traces:
        dataset = load([folder])
        written = dataset.ops.select(pl.col("created_ns").max()).item() / 1e9 + STILL_S
        for path in folder.iterdir():
            os.utime(path, (written, written))
    return f"{folder}/"


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws all pictures."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the folder to write to (default: docs)")
    out: Path = parser.parse_args(arguments).out.resolve()
    os.environ["TZ"] = "UTC"
    time.tzset()
    for picture in PICTURES:
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            path = place(picture.sample)
            svg = asyncio.run(draw(JobSource((path,)).load, path, picture.size, picture.keys))
            (out / picture.name).write_text(svg)
    svg = asyncio.run(draw(loads(*flipped()), "dumps/", (80, 24), ("number_sign",)))
    (out / "numbers.svg").write_text(svg)
    for shown in SHOWN_FAULTS:
        svg = asyncio.run(draw(loads(*shown.job()), "dumps/", shown.screen))
        (out / f"{shown.name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
