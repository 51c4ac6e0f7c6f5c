"""What NCCL and RCCL write with NCCL_DEBUG: the collectives, the life of communicators, settings, warnings."""
