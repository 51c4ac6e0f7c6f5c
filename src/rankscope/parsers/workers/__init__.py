"""Processes that decode files, with bounded memory and time: one that dies costs only the file it was at."""
