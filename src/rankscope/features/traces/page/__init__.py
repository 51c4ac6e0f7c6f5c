"""Profiler traces on the screen: activities of every rank's host and device on one axis of time."""
