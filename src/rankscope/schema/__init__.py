"""The frame of all inputs: columns, dtypes, enums and units.

One row of ``ops`` is one operation of one rank. Times are integer nanoseconds since the epoch, ranks are global ranks,
states and sources are enums. Repeated values are rows of other tables, joined by id. Text of files is data and never
trusted: it is escaped where it leaves the program.
"""

from rankscope.schema.dataset import Dataset, DumpsBeside, Frame, Group, ReadParts

__all__ = ["Dataset", "DumpsBeside", "Frame", "Group", "ReadParts"]
