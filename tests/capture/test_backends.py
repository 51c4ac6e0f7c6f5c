"""Backends of torch 2.15, which a hook records into a ring each: which are asked, and what the sidecar says of them."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture import sampler
from rankscope.capture.card import SidecarRecord
from rankscope.capture.sampler import EMPTY_DUMPS, INTERVAL_REASON, DumpRequest, Sampler
from rankscope.capture.settings import CaptureSettings
from tests.capture.ranks import card as told
from tests.capture.torch_module import torch_module

OFF = "TORCH_FR_BUFFER_SIZE"


class Backend:
    """As much of a backend as the capture looks at."""

    def __init__(self, name: str, completion: bool = False) -> None:
        self.name = lambda: name
        self.supports_completion_hooks = completion


class Group:
    """A process group with a backend for each device."""

    group_desc = "default_pg"

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._device_types = [types.SimpleNamespace(type=device) for device in backends]

    def _get_backend(self, device: Any) -> Backend:
        return self._backends[device.type]


class Torch:
    """As much of torch 2.15 as the capture looks at; `rings` holds how many operations each ring has."""

    def __init__(self, config: str, backends: Mapping[str, Backend], hooked: bool = True) -> None:
        self.asked: list[str] = []
        self.rings: dict[str, int] = {}
        self.initialized = True
        group = Group(backends)
        self.world = types.SimpleNamespace(
            pg_names={group: "0"},
            pg_group_ranks={group: {0: 0, 1: 1}},
            pg_map={group: (config, None)},
            pg_backend_config={group: config},
            pg_flight_recorder_hooks={group: object()} if hooked else {},
        )

    def module(self) -> Any:
        """The module `torch`."""
        return torch_module("2.15.0", self.world, lambda: self.initialized, self._dump_legacy, self._dump)

    def _dump(
        self,
        includeCollectives: bool,  # noqa: N803
        includeStackTraces: bool,  # noqa: ARG002, N803
        onlyActive: bool,  # noqa: N803
        backend: str = "gloo",
    ) -> bytes:
        assert includeCollectives and not onlyActive
        self.asked.append(backend)
        return b"profiling_name" * self.rings.get(backend, 0)

    def _dump_legacy(self, **options: bool) -> bytes:
        return self._dump(**options, backend="legacy")


def captured(monkeypatch: pytest.MonkeyPatch, torch: Torch, folder: Path) -> Sampler:
    monkeypatch.delenv(OFF, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch.module())
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    return Sampler(CaptureSettings(str(folder)), SidecarRecord())


def serve(one: Sampler, reason: str = INTERVAL_REASON) -> None:
    one._serve(DumpRequest(reason, False))


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*trace*")}


NCCL2, GLOO, LEGACY = Backend("nccl2", completion=True), Backend("gloo"), Backend("nccl")


@pytest.mark.parametrize(
    ("config", "backends", "asked", "files"),
    [
        ("nccl", {"cuda": NCCL2}, {"nccl2"}, {"nccl2_trace_rank_1"}),
        ("gloo", {"cpu": GLOO}, {"gloo"}, {"fr_trace_rank_1"}),
        ("nccl", {"cuda": LEGACY}, {"legacy"}, {"nccl_trace_rank_1"}),
        (
            "cpu:gloo,cuda:nccl",
            {"cpu": GLOO, "cuda": NCCL2},
            {"gloo", "nccl2"},
            {"fr_trace_rank_1", "nccl2_trace_rank_1"},
        ),
        ("nccl-lazy", {"cuda": Backend("nccl-lazy")}, {"nccl-lazy"}, {"nccl-lazy_trace_rank_1"}),
        ("odd", {"cuda": Backend("../odd one")}, {"../odd one"}, {"___odd_one_trace_rank_1"}),
    ],
)
def test_each_ring_is_asked_by_its_name_and_has_a_file(
    config: str,
    backends: dict[str, Backend],
    asked: set[str],
    files: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch(config, backends)
    torch.rings = dict.fromkeys(asked, 3)
    serve(captured(monkeypatch, torch, tmp_path))
    assert set(torch.asked) == asked
    assert written(tmp_path) == set(told(tmp_path, 1)["dumps"]) == files


def test_the_sidecar_says_who_records_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch("cpu:gloo,cuda:nccl", {"cpu": GLOO, "cuda": NCCL2})
    torch.rings = {"nccl2": 3}
    serve(captured(monkeypatch, torch, tmp_path))
    assert told(tmp_path, 1)["backends"] == [
        {"name": "gloo", "recorder": "itself", "completion": None, "dump": None},
        {"name": "nccl2", "recorder": "hook", "completion": True, "dump": "nccl2_trace_rank_1"},
    ]
    assert told(tmp_path, 1)["groups"][0]["backend"] == "cpu:gloo,cuda:nccl2"


def test_a_backend_without_a_completion_hook_is_said_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch("mpi", {"cpu": Backend("mpi")})
    serve(captured(monkeypatch, torch, tmp_path))
    (backend,) = told(tmp_path, 1)["backends"]
    assert (backend["recorder"], backend["completion"]) == ("hook", False)


def test_an_empty_ring_writes_no_file_beside_one_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch("cpu:gloo,cuda:nccl", {"cpu": GLOO, "cuda": NCCL2})
    one = captured(monkeypatch, torch, tmp_path)
    torch.rings = {"nccl2": 1}
    serve(one)
    assert written(tmp_path) == {"nccl2_trace_rank_1"}


def test_that_nothing_is_recorded_is_said_once_and_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch = Torch("nccl", {"cuda": NCCL2})
    one = captured(monkeypatch, torch, tmp_path)
    for _ in range(EMPTY_DUMPS):
        serve(one)
    # the first steps of a job may take long to come
    assert told(tmp_path, 1)["problems"] == []
    for _ in range(3):
        serve(one)
    why = "nothing was recorded so far of nccl2: no operation was issued, or only inside of CUDA graphs"
    assert told(tmp_path, 1)["problems"] == [why]
    assert [record.getMessage() for record in caplog.records] == [f"rankscope.capture: {why}"]
    torch.rings = {"nccl2": 1}
    serve(one)
    assert told(tmp_path, 1)["problems"] == []


@pytest.mark.parametrize(
    ("backend", "name", "issued", "why"),
    [
        (GLOO, "gloo", 0, "no operation was issued"),
        (GLOO, "gloo", 9, "only sends, receives and monitored barriers were issued, which its recorder does not hold"),
        (NCCL2, "nccl2", 9, "operations were issued only inside of CUDA graphs"),
    ],
)
def test_what_the_groups_count_tells_why_nothing_is_recorded(
    backend: Backend, name: str, issued: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch("nccl", {"cuda": backend})
    one = captured(monkeypatch, torch, tmp_path)
    monkeypatch.setattr(sampler, "issued", lambda: {"0": issued})
    serve(one, "signal")
    assert told(tmp_path, 1)["problems"] == [f"nothing was recorded so far of {name}: {why}"]


def test_somebody_who_asks_for_a_dump_is_told_at_once_that_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(captured(monkeypatch, Torch("nccl", {"cuda": NCCL2}), tmp_path), "signal")
    assert "nothing was recorded so far of nccl2" in told(tmp_path, 1)["problems"][0]


def test_a_job_on_gloo_that_only_sends_and_receives_is_told_what_gloo_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(captured(monkeypatch, Torch("gloo", {"cpu": GLOO}), tmp_path), "signal")
    why = "nothing was recorded so far of gloo: no collective was issued; gloo records no send and no receive"
    assert told(tmp_path, 1)["problems"] == [why]


@pytest.mark.parametrize(
    ("buffer", "backends", "hooked", "why"),
    [
        ("0", {"cuda": NCCL2}, False, "the flight recorder is off: TORCH_FR_BUFFER_SIZE=0"),
        ("2000", {"cuda": NCCL2}, False, "nothing is recorded: this torch has no flight recorder for nccl2"),
        # a group that is written in Python as a whole has no backend to hook
        ("2000", {}, True, "nothing is recorded: this torch has no flight recorder for own"),
    ],
)
def test_why_nothing_can_be_recorded_is_said_at_once(
    buffer: str,
    backends: dict[str, Backend],
    hooked: bool,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch("own", backends, hooked)
    one = captured(monkeypatch, torch, tmp_path)
    monkeypatch.setenv(OFF, buffer)
    serve(one)
    assert told(tmp_path, 1)["problems"] == [why]
    assert (torch.asked, written(tmp_path)) == ([], set())
    assert told(tmp_path, 1)["backends"][0]["recorder"] == "nobody"


def test_only_gloo_is_asked_once_the_groups_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch("cpu:gloo,cuda:nccl", {"cpu": GLOO, "cuda": NCCL2})
    torch.rings = {"gloo": 1, "nccl2": 1}
    one = captured(monkeypatch, torch, tmp_path)
    serve(one)
    torch.initialized, torch.asked = False, []
    serve(one, "exit")
    assert torch.asked == ["gloo"]
    assert told(tmp_path, 1)["problems"] == []
