"""A comparison as text, Markdown and a page of HTML."""
