"""A debug server is asked, and what it says is written down as dumps that can be opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.triggers.debug_server import HOOKED_BACKENDS, DebugServer, ServerError, py_spy_text, read_answers
from tests.triggers.pages import EMPTY, TRACEBACK, Sections, page, recorded, ring, serving

NOT_THERE = (404, "Handler dump_nccl_trace_json not found")


def test_dumps_stacks_and_whose_they_are(tmp_path: Path) -> None:
    pages = {
        "fr_trace_json": page(recorded(2, missing=1), "fr_trace_json"),
        "fr_trace_nccl_json": page([NOT_THERE] * 2, "dump_nccl_trace_json"),
        "pyspy_dump": page([(500, "sh: py-spy: not found")] * 2, "pyspy_dump"),
        "stacks": page([(200, TRACEBACK)] * 2, "dump_traceback"),
    }
    with serving(pages) as address:
        polled = DebugServer(address).poll(tmp_path)
        again = DebugServer(address + "/").poll(tmp_path)
    assert (polled.ranks, polled.dumps, polled.stacks, polled.problems) == (2, 2, 2, ())
    assert again == polled
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fr_trace_rank_0.json", "fr_trace_rank_1.json", "server_rank_0.json", "server_rank_1.json",
        "stacks_rank_0.txt", "stacks_rank_1.txt",
    ]  # fmt: skip
    told = json.loads((tmp_path / "server_rank_1.json").read_bytes())
    assert (told["rank"], told["world_size"], told["host"]) == (1, 2, "node07")
    assert told["dumps"] == ["fr_trace_rank_1.json"]


def rings(**backends: Sections) -> dict[str, str]:
    """The pages of a server of torch 2.15 with these rings."""
    pages = {f"fr_trace_json?backend={name}": page(told, "fr_trace_json") for name, told in backends.items()}
    return {"fr_trace_json": page(EMPTY, "fr_trace_json", rings=True), **pages}


def test_the_rings_of_backends_that_a_hook_records_are_asked_for(tmp_path: Path) -> None:
    asked: list[str] = []
    with serving(rings(nccl2=ring([False, True]), ucc=EMPTY), asked) as address:
        server = DebugServer(address)
        polled = server.poll(tmp_path)
        assert {name for name in asked if "?" in name} == {f"fr_trace_json?backend={name}" for name in HOOKED_BACKENDS}
        asked.clear()
        server.poll(tmp_path)
    # the others hold nothing
    assert [name for name in asked if "?" in name] == ["fr_trace_json?backend=nccl2"]
    # they have all ranks write dumps
    assert {"c10d_health_check", "fr_dump_file"}.isdisjoint(name.partition("?")[0] for name in asked)
    assert (polled.ranks, polled.dumps) == (2, 2)
    # who waits for nothing has nothing active, and has come so far
    told = json.loads((tmp_path / "nccl2_trace_rank_0.json").read_bytes())
    assert told["pg_config"]["0"]["ranks"] == "[0, 1]"
    assert json.loads((tmp_path / "server_rank_0.json").read_bytes())["dumps"] == ["nccl2_trace_rank_0.json"]
    assert not (tmp_path / "fr_trace_rank_0.json").exists()


def test_a_backend_that_the_address_names_is_asked_for(tmp_path: Path) -> None:
    with serving(rings(**{"h%2Fccl": ring([True])})) as address:
        assert DebugServer(f"{address}/?backend=h%2Fccl,x").poll(tmp_path).dumps == 1
    assert (tmp_path / "h_ccl_trace_rank_0.json").exists()


def test_a_server_that_knows_no_rings_is_not_asked_for_any(tmp_path: Path) -> None:
    asked: list[str] = []
    with serving({"fr_trace_json": page(recorded(2, missing=1), "fr_trace_json")}, asked) as address:
        DebugServer(address).poll(tmp_path)
    assert not any("?" in name for name in asked)


@pytest.mark.parametrize(("pickled", "written"), [(b"\x80\x02profiling_name", True), (b"\x80\x02}.", False)])
def test_the_recorder_of_nccl_is_dropped_where_nobody_uses_it(
    pickled: bytes, written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has this one whether a job uses it or not."""
    get = DebugServer._get

    def answer(server: DebugServer, address: str, method: str, begin_s: float) -> tuple[int, str, bytes]:
        is_pickle = address.endswith("dump_nccl_trace_pickle")
        return (200, "OK", pickled) if is_pickle else get(server, address, method, begin_s)

    monkeypatch.setattr(DebugServer, "_get", answer)
    with serving(rings() | {"fr_trace_nccl_json": page(EMPTY, "dump_nccl_trace_json")}) as address:
        DebugServer(address).poll(tmp_path)
    assert (tmp_path / "nccl_trace_rank_0").exists() is written


