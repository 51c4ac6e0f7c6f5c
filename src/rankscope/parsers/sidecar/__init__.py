"""Sidecars: files of the capture inside a job that name the writer of the dumps and the members of groups.

docs/capture.md describes the form.
"""
