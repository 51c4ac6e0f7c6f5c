"""Processes that decode files, with bounded memory and time: a process that dies costs only its current file."""
