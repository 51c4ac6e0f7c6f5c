"""`rankscope http://...`: a debug server's answers are opened like dumps."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import click
import pytest

from rankscope.cli import run
from rankscope.commands import remote
from rankscope.commands.remote import local_input
from rankscope.watching.census import AwayError, FileCensus
from tests.parsers.dumps import job
from tests.triggers.pages import page, recorded, serving
from tests.tui.terminal import Terminal

Captured = pytest.CaptureFixture[str]
ENV = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def test_a_report_on_a_server(capsys: Captured) -> None:
    with serving({"fr_trace_json": page(recorded(4, missing=2), "fr_trace_json")}) as address:
        assert run(["report", address, "--format", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [f["culprit_ranks"] for f in said["findings"] if f["root_cause"]] == [[2]]
    assert said["findings"][0]["culprits"][0]["host"] == "node07"
    assert said["world_size"] == 4


def test_a_report_calls_a_server_by_its_address(capsys: Captured, tmp_path: Path) -> None:
    with serving({"fr_trace_json": page(recorded(4, missing=2), "fr_trace_json")}) as address:
        run(["report", address])
        alone = capsys.readouterr().out
        run(["report", address, str(tmp_path)])
        together = capsys.readouterr().out
        run(["report", address, "--redact"])
    assert f"\n{address}: 4 ranks, 1 group" in alone
    assert f"\n{address} and 1 more: 4 ranks, 1 group" in together
    assert "\nurl-1: 4 ranks, 1 group" in capsys.readouterr().out


@pytest.mark.pty
@pytest.mark.parametrize("how", [(), ("--watch",)])
def test_the_screen_calls_a_server_by_its_address(how: tuple[str, ...]) -> None:
    with serving({"fr_trace_json": page(recorded(4, missing=2), "fr_trace_json")}) as address:
        title = f" rankscope {address}  4 ranks"
        with Terminal([sys.executable, "-m", "rankscope", address, *how], ENV, (100, 24)) as terminal:
            terminal.until(lambda text: text.startswith(title))
            terminal.press("q")
            assert terminal.wait() == 0
        drawn = terminal.received
    assert b"/rankscope-" not in drawn


def test_no_server_is_one_line(capsys: Captured) -> None:
    with serving({}) as address:
        assert run(["report", address]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"rankscope: {address}: no rank answered")
    assert said.err.count("\n") == 1


def test_a_server_that_does_not_answer_is_a_row_and_the_rest_is_read(capsys: Captured, tmp_path: Path) -> None:
    for recorder in job(4):
        (tmp_path / f"rank_{recorder.rank}").write_bytes(recorder.pickle())
    with serving({}) as address:
        run(["report", address, str(tmp_path), "--format", "json"])
    inputs = {row["path"]: row for row in json.loads(capsys.readouterr().out)["inputs"]}
    assert inputs[address]["kind"] == "unreadable" and inputs[address]["problem"].startswith("no rank answered")
    assert len(inputs) == 5


def test_a_user_and_a_password_are_neither_sent_nor_shown(capsys: Captured) -> None:
    asked: list[str] = []
    with serving({}, asked) as address:
        assert run(["report", address.replace("//", "//me:secret@")]) == 2
    said = capsys.readouterr().err
    assert "takes no user and password" in said and "secret" not in said and asked == []


def test_paths_stay_what_they_are(tmp_path: Path) -> None:
    with local_input((str(tmp_path),), again=True) as local:
        assert local.paths == (str(tmp_path),)


def test_what_was_fetched_goes_with_it_and_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "POLL_S", 0.01)
    pages = {"fr_trace_json": page(recorded(2, missing=1), "fr_trace_json")}
    with serving(pages) as address:
        with local_input(("dumps", address), again=True) as local:
            paths = local.paths
            assert paths[0] == "dumps"
            dump = Path(paths[1], "fr_trace_rank_1.json")
            assert len(json.loads(dump.read_bytes())["entries"]) == 5
            pages["fr_trace_json"] = page(recorded(2, missing=0), "fr_trace_json")
            while len(json.loads(dump.read_bytes())["entries"]) == 5:
                pass
        assert not Path(paths[1]).exists()


def test_a_server_that_is_gone_is_away_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "POLL_S", 0.01)
    pages = {"fr_trace_json": page(recorded(2, missing=1), "fr_trace_json")}
    with serving(pages) as address, local_input((address,), again=True) as local:
        (path,) = local.paths
        census, kept = FileCensus([Path(path)]), dict(pages)
        assert census.scan().changed
        pages.clear()
        with pytest.raises(AwayError, match=f"{address}: no rank answered"):
            while True:
                census.scan()
        pages.update(kept)
        back = None
        while back is None:
            with contextlib.suppress(AwayError):
                back = census.scan()
        assert not back.gone, "what it told before stays"


def test_a_job_whose_server_does_not_answer_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(remote, "RETRY_S", 0.01)
    pages: dict[str, str] = {}
    with serving(pages) as address, local_input((address,), again=True) as local:
        (path,) = local.paths
        assert "no rank answered" in capsys.readouterr().err
        census = FileCensus([Path(path)])
        with pytest.raises(AwayError, match=f"{address}: no rank answered"):
            census.scan()
        pages["fr_trace_json"] = page(recorded(2, missing=1), "fr_trace_json")
        found = None
        while found is None:
            with contextlib.suppress(AwayError):
                found = census.scan()
        assert {file.shown for file in found.changed} >= {"fr_trace_rank_0.json", "fr_trace_rank_1.json"}


def test_an_address_that_is_none() -> None:
    with pytest.raises(click.ClickException, match="no host in it"), local_input(("http://",), again=False):
        pass
