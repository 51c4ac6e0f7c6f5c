"""Memory on the screen."""
