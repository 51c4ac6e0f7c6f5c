"""Findings in the form in which they leave the program: text, Markdown, JSON."""
