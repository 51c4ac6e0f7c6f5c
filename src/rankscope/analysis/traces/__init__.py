"""What profilers' traces of all ranks say together: one clock, matched collectives, and who is late."""
