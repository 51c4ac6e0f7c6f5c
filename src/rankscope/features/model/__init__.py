"""Models of ranks: who holds another model than its peers, and what is not sharded, not wrapped or not reduced."""
