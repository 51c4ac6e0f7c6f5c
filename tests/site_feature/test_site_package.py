"""An installed package adds an input, a rule, a section and a page, which are read, judged, shown and redacted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.cli import run
from rankscope.kinds.input_kinds import INPUTS
from rankscope.kinds.view_kinds import VIEWS
from rankscope.sessions.parquet_tables import SessionError, read_tables
from rankscope.tui.tabs import tabs_of
from tests.site_feature.installed import look_again
from tests.tui.detail.show import screen_text
from tests.tui.drive import opened

Captured = pytest.CaptureFixture[str]


def test_without_the_package_the_file_is_none_that_is_known(job: Path, capsys: Captured) -> None:
    run(["report", str(job), "-f", "json"])
    report = json.loads(capsys.readouterr().out)
    assert "fabricwatch" not in INPUTS
    assert {row["kind"] for row in report["inputs"]} == {"flight-recorder", "unknown"}


@pytest.mark.usefixtures("installed")
def test_its_input_is_read_and_its_rule_names_the_ranks_of_the_host(job: Path, capsys: Captured) -> None:
    assert run(["report", str(job), "-f", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert next(row for row in report["inputs"] if row["kind"] == "fabricwatch")["rows"] == 4
    first, *rest = report["findings"]
    assert (first["kind"], first["root_cause"]) == ("missing-rank", True)
    flaps = [finding for finding in rest if finding["kind"] == "link-flapped"]
    assert [finding["severity"] for finding in flaps] == ["warning", "warning"]
    assert "the host of ranks 0,1, went down 2 times" in flaps[0]["title"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_what_it_finds_is_escaped_and_redacted(job: Path, capsys: Captured, form: str) -> None:
    run(["report", str(job), "-f", form])
    plain = capsys.readouterr().out
    assert "acme" in plain and "\x1b" not in plain
    run(["report", str(job), "-f", form, "--redact"])
    redacted = capsys.readouterr().out
    assert "acme" not in redacted and "node17" not in redacted and "host-1" in redacted
    if form != "json":
        assert "Links that went down" in redacted and "1 fabric log" in redacted


@pytest.mark.usefixtures("installed")
def test_the_schema_of_the_report_knows_its_kinds(capsys: Captured) -> None:
    run(["tool", "schema", "report"])
    parts = json.loads(capsys.readouterr().out)["$defs"]
    kinds = {name: parts[name]["properties"]["kind"]["enum"] for name in ("FindingObject", "InputObject")}
    assert "link-flapped" in kinds["FindingObject"] and "fabricwatch" in kinds["InputObject"]


@pytest.mark.usefixtures("installed")
def test_doctor_says_what_it_adds(capsys: Captured) -> None:
    run(["doctor", "-f", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    mine = [(check["name"], check["value"], check["state"]) for check in checks if check["topic"] == "packages"]
    adds = "adds input fabricwatch, finding link-flapped, feature fabricwatch, page fabric"
    assert mine == [("rankscope-fabricwatch 1.2", adds, "good")]


@pytest.mark.usefixtures("installed")
async def test_its_page_opens_by_the_key_of_its_tab_and_leads_to_the_finding(job: Path) -> None:
    dataset = load([job])
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        tab = next(tab for tab in app.lanes.pages.tabs() if tab.number == 7)
        await pilot.press(*["7"] * len(tab.views))
        text = screen_text(app)
        assert "links that went down" in text and "node17" in text
        assert "\x1b" not in text and "leaf\\x1b" in text
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.lanes and "link mlx5_3" in screen_text(app)


@pytest.mark.usefixtures("installed")
async def test_a_page_that_fails_says_so_and_the_screen_goes_on(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load([job])
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        import fabricwatch_page  # type: ignore[import-not-found]  # there only while the package is installed

        monkeypatch.setattr(fabricwatch_page, "flaps", lambda _: 1 // 0)
        app.lanes.open_view("fabric")
        await pilot.pause()
        assert app.screen is not app.lanes
        shown = " ".join(screen_text(app).split())
        assert "the package rankscope-fabricwatch failed: fabricwatch_page:FabricScreen: ZeroDivisionError" in shown
        await pilot.press("escape")
        assert app.screen is app.lanes


@pytest.mark.usefixtures("installed")
def test_a_session_keeps_its_table_also_where_it_is_not_installed(
    job: Path, tmp_path: Path, capsys: Captured, target: Path
) -> None:
    run(["ingest", str(job), "-o", str(tmp_path / "session")])
    capsys.readouterr()
    run(["report", str(tmp_path / "session"), "-f", "json"])
    kinds = [finding["kind"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert kinds.count("link-flapped") == 2
    sys.path.remove(str(target))
    look_again()
    assert run(["report", str(tmp_path / "session")]) == 1
    out = capsys.readouterr().out
    assert "missing-rank" in out and "link-flapped" not in out


def test_no_session_takes_a_table_of_a_package_for_one_of_ours(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "site.ops.parquet")
    with pytest.raises(SessionError, match=r"its table 'site\.ops'"):
        read_tables(tmp_path, {"site.ops": 1})


@pytest.mark.parametrize("column", ["not a name", "notes"])
def test_a_table_of_a_package_in_a_session_holds_numbers_and_text(tmp_path: Path, column: str) -> None:
    pl.DataFrame({column: [["text"]]}).write_parquet(tmp_path / "site.links.parquet")
    with pytest.raises(SessionError, match="neither number nor text: not a session of rankscope"):
        read_tables(tmp_path, {"site.links": 1})


@pytest.mark.usefixtures("installed")
def test_its_view_is_in_its_tab_behind_ours() -> None:
    tabs = tabs_of([(view.name, view.tab) for view in VIEWS.values()], has_lanes=True)
    assert {tab.number for tab in tabs if "fabric" in tab.views} == {7} and tabs[-1].views[-1] == "fabric"
