"""Settings as a table: folded ranks, what was not told, and the way to a rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.report.settings_section import (
    SettingKeys,
    SettingObject,
    SettingValue,
    ValueObject,
    all_settings,
    differing_settings,
    json_keys,
)
from rankscope.schema.tables import SETTINGS
from rankscope.text.secrets import HIDDEN
from rankscope.tui.detail.screens.settings_page import SETTING_COLUMNS, SettingsScreen, setting_text
from tests.logs import setting, with_logs
from tests.tui.detail.goldens import logged
from tests.tui.detail.samples import CULPRIT, HOSTILE, QUIET, hang, hostile, large
from tests.tui.detail.show import opened, screen_text


def test_ranks_with_one_value_stand_together_the_most_first() -> None:
    told = [setting(r, "NCCL_ALGO", "Tree" if r == 3 else "Ring") for r in range(8)]
    (one,) = differing_settings(with_logs(hang()[0], settings=told))
    assert one.values == (SettingValue("Ring", (0, 1, 2, 4, 5, 6, 7)), SettingValue("Tree", (3,)))


def test_what_some_did_not_tell_differs_only_for_variables_of_the_same_source() -> None:
    told = [
        setting(0, "NCCL_ALGO", "Ring"), setting(1, "NCCL_DEBUG", "INFO"), setting(0, "NCCL_DEBUG", "INFO"),
        setting(0, "version:nccl", "2.27.3"), setting(2, "version:torch", "2.10", source="collect_env"),
    ]  # fmt: skip
    found = {one.name: one for one in all_settings(with_logs(hang()[0], settings=told))}
    assert found["NCCL_ALGO"].values == (SettingValue("Ring", (0,)), SettingValue(None, (1,)))
    assert [name for name, one in found.items() if one.differs] == ["NCCL_ALGO"]
    assert found["version:nccl"].values[-1] == SettingValue(None, (1,))


def test_what_is_set_for_each_rank_does_not_differ() -> None:
    told = [setting(r, "RANK", str(r)) for r in range(2)]
    told += [setting(r, name, f"{name}{r}") for r in range(4) for name in ("OWN_FILE", "LOCAL_RANK")]
    assert differing_settings(with_logs(hang()[0], settings=told)) == []


def test_a_process_that_tells_two_values_has_both() -> None:
    told = [setting(0, "A_B", "2"), setting(0, "A_B", "1"), setting(1, "A_B", "1"), setting(1, "A_B", "1")]
    (one,) = differing_settings(with_logs(hang()[0], settings=told))
    assert one.values == (SettingValue("1", (1,)), SettingValue("1 and 2", (0,)))


def test_processes_of_unknown_rank_are_counted() -> None:
    told = [setting(None, "A_B", "1", pid=pid) for pid in (7, 8)] + [setting(0, "A_B", "2"), setting(1, "A_B", "2")]
    (one,) = differing_settings(with_logs(hang()[0], settings=told))
    assert one.values == (SettingValue("2", (0, 1)), SettingValue("1", (), 2)) or one.values[0] == SettingValue(
        "1", (), 2
    )
    assert any("2 of unknown rank" in parts.plain for parts in setting_text(one, None, 80))


def test_secrets_differ_without_being_shown() -> None:
    told = [setting(r, "HF_TOKEN", "abc" if r else "xyz") for r in range(4)]
    values = [ValueObject(HIDDEN, (1, 2, 3)), ValueObject(HIDDEN, (0,))]
    dataset, analysis = hang()
    assert json_keys(with_logs(dataset, settings=told), analysis) == SettingKeys([SettingObject("HF_TOKEN", values)])


async def test_all_settings_are_shown_when_asked_for_and_one_leads_to_its_rank() -> None:
    async with opened(SettingsScreen(*logged())) as (app, pilot):
        assert "version:nccl" not in screen_text(app)
        await pilot.press("g", "a")
        await pilot.pause()
        assert "version:nccl" in screen_text(app)
        await pilot.press("slash", *"tree", "enter")
        await pilot.pause()
        assert "NCCL_DEBUG" not in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert (app.result.rank, app.result.seq) == (CULPRIT, 4)


async def test_a_setting_that_a_finding_speaks_of_is_first_and_has_its_severity() -> None:
    dataset, analysis = logged()
    about = Finding("settings-mismatch", "warning", "ranks differ", "", evidence=(Evidence("NCCL_ZZ=1 on rank 2"),))
    told = [*dataset.settings.to_dicts(), setting(2, "NCCL_ZZ", "1"), setting(1, "NCCL_ZZ_TOP", "1")]
    both = with_logs(dataset, dataset.messages.to_dicts(), told)
    async with opened(SettingsScreen(both, replace(analysis, findings=(about,)))) as (app, _):
        rows = screen_text(app).splitlines()
        assert rows[2].startswith(">WARN NCCL_ZZ ")
        assert "warning: ranks differ" in screen_text(app)
        assert sum("WARN" in row for row in rows) == 1


async def test_without_settings_the_screen_says_how_to_get_them() -> None:
    async with opened(SettingsScreen(*hang())) as (app, pilot):
        assert "no settings loaded: give logs written with NCCL_DEBUG=INFO" in screen_text(app)
        await pilot.press("enter", "slash", *"x", "enter")
        await pilot.pause()
        assert "nothing here has 'x'" in screen_text(app)


async def test_where_nothing_differs_the_key_for_all_is_named() -> None:
    same = with_logs(hang()[0], settings=[setting(r, "NCCL_ALGO", "Ring") for r in range(8)])
    async with opened(SettingsScreen(same, QUIET)) as (app, _):
        assert "no setting differs between ranks; g a lists all" in screen_text(app)


@pytest.mark.parametrize("width", [1, 20, 80, 200])
def test_hostile_settings_are_made_harmless(width: int) -> None:
    told = [setting(r, HOSTILE, f"{HOSTILE}{r % 2}" if r else "") for r in range(7)]
    (one,) = all_settings(with_logs(hang()[0], settings=told))
    lines = [SETTING_COLUMNS.measured([(one, None)]).line((one, None), width), *setting_text(one, None, width)]
    assert all(parts.plain.isprintable() for parts in lines)


async def test_a_hostile_setting_does_not_reach_the_terminal() -> None:
    dataset, analysis = hostile()
    told = with_logs(dataset, settings=[setting(r, HOSTILE, f"{HOSTILE}{r}") for r in range(2)])
    async with opened(SettingsScreen(told, analysis)) as (app, _):
        assert screen_text(app).replace("\n", "").isprintable()


def test_sixteen_thousand_ranks_with_forty_settings_are_folded() -> None:
    ranks, names = 16_384, 40
    rank = np.repeat(np.arange(ranks, dtype=np.int32), names)
    number = np.tile(np.arange(names), ranks)
    table = pl.DataFrame({"rank": rank, "number": number}).select(
        "rank", host=pl.lit("node"), pid=pl.col("rank").cast(pl.Int64), name=pl.format("NCCL_{}", "number"),
        value=pl.when((pl.col("number") == 3) & (pl.col("rank") == 77)).then(pl.lit("odd")).otherwise(pl.lit("1")),
        source=pl.lit("nccl"),
    )  # fmt: skip
    dataset = replace(large(4), settings=pl.concat([SETTINGS.empty(), table], how="diagonal_relaxed"))
    (one,) = differing_settings(dataset)
    assert one.values[1] == SettingValue("odd", (77,))


async def test_the_screen_of_a_quiet_analysis_needs_no_finding() -> None:
    dataset, _ = logged()
    async with opened(SettingsScreen(dataset, Analysis("", "healthy"))) as (app, _):
        assert "WARN" not in screen_text(app)
