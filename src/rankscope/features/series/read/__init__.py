"""Series of training: loss, gradient norm, learning rate and others by step, from what jobs print and write."""
