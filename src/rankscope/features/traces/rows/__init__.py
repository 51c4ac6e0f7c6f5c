"""Tables of profilers' traces: the rank of each, its tracks and spans, and its operations."""
