"""Traces of torch's profiler (Kineto): Chrome trace events as JSON, of every era, whole or damaged."""

DETAIL_VARIABLE = "RANKSCOPE_TRACE_DETAIL"
"""Tells the processes that read how much of a trace is wanted."""
DETAILS = ("collectives", "all")
"""As in schema.DETAILS, which takes polars to import."""
