"""Health checks of all ranks, as a `torch.distributed.debug` server leaves them in its dump_dir.

Form: C10dHealthCheckHandler and TorchCommsHealthCheckHandler in torch/distributed/debug/_debug_handlers.py, torch 2.15.
"""

MOST_BYTES = 64 << 20
"""Of all ranks of the largest jobs it is less."""
