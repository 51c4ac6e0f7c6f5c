"""Output of `py-spy dump`, as text and as JSON: where every thread of a process was at one moment."""
