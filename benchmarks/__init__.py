"""How often rankscope is right, and how fast it is: run by hand, never as a test."""
