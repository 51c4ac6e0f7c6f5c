"""Stacks of processes: py-spy dumps, samples over time, and the ranks whose stacks differ."""
