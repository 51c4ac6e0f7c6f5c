"""Memory of ranks: samples over time, and snapshots of who holds it."""
