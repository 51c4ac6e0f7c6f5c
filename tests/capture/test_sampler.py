"""The thread that writes: what it asks of the recorder and when, with a recorder that stands in for torch's."""

from __future__ import annotations

import pickle
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture import files, recorder, sampler
from rankscope.capture.card import SidecarRecord
from rankscope.capture.sampler import INTERVAL_REASON, DumpRequest, Sampler
from rankscope.capture.settings import CaptureSettings
from tests.capture.ranks import card as told
from tests.capture.torch_module import torch_module


class Torch:
    """As much of torch as the capture looks at."""

    def __init__(self, backend: str = "gloo") -> None:
        self.calls: list[tuple[str, bool]] = []
        self.entries = 1
        self.initialized = True
        group = types.SimpleNamespace(group_desc="default_pg")
        hashable = id(group)
        self.world = types.SimpleNamespace(
            pg_names={hashable: "0"},
            pg_group_ranks={hashable: {0: 0, 1: 1}},
            pg_map={hashable: (backend, None)},
            pg_backend_config={hashable: backend},
        )

    def module(self) -> Any:
        """The module `torch`."""
        return torch_module("2.13.0", self.world, lambda: self.initialized, self._dump("nccl"), self._dump("fr"))

    def _dump(self, name: str) -> Any:
        def dump(includeCollectives: bool, includeStackTraces: bool, onlyActive: bool) -> bytes:  # noqa: N803
            assert includeCollectives and not onlyActive
            self.calls.append((name, includeStackTraces))
            return b"profiling_name" * self.entries + b"frames" * includeStackTraces

        return dump


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    return fake


def made(folder: Path, **given: Any) -> Sampler:
    return Sampler(CaptureSettings(str(folder), **given), SidecarRecord())


def serve(one: Sampler, reason: str = INTERVAL_REASON, stacks: bool = False) -> None:
    one._serve(DumpRequest(reason, stacks))


def test_stacks_wait_until_they_are_worth_their_time(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path)
    for _ in range(3):
        torch.entries += 1
        serve(one)
    assert torch.calls == [("fr", False)] * 3
    serve(one, "signal", stacks=True)
    assert torch.calls[3:] == [("fr", False), ("fr", True)]
    assert (tmp_path / "fr_trace_rank_1").read_bytes().endswith(b"frames")


def test_a_rank_that_stands_still_gets_stacks(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path)
    for _ in range(sampler.STILL_DUMPS):
        serve(one)
    assert ("fr", True) not in torch.calls
    serve(one)
    assert torch.calls[-1] == ("fr", True)


def entries(noticed: int, retired: bool = False, state: str = "completed") -> bytes:
    """What a recorder says of one operation that ended a while ago and of one of which that was just `noticed`."""
    old = {"profiling_name": "nccl:all_reduce", "record_id": 0, "time_discovered_completed_ns": 10, "retired": True}
    new = {**old, "record_id": 1, "time_discovered_completed_ns": noticed, "retired": retired, "state": state}
    return pickle.dumps({"version": "2.10", "padding": "-" * 1000, "entries": [old, new]})


def test_what_every_dump_notices_anew_is_no_progress() -> None:
    assert recorder.says_same(entries(1 << 40), entries((1 << 40) + 1))
    assert recorder.says_same(entries(7), entries(7))
    assert not recorder.says_same(entries(1 << 40, retired=True), entries((1 << 40) + 1, retired=True))
    assert not recorder.says_same(entries(1 << 40, state="scheduled"), entries(1 << 40, state="completed"))
    assert not recorder.says_same(entries(1 << 40, state="scheduled"), entries(1 << 40, state="schedulex"))
    assert not recorder.says_same(b"", entries(7))
    assert not recorder.says_same(b"", b"x")
    assert not recorder.says_same(entries(7)[:-9] + b"123456789", entries(7)[:-9] + b"abcdefghi")


