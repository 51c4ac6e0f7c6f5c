"""Profiler traces on the screen: what every rank's host and device did on one axis of time."""
