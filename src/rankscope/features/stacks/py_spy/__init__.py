"""Output of `py-spy dump`, as text and as JSON: the stacks of all threads of a process at one moment."""
