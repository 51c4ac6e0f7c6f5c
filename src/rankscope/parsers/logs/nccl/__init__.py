"""Output of NCCL and RCCL with NCCL_DEBUG: collectives, lives of communicators, settings, warnings."""
