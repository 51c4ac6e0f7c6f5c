"""Summaries of tensors, as `rankscope.capture` records them: lines of JSON, one for each tensor."""
