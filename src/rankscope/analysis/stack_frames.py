"""Owners of stack frames: the job's own code, torch, the interpreter, or native code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rankscope.schema import Frame

FrameOwner = Literal["user", "torch", "native", "python"]
"""Owner of a frame: the job's own code or one of its libraries, torch, native code, or the interpreter."""

_TORCH_FILE = re.compile(
    r"(?:^|/)(?:site|dist)-packages/torch/"
    r"|(?:^|/)torch/(?:_\w+|distributed|nn|autograd|utils|optim|multiprocessing|cuda|fx|jit|library|csrc"
    r"|(?:_tensor|serialization)\.py)(?:/|$)"
    r"|(?:^|/)rankscope/capture/(?!demo/)"
)
"""Hooks of the capture stand between the job and torch, and count as torch's."""
_NATIVE_FILE = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|so(?:\.\d+)*)$|^\?*$")
_PYTHON_FILE = re.compile(
    r"(?:^|/)lib(?:64)?/python3[.\d]*/(?!(?:site|dist)-packages/)|^<frozen "
    r"|^(?:asyncio|collections|concurrent|ctypes|encodings|http|importlib|json|logging|multiprocessing|urllib)/"
    r"|^(?:bdb|cmd|codecs|contextlib|copy|functools|gzip|pdb|pickle|pickletools|queue|random|runpy|selectors|shutil"
    r"|signal|socket|socketserver|ssl|subprocess|tarfile|tempfile|threading|weakref|zipfile)\.py$"
)
"""py-spy writes files of the interpreter and of packages without their install directory."""
_PACKAGE_FILE = re.compile(
    r"(?:^|/)(?:site|dist)-packages/"
    r"|^(?:accelerate|aiobotocore|boto3|botocore|datasets|deepspeed|fsspec|gcsfs|grpc|huggingface_hub|lightning|numpy"
    r"|pandas|PIL|pyarrow|pytorch_lightning|ray|requests|s3fs|safetensors|torchdata|torchvision|tqdm|transformers"
    r"|triton|urllib3|wandb|webdataset|zmq)/"
)

_ARGUMENTS = re.compile(r"(?<=.)[<({].*", re.DOTALL)
_LONGEST_NAME = 80


def kind_of(frame: Frame) -> FrameOwner:
    """The owner of a frame, by its file; Windows paths work too."""
    path = frame.file.replace("\\", "/")
    if _NATIVE_FILE.search(path) or is_native(frame):
        return "native"
    if _TORCH_FILE.search(path):
        return "torch"
    return "python" if _PYTHON_FILE.search(path) else "user"


def is_native(frame: Frame) -> bool:
    """Whether the frame is of a library or of the interpreter itself: such frames have no line."""
    return frame.line <= 0 and not frame.file.endswith((".py", ">"))


def short_function_name(frame: Frame) -> str:
    """The function name; without the long arguments of native templates and functions."""
    name = _ARGUMENTS.sub("", frame.function) if is_native(frame) else frame.function
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def own_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the job's own code, innermost first; without any, those of packages it uses."""
    user = tuple(frame for frame in stack if kind_of(frame) == "user")
    own = tuple(frame for frame in user if not _PACKAGE_FILE.search(frame.file.replace("\\", "/")))
    return own or user
