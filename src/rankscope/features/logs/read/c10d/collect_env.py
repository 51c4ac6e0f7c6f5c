"""Report of `python -m torch.utils.collect_env`, in a file of its own or anywhere in a log.

Source: torch/utils/collect_env.py, and vLLM's version, which adds a list of variables.
"""

from __future__ import annotations

import re
from collections import Counter

from rankscope.features.logs.read.log_record import Event, Record, message_event
from rankscope.parsers.variables import VALUE_LIMIT, is_kept, pair_of
from rankscope.text.secrets import clip

LITERALS = ("PyTorch version: ",)
LINE_LIMIT = 1024
_BEGIN = re.compile(r"PyTorch version: \S")
_KEYS = {
    "PyTorch version": "version:torch", "CUDA used to build PyTorch": "version:cuda",
    "ROCM used to build PyTorch": "version:rocm", "CUDA runtime version": "version:cuda-runtime",
    "Nvidia driver version": "version:driver", "cuDNN version": "version:cudnn", "HIP runtime version": "version:hip",
    "MIOpen runtime version": "version:miopen", "Python version": "version:python", "Libc version": "version:libc",
    "Torch-npu version": "version:torch-npu", "OS": "os", "CUDA_MODULE_LOADING set to": "CUDA_MODULE_LOADING",
    "Is CUDA available": "cuda-available", "Is debug build": "debug-build", "Vendor ID": "cpu-vendor",
    "Model name": "cpu-model",
}  # fmt: skip
_KEY = re.compile(r"([A-Za-z][\w .()/+\-]{0,60}?): *(.*)")
_GPU = re.compile(r"(?:GPU models and configuration: *)?(?:GPU|NPU|XPU) ?\d{1,4}: *(.*)")
_SINGLE_GPU = re.compile(r"GPU models and configuration: *(.*)")
_PACKAGE = re.compile(r"\[(?:pip\d?|conda)\] ([\w.\-]{1,100})(?:==|\s+(?=\d))(\S{1,100})")
_OTHER_LINE = re.compile(
    r"(?:Is |GCC |Clang |CMake |Python platform|ROCM Version|Neuron SDK|vLLM |CUDA Archs|GPU Topology|Legend:|Intel GPU"
    r"|Versions of relevant libraries:|CPU:|CANN:|Collecting env|Caching allocator|\[(?:pip\d?|conda)\]|/\S*libcudnn"
    r"|Versions of|XPU|TPU |\s*(?:X|SYS|NODE|PHB|PXB|PIX|NV#?)\s+=|GPU\d|NIC\d|\s+GPU\d|package:"
    r"|\w[\w ().\-]{1,60}:\s{2,})"
)
_LIBRARY = re.compile(r"libcudnn\S*\.so\.(\d[\d.]*)")
_EMPTY_VALUES = ("", "N/A", "Could not collect", "None")


class EnvReport:
    """Collector of one report. Values: `settings` of rows [name, value]."""

    patience = 8
    quotes = True
    """No line of the report is a message."""
    named_rank = None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._settings: dict[str, str] = {}
        self._gpus: Counter[str] = Counter()
        self._lines = 0
        self._take(record.text.strip())

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; reads it if so."""
        text = record.text.rstrip()
        if self._lines >= LINE_LIMIT or _BEGIN.match(text):
            return False
        self._lines += 1
        return not text or self._take(text)

    def _take(self, text: str) -> bool:
        if gpu := _GPU.match(text):
            self._gpus[gpu[1].split(" (UUID")[0].strip()] += 1
        elif (gpu := _SINGLE_GPU.match(text)) and gpu[1] not in _EMPTY_VALUES:
            self._gpus[gpu[1]] += 1
        elif package := _PACKAGE.match(text):
            self._set(f"version:{package[1].lower()}", package[2])
        elif library := _LIBRARY.search(text):
            self._set("version:cudnn", library[1])
        elif (key := _KEY.match(text)) and key[1] in _KEYS:
            self._set(_KEYS[key[1]], key[2])
        elif (pair := pair_of(text, 1)) is not None:
            if is_kept(pair.name):
                self._set(pair.name, pair.value)
        else:
            return _OTHER_LINE.match(text) is not None
        return True

    def _set(self, name: str, value: str) -> None:
        if value.strip() not in _EMPTY_VALUES and not value.startswith("Probably one of"):
            self._settings.setdefault(name, clip(value.strip(), VALUE_LIMIT))

    def result(self) -> list[Event]:
        """The event, at the report's first line."""
        if self._gpus:
            self._set("gpus", ", ".join(f"{count} x {name}" for name, count in sorted(self._gpus.items())))
        return [message_event("collect-env", self._record, settings=[list(row) for row in self._settings.items()])]


def begins(record: Record) -> EnvReport | None:
    """A report that begins with this record."""
    return EnvReport(record) if _BEGIN.match(record.text) else None
