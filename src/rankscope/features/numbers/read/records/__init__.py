"""Summaries of tensors that other tools wrote, each format a module: rows of the same table."""
