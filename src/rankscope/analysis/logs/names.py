"""What known errors are called in a title."""

from __future__ import annotations

from rankscope.analysis.logs.lines import Line

_NAMES = {
    "shared-memory": "/dev/shm too small or full", "nccl-usage": "invalid usage of NCCL",
    "nccl-argument": "invalid argument to NCCL", "nccl-cuda": "CUDA error inside NCCL",
    "segfault": "segmentation fault",
    "ecc": "uncorrectable memory error of the GPU", "xid": "GPU fault told by the driver (Xid)",
    "no-interface": "no network interface of that name", "data-loader": "a data loader's worker died",
    "ib-memory": "memory not registered with the network card", "imex": "no access to IMEX channels",
    "ib-completion": "failed transfer over InfiniBand", "ib-queue-pair": "no connection over InfiniBand",
    "ib-port-event": "event of an InfiniBand port", "ofi-request": "failed transfer over libfabric",
    "store-timeout": "nobody answers at the rendezvous", "connection-timeout": "connection timed out",
    "nccl-versions": "different versions of NCCL", "nccl-mismatch": "mismatched collective found by NCCL",
    "gloo-full-mesh": "gloo cannot connect its ranks", "time-limit": "ended by the scheduler",
    "rendezvous": "not all nodes came together",
}  # fmt: skip
"""Known errors whose id says too little."""
_WORDS = {"cuda": "CUDA", "nccl": "NCCL", "gpu": "GPU", "ib": "IB", "ecc": "ECC", "xid": "Xid", "imex": "IMEX"}


def label(error: Line) -> str:
    """The id of a known error as words."""
    if error.pattern in _NAMES:
        return _NAMES[error.pattern]
    words = [_WORDS.get(word, word) for word in error.pattern.split("-")]
    return " ".join(words)
