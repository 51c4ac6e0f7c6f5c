"""Requests for dumps of a running job, by the trigger pipes of its recorders, or by its debug server."""
