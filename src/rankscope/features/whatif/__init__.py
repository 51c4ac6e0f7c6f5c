"""Time that a step would take without one worker, stage, link, or imbalance."""
