"""Environments of processes: copies of /proc/PID/environ, the output of env, what containers were started with."""

MOST_BYTES = 16 << 20
"""No environment is larger: Linux allows a few MiB."""
