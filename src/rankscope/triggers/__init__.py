"""Asks a running job for dumps: by the trigger pipes of its recorders, or by its debug server."""
