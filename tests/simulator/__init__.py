"""A discrete-event simulator of ranks, devices and process groups that writes flight recorder dumps.

What it takes for true (none of it is borrowed from the rules under test):

* A host runs the instructions of its rank one after the other. Issuing costs microseconds: it runs ahead of its device
  until a `Sync` (an `.item()`), which waits for everything on the compute stream.
* A device has a compute stream, one communicator stream for each group, and one for each pair of ranks that sends
  outside a batch. A stream executes first in, first out; streams run side by side.
* A collective starts on a rank when its stream reaches it and the compute before it is done. It runs when all members
  have started it, and ends on all of them together. Issuing it with `wait` makes later compute wait for its end.
* The k-th collective of a communicator on one rank meets the k-th on every other, whatever they are. Different
  operations, or different sizes, never end; another data type of the same width ends.
* A send and a receive meet in the order of their pair. Both end together, but a send below the eager limit ends without
  its receiver. A batch of them is one launch: it ends when all inside it have.
* A dead device starts and ends nothing more. A stuck host issues nothing more, its device drains.
* A watchdog looks every 100 ms: only what it saw is retired and counts in pg_status. A dump looks once more.
  With timing, start events tell "started" from "scheduled". On a dead device nothing is seen any more.
* Clocks of hosts are off by a constant; the modification time of a dump is the moment it was written, by that clock.
"""
