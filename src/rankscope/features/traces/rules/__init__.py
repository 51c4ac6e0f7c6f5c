"""Results from the profiler traces of all ranks together: one clock, matched collectives, late ranks."""
