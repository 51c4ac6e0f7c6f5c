"""Whose a frame is, and stacks in one line."""

from __future__ import annotations

import pytest

from rankscope.analysis.host_stacks import kind_of
from rankscope.schema import Frame
from rankscope.tui.detail.stack_tree import one_line, place, short_path, user_frames
from tests.tui.detail.samples import FORWARD

STACK = tuple(Frame(*frame) for frame in FORWARD)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/app/model/attention.py", "user"),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "torch"),
        ("/opt/pytorch/pytorch/torch/distributed/c10d_logger.py", "torch"),
        ("torch/_tensor.py", "torch"),
        ("/opt/venv/lib/python3.11/site-packages/rankscope/capture/numbers/collective_hooks.py", "torch"),
        ("/opt/venv/lib/python3.11/site-packages/rankscope/capture/demo/job.py", "user"),
        ("/usr/lib/python3.11/site-packages/megatron/core/tensor_parallel/layers.py", "user"),
        ("/app/torch/train.py", "user"),
        ("/root/pytorch/torch/csrc/distributed/c10d/reducer.cpp", "native"),
        ("libtorch_cpu.so", "native"),
        ("libcudart.so.12", "native"),
        ("??", "native"),
        ("", "native"),
        ("/usr/lib/python3.11/threading.py", "python"),
        ("<frozen runpy>", "python"),
        ("C:\\venv\\Lib\\site-packages\\torch\\nn\\modules\\linear.py", "torch"),
    ],
)
def test_kind_of_a_frame_by_its_path(path: str, kind: str) -> None:
    assert kind_of(Frame("f", path, 1)) == kind


def test_user_frames_leave_out_torch_but_never_everything() -> None:
    assert [f.function for f in user_frames(STACK)] == ["forward", "train_step", "main", "<module>"]
    assert user_frames(STACK[1:2]) == STACK[1:2]


def test_paths_keep_their_last_parts() -> None:
    assert short_path("/app/model/attention.py") == "model/attention.py"
    assert short_path("train.py") == "train.py"
    assert place(STACK[0]) == "model/attention.py:211"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (82, "forward model/attention.py:211 < train_step train/step.py:30 < main app/main.py:88"),
        (78, "forward model/attention.py:211 < train_step train/step.py:30 < main"),
        (60, "forward model/attention.py:211 < train_step < main"),
        (48, "forward model/attention.py:211 < train_step < +1"),
        (38, "forward model/attention.py:211 < +2"),
        (10, "forward model/attention.py:211"),
    ],
)  # fmt: skip
def test_one_line_gives_up_the_outer_frames_first(width: int, text: str) -> None:
    assert one_line(STACK, width) == text


def test_a_module_is_named_only_where_there_is_nothing_else() -> None:
    assert one_line(STACK[-1:], 80) == "<module> app/main.py:120"


def test_one_line_of_no_stack_is_empty() -> None:
    assert one_line((), 80) == ""


def test_names_from_files_are_made_harmless() -> None:
    assert one_line([Frame("f\x1b[2J", "/a/\x07b.py", 1)], 80) == "f\\x1b[2J a/\\x07b.py:1"
