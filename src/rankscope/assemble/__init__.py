"""Many dumps to one Dataset: who wrote which, which run they are of, and what their groups are over all ranks."""
