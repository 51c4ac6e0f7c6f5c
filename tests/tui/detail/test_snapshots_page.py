"""The page of memory snapshots: its three parts, its keys, and text from files on it."""

from __future__ import annotations

from dataclasses import replace

from textual.pilot import Pilot

from rankscope.analysis import analyse
from rankscope.features.memory.page.memory_page import MemoryScreen
from rankscope.features.memory.page.snapshots_page import SnapshotsScreen, place_facts
from rankscope.features.memory.rules.snapshot_holders import PlaceOverRanks
from rankscope.schema import Dataset
from rankscope.tui.selection import Selection
from tests.memory_writer import GIB, MIB, sampled_job, snapshot_job
from tests.tui.detail.samples import hang
from tests.tui.detail.show import OneScreen, opened, screen_text
from tests.tui.drive import opened as opened_app
from tests.tui.drive import workers_done


def caching(rank: int) -> dict[str, int]:
    """Rank 2 keeps what the others do not."""
    same = {"forward": 9 * GIB + rank * MIB, "adam": 12 * GIB}
    return same | ({"remember": 2 * GIB} if rank == 2 else {})


def page_of(dataset: Dataset) -> SnapshotsScreen:
    """The page of a job."""
    return SnapshotsScreen(dataset, analyse(dataset))


async def ready(app: OneScreen, pilot: Pilot[None]) -> str:
    """The text once the snapshots are summed up."""
    await workers_done(app)
    await pilot.pause()
    return screen_text(app)


async def test_the_place_that_one_rank_holds_alone_comes_first() -> None:
    page = page_of(snapshot_job(caching))
    async with opened(page) as (app, pilot):
        text = await ready(app, pilot)
        assert "rank 2 HOLDS ALONE  2 GiB, the others none: remember parts.py:9" in text
        rows = text.splitlines()[3:6]
        assert [row.split()[:2] for row in rows] == [[">", "!"], ["12", "GiB"], ["9", "GiB"]]
        assert "held   2 GiB on rank 2; none on ranks 0,1,3" in text and "train_step /job/train.py:81" in text
        await pilot.press("j", "j")
        assert "held   9 GiB on ranks 0-3" in screen_text(app)


def test_ranks_stand_behind_the_size_that_they_hold() -> None:
    place = PlaceOverRanks((), {rank: (rank // 2) << 30 for rank in range(24)})
    text = place_facts(place, range(24)).plain
    assert "held   11 GiB on ranks 22,23, 10 GiB on ranks 20,21, 9 GiB" in text
    assert "4 GiB on ranks 8,9, less on 6 ranks more" in text


async def test_keys_show_devices_and_segments() -> None:
    page = page_of(snapshot_job(caching))
    async with opened(page) as (app, pilot):
        await ready(app, pilot)
        await pilot.press("g", "d")
        assert "rank 1, device 1: snapshot_rank_1.pickle  2 of 4, 2 places" in screen_text(app)
        await pilot.press("g", "p", "g", "p", "g", "m")
        text = screen_text(app)
        row = next(line.split() for line in text.splitlines() if line.startswith(">"))
        assert row[:2] == [">", "2"] and row[-1] == "#########."
        assert "2.9 GiB in gaps of used segments, 1 GiB in unused segments" in text
        await pilot.press("j", "enter")
        assert page.part == "device" and "rank 3, device 3" in screen_text(app)
        await pilot.press("g", "r")
        assert "rank 3 has no lane" in screen_text(app)


async def test_one_rank_without_a_history_shows_its_device() -> None:
    page = page_of(snapshot_job(caching, ranks=1, history=False))
    async with opened(page) as (app, pilot):
        text = await ready(app, pilot)
        assert page.part == "device" and "one rank: nothing to compare" in text
        assert [line.split()[:2] for line in text.splitlines()[3:4]] == [[">", "-"]]
        assert page.check_action("device", ()) is False


async def test_names_of_functions_are_shown_without_control_characters() -> None:
    page = page_of(snapshot_job(lambda _: {"bad\x1b[31m[red]name": GIB}, ranks=2))
    async with opened(page) as (app, pilot):
        text = await ready(app, pilot)
        assert "\x1b" not in text and "[red]name" in text


async def test_the_page_of_memory_leads_to_snapshots_and_to_the_lanes() -> None:
    dataset, analysis = hang()
    samples, snapshots = sampled_job(lambda *_: GIB), snapshot_job(caching)
    both = replace(
        dataset, memory=samples.memory, snapshots=snapshots.snapshots, allocations=snapshots.allocations,
        files=snapshots.files, stacks=snapshots.stacks,
    )  # fmt: skip
    page = MemoryScreen(both, analysis)
    async with opened(page) as (app, pilot):
        await ready(app, pilot)
        await pilot.press("g", "a")
        assert "HOLDS ALONE" in await ready(app, pilot)
        await pilot.press("g", "r")
        await pilot.pause()
        assert app.result == Selection(2)


async def test_an_input_of_snapshots_only_opens_their_page() -> None:
    dataset = snapshot_job(caching)
    async with opened_app((dataset, analyse(dataset)), at_start=SnapshotsScreen) as (app, _):
        assert isinstance(app.screen, SnapshotsScreen)


async def test_the_page_of_memory_without_samples_names_the_key_of_snapshots() -> None:
    dataset = snapshot_job(caching)
    async with opened(MemoryScreen(dataset, analyse(dataset))) as (app, pilot):
        assert "no samples of memory; g a shows the snapshots" in screen_text(app)
        await pilot.press("g", "a")
        assert "HOLDS ALONE" in await ready(app, pilot)
