"""The process group of each fingerprint of TORCH_DISTRIBUTED_DEBUG=DETAIL: its line names none."""
