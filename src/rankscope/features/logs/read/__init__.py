"""Logs as text: NCCL_DEBUG output and everything else a job prints, one file for each process or all in one."""
