"""Traces of torch's profiler: their steps, who comes late in them, and the critical path."""
