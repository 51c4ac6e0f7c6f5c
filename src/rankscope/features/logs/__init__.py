"""Lines of processes, launchers and schedulers: what they say of ranks, groups and failures."""
