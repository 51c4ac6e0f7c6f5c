"""From the frame to findings: matching, divergence, root cause. Knows no file and no screen."""

from rankscope.analysis.root_cause import analyse

__all__ = ["analyse"]
