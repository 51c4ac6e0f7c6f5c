"""Tables of kinds: findings, inputs and events of logs. Each kind is one row that holds all that the code asks of it.

A new kind is a row here and the module that makes it. The package imports nothing: the processes that read files know
kinds of inputs and do not load polars. Its modules are imported one by one: a report on dumps does not load the kinds
of log lines.
"""
