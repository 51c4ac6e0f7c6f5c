"""Runs inside a training job: each rank leaves its flight recorder, and who it is, in a directory while it runs.

    import rankscope.capture
    rankscope.capture.start("dumps")

or, for a script that cannot be edited, `python -m rankscope.capture -o dumps train.py ...`. This package needs the
standard library and the trainer's own torch only, and may be copied into a container by itself.
"""

from .agent import dump, start, stop

__all__ = ["dump", "start", "stop"]
