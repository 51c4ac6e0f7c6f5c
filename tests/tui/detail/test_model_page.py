"""The page of models: bytes of ranks by coverage, parameters, and the sides that hold one otherwise."""

from __future__ import annotations

from rankscope.analysis import analyse
from rankscope.features.model.model_page import ModelScreen
from rankscope.schema import Dataset
from tests.model_writer import Row, buffer, described_job, parameter, transformer
from tests.tui.detail.show import OneScreen, opened, screen_text
from tests.tui.drive import opened as opened_app
from tests.tui.drive import workers_done


def mixed(rank: int) -> list[Row]:
    """Sharded layers, a whole embedding, an ignored adapter and a buffer; on rank 2 a layer is frozen."""
    rows = [parameter("embed", (2048, 256)), *transformer(4)[1:], parameter("lora", (8, 256), wrapper="ignored")]
    rows[2] |= {"requires_grad": rank != 2}
    return [*rows, buffer("rope\x1b[31m", (512, 64))]


def page_of(dataset: Dataset) -> ModelScreen:
    """The page of a job."""
    return ModelScreen(dataset, analyse(dataset))


async def settled(app: OneScreen) -> str:
    """The text once the parameters are summed up."""
    await workers_done(app)
    return screen_text(app)


async def test_ranks_show_their_bytes_by_coverage_the_odd_one_first() -> None:
    async with opened(page_of(described_job(mixed))) as (app, _):
        text = await settled(app)
        head, first = text.splitlines()[1:3]
        assert head.split() == [
            "rank", "tensors", "params", "grads", "states", "buffers", "sharded", "ignored", "unwrapped", "share",
        ]  # fmt: skip
        told = "2* 9 3.1 MiB 3.1 MiB 6.3 MiB 128 KiB 1.1 MiB 8 KiB 2 MiB 48%"
        assert first.split() == [">", *told.split()]
        assert "unwrapped  2 MiB: embed" in text and "ignored  8 KiB: lora" in text
        assert "0.up: frozen on rank 2" in text.splitlines()[0]


async def test_parameters_tell_who_holds_them_otherwise() -> None:
    page = page_of(described_job(mixed))
    async with opened(page) as (app, pilot):
        await settled(app)
        await pilot.press("g", "m", "j")
        text = screen_text(app)
        assert "0.up  on 4 ranks  differs" in text
        assert "ranks 0,1,3  [256,256] float32 trained cuda fsdp2 S(0) on dp 4: 256 KiB" in text
        assert "rank 2  [256,256] float32 frozen" in text
        page.find("rope")
        text = screen_text(app)
        assert page.listing.count == 1 and "buffer" in text and "\x1b" not in text
        await pilot.press("enter")
        assert "rank 0 has no lane" in screen_text(app)


async def test_an_input_of_models_only_opens_their_page() -> None:
    dataset = described_job(lambda _: transformer(4))
    async with opened_app((dataset, analyse(dataset)), at_start=ModelScreen) as (app, _):
        assert "no rank differs from its peers" in screen_text(app)
