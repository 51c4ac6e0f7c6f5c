"""Environments of processes: copies of /proc/PID/environ, the output of env, what containers were started with."""
