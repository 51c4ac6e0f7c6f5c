"""Screens over the lanes: members of a collective, findings, groups, files."""
