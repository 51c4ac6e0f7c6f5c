"""Settings and versions that should agree over all ranks, and do not."""
