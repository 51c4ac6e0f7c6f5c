"""What the capture inside a job writes beside its dumps: who wrote them, and who is in which group.

The form is described in docs/capture.md.
"""
