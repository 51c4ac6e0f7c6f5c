"""Rows of tensors, from the records of each rank."""
