"""Summaries of tensors: which rule about numbers does not hold, where and on whom."""
