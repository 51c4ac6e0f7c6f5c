"""Traces of torch's profiler (Kineto): Chrome trace events as JSON, of all versions, whole or damaged."""
