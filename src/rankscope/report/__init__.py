"""Output forms of findings: text, Markdown, JSON."""
