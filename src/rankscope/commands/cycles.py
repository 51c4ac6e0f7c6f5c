"""When a process that keeps a large dataset looks for cycles in it: a search goes through everything there is."""

YOUNG_ONLY = (10_000, 20, 100_000)
"""Thresholds of the garbage collector with which it hardly ever looks at what is old; that is done when it fits."""
A_BIT_AT_A_TIME = (1_000, 10, 1_000_000)
"""Thresholds with which no search among young objects takes long, where a key waits for it.

Old ones are left to whoever knows when no key is awaited.
"""
