"""Traces of profilers into the tables of a dataset: whose each is, its tracks and spans, and the operations in it."""
