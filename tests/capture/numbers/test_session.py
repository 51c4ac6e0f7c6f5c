"""Steps, levels and errors of the recording, in a process without a process group."""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import FakeWork
from torch.distributed import Work

from rankscope import capture
from rankscope.capture import code_record, numbers
from rankscope.capture.__main__ import numbers_options
from rankscope.capture.numbers import _running, session, work_hooks
from rankscope.capture.numbers.collective_hooks import CollectiveHooks
from rankscope.capture.numbers.part_writer import StepRows
from rankscope.capture.numbers.step_budget import StepBudget
from rankscope.capture.numbers.tensor_summary import RowBuffer
from rankscope.capture.numbers.work_hooks import PendingOutputs, PendingWorks
from tests.capture.numbers.recorded import Row, lines, samples_of

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RANK", "0")
    yield
    numbers.stop()


def train(steps: int, manual: bool = False) -> None:
    """Trains with two optimizers, of which the first one counts."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    for number in range(steps):
        numbers.batch({"x": torch.full((2, 4), float(number)), "more": [torch.ones(1)], "words": "none"})
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        other.step()
        if manual:
            numbers.step()


def batches(folder: Path) -> list[tuple[int, str, float]]:
    return [(row["step"], row["name"], row["max"]) for row in lines(folder, 0) if row.get("site") == "batch"]


def test_the_module_can_be_called(tmp_path: Path) -> None:
    capture.numbers(every=2, dumps=tmp_path)
    train(3)
    numbers.stop()
    assert [step for step, *_ in batches(tmp_path)] == [0, 0, 2, 2]


def test_one_step_in_so_many_is_recorded_and_those_asked_for(tmp_path: Path) -> None:
    numbers.start(every=4, steps=range(2, 4), dumps=tmp_path)
    train(6)
    numbers.stop()
    assert batches(tmp_path) == [
        (step, name, value) for step in (0, 2, 3, 4) for name, value in (("x", float(step)), ("more.0", 1.0))
    ]
    assert [line["end_of_step"] for line in lines(tmp_path, 0) if "end_of_step" in line] == [0, 2, 3, 4]


def sites(folder: Path) -> set[tuple[str, str, str]]:
    """Site, name and slot of the tensors of modules and parameters."""
    return {
        (row["site"], row["name"], row["slot"]) for row in lines(folder, 0) if row.get("site") not in (None, "batch")
    }


def test_modules_are_recorded_also_of_a_model_that_nobody_names(tmp_path: Path) -> None:
    hooked = len(torch.nn.modules.module._global_forward_pre_hooks)
    numbers.start(every=1, dumps=tmp_path)
    torch.nn.ReLU()(torch.ones(2))
    train(2)
    numbers.stop()
    told = sites(tmp_path)
    assert {("forward", "", "out0"), ("gradient", "weight", "out0"), ("parameter", "bias", "in0")} <= told
    # also of the first call, in which the hooks are installed
    first = [row for row in lines(tmp_path, 0) if row.get("site") == "forward" and row.get("step") == 0]
    assert [row["occurrence"] for row in first if row["name"] == "" and row["slot"] == "in0"][:1] == [0]
    assert ("optimizer", "weight", "out0") in told
    numbers.start(every=1, dumps=tmp_path / "other")
    numbers.stop()
    assert len(torch.nn.modules.module._global_forward_pre_hooks) == hooked


def recorded_steps(cost: float, steps: int = 400, share: float = 0.05, slow_step: int = -1) -> list[int]:
    """The steps that are recorded if each takes a second, and so many seconds more if it is recorded; one is slow."""
    plan, now, told = StepBudget(share), 0.0, []
    for step in range(steps):
        is_recorded = plan.allows(step)
        told += [step] * is_recorded
        now += 1 + cost * is_recorded + 600 * (step == slow_step)
        plan.end_step(step, now, was_recorded=is_recorded)
    return told


def test_steps_are_recorded_as_the_budget_allows() -> None:
    assert recorded_steps(0.2) == [0, 1, 2, *range(16, 400, 16)]
    assert recorded_steps(4.0) == [0, 1, 2, 128, 256, 384]
    # a step that compiles is no measure of what recording costs
    assert recorded_steps(0.2, slow_step=1) == recorded_steps(0.2)
    for cost in (0.1, 1.0, 2.0, 8.0):
        late = [step for step in recorded_steps(cost, 4096) if step > 2]
        assert 0 < cost * len(late) / 4096 <= 0.05
        # ranks that measure other costs have steps in common
        assert set(recorded_steps(cost * 3, 4096)) <= {*recorded_steps(cost, 4096)}


def test_the_budget_holds_in_a_training(tmp_path: Path) -> None:
    numbers.start(dumps=tmp_path, budget=0.0001)
    train(40)
    numbers.stop()
    ends = [line["end_of_step"] for line in lines(tmp_path, 0) if "end_of_step" in line]
    assert ends == [0, 1, 2]


def test_steps_that_are_counted_by_hand_are_not_counted_twice(tmp_path: Path) -> None:
    numbers.start(every=1, dumps=tmp_path)
    train(3, manual=True)
    numbers.stop()
    assert [row[0] for row in batches(tmp_path) if row[1] == "x"] == [0, 1, 2]


def test_a_step_that_does_not_end_is_written(tmp_path: Path) -> None:
    numbers.start(every=1, dumps=tmp_path)
    numbers.loss(torch.tensor(float("nan")))
    numbers.stop()
    loss = next(line for line in lines(tmp_path, 0) if line.get("site") == "loss")
    assert (loss["max"], loss["nan"], str(samples_of(loss))) == ("NaN", 1, "[nan]")


def test_an_error_of_the_recording_costs_a_row_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_args: Any) -> int:
        raise torch.OutOfMemoryError("no room")

    numbers.start(every=1, dumps=tmp_path, level="collectives")
    numbers.loss(torch.ones(1))
    monkeypatch.setattr(RowBuffer, "add", failing)
    train(2)
    monkeypatch.undo()
    numbers.stop()
    assert lines(tmp_path, 0)[-1]["dropped"] == 2
    assert [record.message for record in caplog.records] == ["rankscope.capture.numbers: OutOfMemoryError: no room"]


def test_more_rows_than_there_is_room_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_ROWS", 3)
    numbers.start(every=1, dumps=tmp_path)
    for _ in range(5):
        numbers.loss(torch.ones(1))
    numbers.step()
    numbers.stop()
    found: list[Row] = lines(tmp_path, 0)
    assert len([line for line in found if "site" in line]) == 3
    assert found[-1]["dropped"] == 2


def test_a_torch_that_cannot_be_hooked_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_hooks: CollectiveHooks) -> None:
        raise AttributeError("no such operation")

    before = Work.wait
    monkeypatch.setattr(CollectiveHooks, "install", failing)
    numbers.start(every=1, dumps=tmp_path)
    train(1)
    assert Work.wait is before
    assert [record.message for record in caplog.records] == [
        "rankscope.capture.numbers: no numbers are recorded, AttributeError: no such operation"
    ]
    assert list(tmp_path.iterdir()) == []


def test_nobody_asks_for_a_device_before_the_job_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_driver() -> bool:
        raise AssertionError("the driver was started")

    monkeypatch.setattr(torch.cuda, "is_available", start_driver)
    numbers.start(every=1, dumps=tmp_path)
    train(1)
    numbers.stop()
    assert len(batches(tmp_path)) == 2


def test_the_writing_thread_gets_no_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that frees one while the interpreter ends aborts the process."""
    taken: list[StepRows] = []
    numbers.start(every=1, dumps=tmp_path, level="collectives")
    monkeypatch.setattr(_running[0].writer, "put", taken.append)
    train(1)
    assert [(row.buffer, summary is None) for row, summary in taken[0].rows] == [(None, False)] * 2


