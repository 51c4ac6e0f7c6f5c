"""Which process group each fingerprint of TORCH_DISTRIBUTED_DEBUG=DETAIL is of: its line names none."""
