"""Logs in the frame: the processes of their lines, and their groups and operations."""
