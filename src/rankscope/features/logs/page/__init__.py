"""Lines of logs on the screen."""
