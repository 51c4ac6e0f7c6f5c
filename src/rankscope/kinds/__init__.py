"""Tables of kinds: findings, inputs and events of logs. Each kind is one row with all of its properties.

A new kind is a row here and a module that makes it. The package imports nothing: worker processes know kinds of inputs
and do not load polars. Its modules are imported separately: a report on dumps does not load the kinds of log lines.
"""
