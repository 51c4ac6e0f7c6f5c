"""Health checks of all ranks, as a `torch.distributed.debug` server leaves them in its dump_dir.

Form: C10dHealthCheckHandler and TorchCommsHealthCheckHandler in torch/distributed/debug/_debug_handlers.py, torch 2.15.
"""
