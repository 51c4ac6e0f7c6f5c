"""Traces of torch's profiler (Kineto): Chrome trace events as JSON, of every era, whole or damaged."""

DETAIL_VARIABLE = "RANKSCOPE_TRACE_DETAIL"
"""Tells the processes that read how much of a trace is wanted: one of schema.DETAILS."""
