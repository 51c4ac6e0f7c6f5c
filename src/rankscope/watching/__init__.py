"""Follows what a running job writes: notices what changed, reads only that, and says how the job is each time."""
