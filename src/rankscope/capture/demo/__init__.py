"""Demo job: a small training job on this machine with a planted fault, for `rankscope demo`."""
