"""Traces of torch's profiler (Kineto): Chrome trace events as JSON, of all versions, whole or damaged."""

DETAIL_VARIABLE = "RANKSCOPE_TRACE_DETAIL"
"""Environment variable that gives worker processes the wanted detail of a trace."""
DETAILS = ("collectives", "all")
"""The values of schema.DETAILS, which cannot be imported without polars."""
