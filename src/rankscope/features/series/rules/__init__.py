"""Rules about the steps of a trainer."""
