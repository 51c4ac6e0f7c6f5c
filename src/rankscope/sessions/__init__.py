"""Sessions: what was read of a job, as files that open in a second. A directory of Parquet tables, or of shards' parts.

Nothing in a session is executed or unpickled, and all of it may come from a stranger: it is checked when it is opened.
"""
