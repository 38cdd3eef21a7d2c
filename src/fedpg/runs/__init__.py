"""Training: a configuration, the loop, a run folder."""