def test_a_forked_process_records_nothing(tmp_path: Path) -> None:
    numbers.start(every=1, dumps=tmp_path)
    child = os.fork()
    if not child:
        numbers.loss(torch.ones(1))
        os._exit(len(_running))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    numbers.loss(torch.ones(1))
    numbers.stop()
    assert len([line for line in lines(tmp_path, 0) if "site" in line]) == 1


def pending_works() -> PendingWorks:
    """The works of a recording of every step."""
    works = _running[0]._hooks[0]
    assert isinstance(works, PendingWorks)
    return works


def test_outputs_of_a_batch_of_nccl_are_there_after_the_wait_for_all_of_it(tmp_path: Path) -> None:
    numbers.start(every=1, dumps=tmp_path)
    works, read, whole = pending_works(), [], FakeWork()
    works._starting(lambda _group: None, None)
    works.expect(1, PendingOutputs(None, [lambda: read.append(1)]))
    works.expect(2, PendingOutputs(None, [lambda: read.append(2)]))
    assert works._ending(lambda _group: whole, None) is whole
    assert read == []
    # a fake one waits by itself; real ones by the method that is patched
    Work.wait(whole)
    assert read == [1, 2]


def test_a_work_that_never_ends_holds_the_job_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def is_completed() -> bool:
        looks.append(1)
        return False

    stuck = types.SimpleNamespace(is_completed=is_completed)
    monkeypatch.setattr(work_hooks, "time", types.SimpleNamespace(monotonic=lambda: 50.0 * len(looks), sleep=len))
    numbers.start(every=1, dumps=tmp_path)
    works = pending_works()
    works.expect_work(stuck, [lambda: pytest.fail("it has no outputs")], torch.device("cpu"), "torch.nn.parallel")
    works.arrange()
    assert len(looks) == 1
    works.arrange()
    assert len(looks) == 2
    numbers.step()
    assert _running[0].session.unwaited == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"level": "all"}, "level must be one of collectives, modules: 'all'"),
        ({"budget": 0.0}, "budget more than 0"),
        ({"every": -1}, "every must not be negative"),
    ],
)
def test_wrong_settings_are_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        numbers.start(**options)


def test_options_of_the_command_line() -> None:
    assert numbers_options("every=50") == {"every": 50}
    assert numbers_options("every=0,replay_step=2,limit_mb=8") == {"every": 0, "replay_step": 2, "limit_mb": 8}
    assert numbers_options("steps=3-5") == {"steps": range(3, 6)}
    assert numbers_options("steps=7") == {"steps": range(7, 8)}
    assert numbers_options("auto") == {}
    assert numbers_options("budget=0.02,level=collectives") == {"budget": 0.02, "level": "collectives"}
    for wrong in ("", "50", "every=x", "level=", "steps=3-", "budget=all", "auto,every=1"):
        with pytest.raises(ValueError, match="--numbers takes auto, or every=N"):
            numbers_options(wrong)


def test_source_files_are_read_by_the_writing_thread_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    record = code_record.process_record()
    settings = record.settings

    def noted(is_first: bool) -> dict[str, str]:
        threads.append(threading.current_thread().name)
        return settings(is_first)

    monkeypatch.setattr(record, "settings", noted)
    numbers.start(every=1, dumps=tmp_path)
    train(2)
    numbers.stop()
    assert threads == ["rankscope-numbers"]
    assert "command line" in lines(tmp_path, 0)[0]["settings"]["code"]
