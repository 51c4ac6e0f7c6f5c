"""Golden files: the numbers of a run, small enough for a repository."""
