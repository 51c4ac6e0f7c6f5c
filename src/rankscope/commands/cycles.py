"""How seldom a process that keeps a large dataset looks for cycles in it: a search goes through everything there is."""

YOUNG_ONLY = (1_000, 10, 100_000)
"""Thresholds of the garbage collector with which it hardly ever looks at what is old; that is done when it fits."""
