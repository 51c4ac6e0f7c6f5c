"""A small training job on this machine with a fault planted in it: what `rankscope demo` shows."""
