"""Summaries of tensors, as `rankscope.capture` records them: lines of JSON, one for each tensor."""

SAMPLES_VARIABLE = "RANKSCOPE_NUMBER_SAMPLES"
"""Variable of worker processes: "sums" for samples of reductions only, which are all that rules of one run compare."""