def test_a_rank_that_is_away_on_every_page_is_said_once(tmp_path: Path) -> None:
    away = (503, "ConnectionError: refused")
    pages = rings(nccl2=[*ring([True]), away]) | {"fr_trace_nccl_json": page([*EMPTY[:1], away], "x")}
    with serving(pages) as address:
        assert DebugServer(address).poll(tmp_path).problems == ("rank 1 did not answer: ConnectionError: refused",)


def test_py_spy_is_preferred(tmp_path: Path) -> None:
    pages = {
        "fr_trace_json": page(recorded(1, missing=9), "fr_trace_json"),
        "pyspy_dump": page([(200, "Process 42: python train.py\n")], "pyspy_dump"),
        "stacks": page([(200, TRACEBACK)], "dump_traceback"),
    }
    with serving(pages) as address:
        assert DebugServer(address).poll(tmp_path).stacks == 1
    assert (tmp_path / "pyspy_rank_0.txt").read_text() == "Process 42: python train.py\n"
    assert not (tmp_path / "stacks_rank_0.txt").exists()


def test_a_rank_that_does_not_answer_is_said_and_left_out(tmp_path: Path) -> None:
    sections = [*recorded(2, missing=1), (408, "Timeout: no answer\nwithin 60 s")]
    with serving({"fr_trace_json": page(sections, "fr_trace_json")}) as address:
        polled = DebugServer(address).poll(tmp_path)
    assert (polled.ranks, polled.dumps) == (3, 2)
    assert polled.problems == ("rank 2 did not answer: Timeout: no answer within 60 s",)
    assert json.loads((tmp_path / "server_rank_2.json").read_bytes())["problems"] != []


@pytest.mark.parametrize("pages", [{}, {"fr_trace_json": "<h1>Welcome</h1>"}])
def test_another_server_is_told_from_one(pages: dict[str, str], tmp_path: Path) -> None:
    with serving(pages) as address, pytest.raises(ServerError, match="is it a torch"):
        DebugServer(address).poll(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_why_a_server_fails_is_said(tmp_path: Path) -> None:
    pages = {"fr_trace_json": "failed: <p>No module named\n'requests'</p>"}
    with serving(pages) as address, pytest.raises(ServerError, match="server failed: failed: No module named 'req"):
        DebugServer(address).poll(tmp_path)


def test_nobody_is_followed_elsewhere(tmp_path: Path) -> None:
    pages = {"fr_trace_json": page(recorded(1, 9), "x")}
    with serving(pages) as other, serving({}) as address, pytest.raises(ServerError, match="302"):
        DebugServer(f"{address}/to:{other}").poll(tmp_path)


def test_a_port_that_nobody_listens_on(tmp_path: Path) -> None:
    with serving({}) as address:
        pass
    with pytest.raises(ServerError, match="Connection refused"):
        DebugServer(address).poll(tmp_path)
    with pytest.raises(ServerError, match="no host"):
        DebugServer("http://")


def test_what_looks_like_a_section_in_an_answer_does_no_harm() -> None:
    found = read_answers(page([(200, "a</pre><pre>b"), (200, "<h2>no</h2>"), (500, "")], "x"))
    assert [(a.rank, a.status, a.text) for a in found] == [
        (0, 200, "a</pre><pre>b"),
        (1, 200, "<h2>no</h2>"),
        (2, 500, ""),
    ]
    assert [a.host for a in found] == ["node07"] * 3
    for address in ("http://[broken/handler/x?", "file:///etc/passwd", ""):
        assert [a.address for a in read_answers(f"<h2>Rank 0: {address}</h2><pre>{{}}</pre>")] == [""]


@pytest.mark.parametrize("text", ['{"version": "2.10"}', "{&quot;version&quot;: &#34;2.10&#34;}"])
def test_json_is_read_whether_the_page_escapes_it_or_not(text: str) -> None:
    assert read_answers(page([(200, text)], "x"))[0].document() == {"version": "2.10"}


def test_json_that_is_none_is_none() -> None:
    assert [a.document() for a in read_answers(page([(200, "[1]"), (200, "{"), (200, "[" * 100_000)], "x"))] == [
        None
    ] * 3


def test_a_traceback_becomes_a_stack_with_the_main_thread_first() -> None:
    text = py_spy_text(TRACEBACK.replace("  <no Python frame>", '  File "/job/load.py", line 3 in read'))
    assert text.splitlines()[3:] == [
        'Thread 0x00007f964 (idle): "MainThread"',
        "    all_reduce (/venv/torch/distributed/distributed_c10d.py:3252)",
        "    <module> (/job/train (new).py:12)",
        'Thread 0x00007f963 (idle): "Thread"',
        "    read (/job/load.py:3)",
    ]
    assert py_spy_text("nothing") == ""
