"""Whether the numbers of a job are right: what collectives must satisfy, replicas, and a reference run."""
