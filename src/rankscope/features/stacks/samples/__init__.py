"""Stacks over time of one process: folded stacks and speedscope profiles, as `py-spy record` writes them."""
