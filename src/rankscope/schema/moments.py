"""Times of files."""

SECOND_NS = 1_000_000_000


def latest_ns(mtime_ns: int) -> int:
    """The latest that a file with this modification time can have been written, in nanoseconds since the epoch.

    Archives in tar's old formats and many ways to copy files keep whole seconds and cut off the rest.
    """
    return mtime_ns + SECOND_NS - 1 if mtime_ns % SECOND_NS == 0 else mtime_ns
