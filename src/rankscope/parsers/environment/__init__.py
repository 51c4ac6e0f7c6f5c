"""Environments of processes: copies of /proc/PID/environ, output of env, settings of containers."""
