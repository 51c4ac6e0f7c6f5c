"""Memory of ranks: who holds more than its peers, whose memory grows, and why a request failed."""
