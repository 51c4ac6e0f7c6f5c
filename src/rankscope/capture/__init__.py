"""Capture inside a training job: each rank writes its flight recorder and its identity to a directory while it runs.

    import rankscope.capture
    rankscope.capture.start("dumps")

or, for a script that cannot be edited, `python -m rankscope.capture -o dumps train.py ...`. This package needs only the
standard library and the trainer's own torch, and can be copied into a container on its own.
"""

from .agent import dump, start, stop

__all__ = ["dump", "start", "stop"]