def test_a_ring_that_went_on_is_told_by_its_first_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch pickles it: what entries are called is written once; reading all of them again would take long."""
    before, after = (Path(__file__).read_bytes()[:300] + b"entriesq\x01]q\x02(}q\x03(X\x09\x00\x00\x00record_idq\x04K"
                     + bytes([number]) + b"profiling_name" * 999 for number in (7, 8))  # fmt: skip
    monkeypatch.setattr(pickle, "loads", pytest.fail)
    assert not recorder.says_same(before, after)


def test_a_rank_that_nobody_retires_operations_of_stands_still(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, dumps = made(tmp_path, stacks="never"), iter(range(1 << 40, (1 << 40) + 9))
    monkeypatch.setattr(recorder, "read_ring", lambda _recorder, _stacks: entries(next(dumps)))
    serve(one)
    for _ in range(6):
        serve(one)
    kept = sorted(path.read_bytes() for path in (tmp_path / files.HISTORY).iterdir())
    assert kept == [entries(1 << 40)]


def test_stacks_are_taken_at_once_where_torch_has_its_compiler(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor", types.ModuleType("_inductor"))
    serve(made(tmp_path))
    assert torch.calls == [("fr", True)]


def test_never_means_never(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path, stacks="never")
    for _ in range(5):
        serve(one, "signal", stacks=True)
    assert set(torch.calls) == {("fr", False)}


@pytest.mark.parametrize(
    ("backend", "called", "written"),
    [
        ("nccl", {"nccl"}, {"nccl_trace_rank_1"}),
        ("gloo", {"fr"}, {"fr_trace_rank_1"}),
        ("xccl", {"fr"}, {"fr_trace_rank_1"}),
        ("cpu:gloo,cuda:nccl", {"nccl", "fr"}, {"nccl_trace_rank_1", "fr_trace_rank_1"}),
    ],
)
def test_each_backend_has_its_recorder(
    backend: str, called: set[str], written: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Torch(backend)
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    serve(made(tmp_path))
    assert {name for name, _ in fake.calls} == called
    assert {path.name for path in tmp_path.glob("*trace*")} == written
    assert set(told(tmp_path, 1)["dumps"]) == written


def test_nccl_is_not_asked_once_its_groups_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Torch("nccl")
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    one = made(tmp_path)
    serve(one)
    fake.initialized = False
    serve(one, "exit")
    assert fake.calls == [("nccl", False)]
    assert told(tmp_path, 1)["groups"][0]["ranks"] == [0, 1]


def test_a_dump_that_takes_long_makes_the_next_ones_rarer(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path, interval=1.0, share=0.01)
    serve(one)
    one._costs = [0.1]
    assert 9.0 <= one._pause() <= 10.0
    one._costs = [0.001]
    assert one._pause() <= 1.0


def test_before_there_is_a_group_only_the_rank_is_told(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.initialized = False
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    one = made(tmp_path)
    serve(one)
    assert torch.calls == []
    assert (told(tmp_path, 1)["world_size"], told(tmp_path, 1)["groups"]) == (2, [])


def test_a_disk_that_hangs_holds_up_nobody(torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(files, "replace_file", lambda *_: release.wait(600))
    one = made(tmp_path)
    one.start()
    assert not one.ask("signal", True, 0.05)
    for _ in range(100):
        one.ask("signal", True, 0.0)
    release.set()
    assert one.ask("stop", False, 600.0, last=True)


def test_what_goes_wrong_in_torch_is_noted_and_goes_no_further(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.world, "pg_names", None)
    one = made(tmp_path)
    one.start()
    assert one.ask("signal", True, 600.0)
    assert "members of process groups unknown" in told(tmp_path, 1)["problems"][0]
    assert one.ask("stop", False, 600.0, last=True)
    one.join(600)
    assert not one.is_alive()


def test_a_directory_that_was_replaced_is_told_again_who_writes(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path / "dumps")
    serve(one)
    (tmp_path / "dumps").rename(tmp_path / "old")
    serve(one)
    assert told(tmp_path / "dumps", 1) == told(tmp_path / "old", 1)


def test_where_nothing_can_be_written_that_is_said_once(
    torch: Torch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    one = made(tmp_path / "file" / "dumps")
    for _ in range(3):
        serve(one)
    (record,) = caplog.records
    assert record.getMessage() == f"rankscope.capture: {tmp_path / 'file' / 'dumps'}: cannot write: Not a directory"
