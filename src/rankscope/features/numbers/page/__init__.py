"""Numbers of tensors on the screen."""
