"""A handful of Python stacks, innermost frame first, 10 to 20 frames each, made of shared frames."""

from __future__ import annotations

from typing import TypedDict


class FrameDict(TypedDict):
    """One frame as the recorder writes it."""

    name: str
    filename: str
    line: int


SITE = "/opt/venv/lib/python3.11/site-packages/torch"
APP = "/workspace/trainer"


def _frame(name: str, filename: str, line: int) -> FrameDict:
    return {"name": name, "filename": filename, "line": line}


_BASE = [
    _frame("_run_step", f"{APP}/loop.py", 214),
    _frame("fit", f"{APP}/loop.py", 141),
    _frame("_timed", f"{APP}/timers.py", 38),
    _frame("wrapper", f"{SITE}/utils/_contextlib.py", 120),
    _frame("train", f"{APP}/train.py", 402),
    _frame("launch", f"{APP}/train.py", 517),
    _frame("main", f"{APP}/train.py", 533),
    _frame("<module>", f"{APP}/train.py", 540),
]
_C10D = _frame("wrapper", f"{SITE}/distributed/c10d_logger.py", 83)
_MODULE = [
    _frame("_call_impl", f"{SITE}/nn/modules/module.py", 1786),
    _frame("_wrapped_call_impl", f"{SITE}/nn/modules/module.py", 1775),
]


def _stack(call: str, line: int, *own: FrameDict) -> list[FrameDict]:
    return [_frame(call, f"{SITE}/distributed/distributed_c10d.py", line), _C10D, *own, *_BASE]


def _in_layer(name: str, file: str, line: int) -> tuple[FrameDict, ...]:
    layer = _frame("forward", f"{APP}/model/transformer.py", 265)
    block = _frame("forward", f"{APP}/model/block.py", 97)
    return (_frame(name, f"{APP}/{file}", line), *_MODULE, layer, *_MODULE, block, *_MODULE)


STACKS: tuple[list[FrameDict], ...] = (
    _stack("all_reduce", 3003, *_in_layer("reduce_partial_sums", "parallel/tensor.py", 71)),
    _stack("all_gather_into_tensor", 4113, *_in_layer("gather_sequence", "parallel/tensor.py", 118)),
    _stack("reduce_scatter_tensor", 4412, *_in_layer("scatter_sequence", "parallel/tensor.py", 142)),
    _stack("all_to_all_single", 4703, *_in_layer("dispatch_tokens", "model/experts.py", 188)),
    _stack("isend", 2520, _frame("send_forward", f"{APP}/parallel/pipeline.py", 88)),
    _stack("irecv", 2577, _frame("recv_forward", f"{APP}/parallel/pipeline.py", 61)),
    _stack("batch_isend_irecv", 2799, _frame("exchange", f"{APP}/parallel/pipeline.py", 133)),
    _stack("all_reduce", 3003, _frame("finish_grad_sync", f"{APP}/parallel/gradients.py", 205)),
    _stack("all_reduce", 3003, _frame("clip_grad_norm", f"{APP}/optim/clip.py", 44)),
    _stack("barrier", 5020, _frame("save_checkpoint", f"{APP}/checkpoint.py", 310)),
    _stack("all_gather_into_tensor", 4113, *_in_layer("unshard", "parallel/shard.py", 160)),
    _stack("reduce_scatter_tensor", 4412, _frame("reduce_grads", f"{APP}/parallel/shard.py", 231)),
    _stack("all_reduce", 3003, _frame("log_metric", f"{APP}/metrics.py", 52)),
)  # fmt: skip
"""Stacks by number; the constants below name them."""

(
    TP_REDUCE, TP_GATHER, TP_SCATTER, EXPERTS, SEND, RECV, EXCHANGE, GRADS, NORM, CHECKPOINT, UNSHARD, SHARD_GRADS,
    METRIC,
) = range(13)  # fmt: skip
