"""Snapshots of the memory of a device, as torch writes them: allocations, segments and their history."""
