"""Analysis from a dataset to findings: matching, divergence, root cause. Imports no file reader and no screen."""

from rankscope.analysis.root_cause import analyse

__all__ = ["analyse"]
