"""Findings from logs, settings, communicators and RAS, and how they join the findings of dumps."""
